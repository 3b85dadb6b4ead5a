"""The journal's chain of hashes, by which it is verified that every record is what was written.

Each batch has a hash over the hash before it and its packed records. So a batch that was changed, lost or inserted is
detected when the chain is checked. A chain begins at record 1. If a site was restored from its tables alone, the chain
begins after the last record that these tables reflect, with `ChainBegun`: the records before it are lost.

A check may take long: call it in a thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgpack

from gateway.errors import Corrupted
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.records.site import ChainBegun
from gateway.journal.sqlite.journal_reader import open_readonly, read_batches, read_head
from gateway.journal.store import EMPTY_HEAD, HASH_BYTES, Head, JournalRow, running_hash

Progress = Callable[[int, int], None]
"""Called with the number of the last record that was checked, and the number of the last record."""


def no_progress(done: int, total: int) -> None:
    """Ignore the progress."""


def check(row: JournalRow, before: Head) -> Head:
    """Return the head after *row*. Raises `Corrupted` unless *row* follows *before* and is what was written."""
    if row.number != before.number + 1:
        raise Corrupted(f"the journal goes from record {before.number} to {row.number}")
    if running_hash(before.hash, row.records) != row.hash:
        raise Corrupted(f"the journal's records from {row.number} on are not what was written")
    if row.next_id < before.next_id:
        raise Corrupted(f"the journal's ids go back at record {row.number}")
    return head_after(row)


def head_after(row: JournalRow) -> Head:
    """Return the head after *row*."""
    return Head(row.number + row.records_count - 1, row.hash, row.at_ns, row.next_id)


def head_before_first(row: JournalRow) -> Head:
    """Return the head before *row*, the journal's first batch. If batches before it are lost, that is the empty head,
    which *row* does not follow."""
    if row.number > 1:
        try:
            first = RECORD_CODEC.unpack(row.records)[0]
        except (Corrupted, ValueError, TypeError, LookupError, msgpack.UnpackException):
            first = None
        if isinstance(first, ChainBegun) and first.number == row.number - 1:
            return Head(first.number, bytes(HASH_BYTES), 0, 0)
    return EMPTY_HEAD


def verify(rows: Iterable[JournalRow], head: Head) -> Head:
    """Check all batches of a journal whose tables are at *head*. Returns its end. Raises `Corrupted` at the first
    fault."""
    at: Head | None = None
    for row in rows:
        at = check(row, head_before_first(row) if at is None else at)
    _check_end(at or EMPTY_HEAD, head)
    return at or EMPTY_HEAD


def faults(path: Path, progress: Progress = no_progress) -> Iterator[tuple[int, str]]:
    """Yield every fault of the journal in the SQLite file at *path*, which may be in use, as the number of the record
    and a sentence. After a fault the check continues from what the faulty batch contains. A file that cannot be read is
    a fault as well."""
    at: Head | None = None
    try:
        connection = open_readonly(path)
        try:
            head = read_head(connection)
            for row in read_batches(connection, up_to=head.number):
                try:
                    at = check(row, head_before_first(row) if at is None else at)
                except Corrupted as error:
                    at = head_after(row)
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
    """Return what SQLite finds wrong with the pages of the file at *path*; empty if nothing is wrong. Takes some
    seconds per gigabyte."""
    try:
        connection = open_readonly(path)
        try:
            result = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error as error:
        result = str(error)
    return "" if result == "ok" else f"the journal's file is malformed: {' '.join(result.split())}"


def _check_end(at: Head, head: Head) -> None:
    if at.number != head.number:
        raise Corrupted(f"the journal ends at record {at.number}, the tables at {head.number}")
    if at.hash != head.hash:
        raise Corrupted(f"the journal's hash at record {at.number} is not the one that the tables have")
