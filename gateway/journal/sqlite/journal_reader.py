"""Read the batches of a journal from its SQLite file, which may be in use.

The batches are read in slices, each in a short read transaction. So a check of millions of records neither occupies
memory nor keeps the WAL of a running site from being checkpointed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gateway.journal.store import EMPTY_HEAD, Head, JournalRow
from gateway.timing import timing_from_environment

SLICE = 256
"""Batches that one read transaction reads."""

NUMBER_MAX = (1 << 63) - 1

_SELECT_SLICE = (
    "SELECT number, CAST(records_count AS INTEGER), CAST(at_ns AS INTEGER), CAST(next_id AS INTEGER), "
    "CAST(hash AS BLOB), CAST(records AS BLOB) FROM journal WHERE number > ? AND number <= ? ORDER BY number LIMIT ?"
)
"""The casts give each value the type that `JournalRow` declares, whatever a damaged file contains."""


def open_readonly(path: Path) -> sqlite3.Connection:
    """Open a read-only connection to the file at *path*. Raises `sqlite3.Error`."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    seconds = timing_from_environment().journal.read_busy_seconds
    connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")
    return connection


def read_head(connection: sqlite3.Connection) -> Head:
    """Return the head that the tables are at. Raises `sqlite3.Error`."""
    row = connection.execute("SELECT number, hash, at_ns, next_id FROM head").fetchone()
    return EMPTY_HEAD if row is None else Head._make(row)


def read_batches(connection: sqlite3.Connection, *, after: int = 0, up_to: int = NUMBER_MAX) -> Iterator[JournalRow]:
    """Yield the batches after record *after* up to record *up_to*, in order. Raises `sqlite3.Error`."""
    while True:
        number = after
        for row in connection.execute(_SELECT_SLICE, (after, up_to, SLICE)):
            number = row[0]
            yield JournalRow._make(row)
        if number == after:
            return
        after = number


def count_steps(connection: sqlite3.Connection, count: list[int]) -> None:
    """Add the steps of the connection's virtual machine, which are the cost of a query, to *count*[0] from now on."""

    def step() -> int:
        count[0] += 1
        return 0

    connection.set_progress_handler(step, 1)
