"""The journal's chain of hashes: whether every record is what was written.

Each batch carries a hash over the hash before it and its packed records, so a batch that was changed, lost or put in
is noticed at the first look. A chain begins at record 1. Where a site was restored from its tables alone, it begins
behind the last record that these tables stand at, with `ChainBegun`: the records before are gone.

Reading goes in slices, each a short read transaction, so a check of millions of records holds neither memory nor the
WAL of a site that is in use. It may take long: call it in a thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgpack

from gateway.errors import Corrupted
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.records.site import ChainBegun
from gateway.journal.store import EMPTY_HEAD, HASH_BYTES, Head, JournalRow, running_hash
from gateway.timing import timing_from_environment

SLICE = 256
"""Batches that one read transaction goes through."""

NUMBER_MAX = (1 << 63) - 1

_SLICE_OF = (
    "SELECT number, CAST(records_count AS INTEGER), CAST(at_ns AS INTEGER), CAST(next_id AS INTEGER), "
    "CAST(hash AS BLOB), CAST(records AS BLOB) FROM journal WHERE number > ? AND number <= ? ORDER BY number LIMIT ?"
)
"""Whatever the file has there, what is read is of the types that a batch has."""

Progress = Callable[[int, int], None]
"""Told the number of the last record that was checked, and that of the last one."""


def silent(done: int, total: int) -> None:
    """Nobody watches."""


def check(row: JournalRow, before: Head) -> Head:
    """Where the journal stands behind *row*. Raises `Corrupted` unless it follows *before* and is what was written."""
    if row.number != before.number + 1:
        raise Corrupted(f"the journal goes from record {before.number} to {row.number}")
    if running_hash(before.hash, row.records) != row.hash:
        raise Corrupted(f"the journal's records from {row.number} on are not what was written")
    if row.next_id < before.next_id:
        raise Corrupted(f"the journal's ids go back at record {row.number}")
    return after(row)


def after(row: JournalRow) -> Head:
    """Where the journal stands behind *row*."""
    return Head(row.number + row.records_count - 1, row.hash, row.at_ns, row.next_id)


def before_first(row: JournalRow) -> Head:
    """Where the journal stands before *row*, its first batch. Raises `Corrupted` where batches before it are lost."""
    if row.number > 1:
        try:
            first = RECORD_CODEC.unpack(row.records)[0]
        except (Corrupted, ValueError, TypeError, LookupError, msgpack.UnpackException):
            first = None
        if isinstance(first, ChainBegun) and first.number == row.number - 1:
            return Head(first.number, bytes(HASH_BYTES), 0, 0)
    return EMPTY_HEAD


def verify(rows: Iterable[JournalRow], head: Head) -> Head:
    """Go through all batches of a journal that should end at *head*. Raises `Corrupted` at the first fault."""
    at: Head | None = None
    for row in rows:
        at = check(row, before_first(row) if at is None else at)
    _check_end(at or EMPTY_HEAD, head)
    return at or EMPTY_HEAD


def faults(path: Path, progress: Progress = silent) -> Iterator[tuple[int, str]]:
    """Every fault of the journal in the SQLite file at *path*, which may be in use: the number of the record where it
    is, and a sentence. Behind a fault the check goes on with what the journal says. A file that cannot be read is one
    as well."""
    at: Head | None = None
    try:
        connection = open_readonly(path)
        try:
            head = head_of(connection)
            for row in batches(connection, up_to=head.number):
                try:
                    at = check(row, before_first(row) if at is None else at)
                except Corrupted as error:
                    at = after(row)
                    yield row.number, str(error)
                progress(at.number, head.number)
            _check_end(at or EMPTY_HEAD, head)
        finally:
            connection.close()
    except sqlite3.Error as error:
        yield at.number + 1 if at else 1, f"the journal cannot be read: {error}"
    except Corrupted as error:
        yield at.number if at else 0, str(error)


def malformed(path: Path) -> str:
    """What SQLite finds wrong with the pages of the file at *path*; empty if nothing is. Some seconds a gigabyte."""
    try:
        connection = open_readonly(path)
        try:
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error as error:
        found = str(error)
    return "" if found == "ok" else f"the journal's file is malformed: {' '.join(found.split())}"


def open_readonly(path: Path) -> sqlite3.Connection:
    """A connection that reads the file at *path* and holds nothing in memory. Raises `sqlite3.Error`."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    seconds = timing_from_environment().journal.read_busy_seconds
    connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")
    return connection


def head_of(connection: sqlite3.Connection) -> Head:
    """Where the tables stand. Raises `sqlite3.Error`."""
    row = connection.execute("SELECT number, hash, at_ns, next_id FROM head").fetchone()
    return EMPTY_HEAD if row is None else Head._make(row)


def batches(connection: sqlite3.Connection, *, behind: int = 0, up_to: int = NUMBER_MAX) -> Iterator[JournalRow]:
    """The batches behind record *behind* up to record *up_to*, in order, one at a time. Raises `sqlite3.Error`."""
    while True:
        number = behind
        for row in connection.execute(_SLICE_OF, (behind, up_to, SLICE)):
            number = row[0]
            yield JournalRow._make(row)
        if number == behind:
            return
        behind = number


def _check_end(at: Head, head: Head) -> None:
    if at.number != head.number:
        raise Corrupted(f"the journal ends at record {at.number}, the tables at {head.number}")
    if at.hash != head.hash:
        raise Corrupted(f"the journal's hash at record {at.number} is not the one that the tables stand at")
