"""What readers hold: a read-only connection of their own, point queries inline, short snapshots.

A reader never writes, not even a checkpoint, and never holds a snapshot across an `await`. After a fork the
connection is opened anew, since SQLite's must not be carried over.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.errors import CommitterGone

CACHE_KIB = 65536


class ReadStore:
    """A site's tables, read-only. For one thread."""

    def __init__(self, path: Path, cache_kib: int = CACHE_KIB) -> None:
        """Raises `CommitterGone` if the file cannot be opened: no committer has made it or holds it open."""
        self._path = path
        self._cache_kib = cache_kib
        self._pid = 0
        self._depth = 0
        self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                f"file:{self._path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False,
                cached_statements=512,
            )  # fmt: skip
            connection.execute("PRAGMA query_only = 1")
            connection.execute(f"PRAGMA cache_size = -{self._cache_kib}")
            connection.execute("PRAGMA busy_timeout = 2000")
            connection.execute("SELECT number FROM head").fetchone()
        except sqlite3.Error as error:
            raise CommitterGone(f"the journal {self._path} cannot be read: {error}") from error
        self._pid = os.getpid()
        return connection

    def _live(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            self._connection = self._connect()
            self._depth = 0
        return self._connection

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that a statement finds. Keep them few: this holds the loop."""
        return self._live().execute(statement, values).fetchall()

    def one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first row that a statement finds, or None."""
        return self._live().execute(statement, values).fetchone()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several queries that see one state. May be nested."""
        connection = self._live()
        if self._depth == 0:
            connection.execute("BEGIN")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                connection.execute("COMMIT")

    def head(self) -> int:
        """The number of the last record."""
        row = self.one("SELECT number FROM head")
        return 0 if row is None else int(row[0])

    def data_version(self) -> int:
        """Changes whenever somebody committed: what a cache of rows may be kept under."""
        return int(self.one("PRAGMA data_version")[0])

    def steps(self, count: list[int]) -> None:
        """Add SQLite's virtual machine steps to *count*[0] from here on: what a query really costs."""

        def step() -> int:
            count[0] += 1
            return 0

        self._live().set_progress_handler(step, 1)

    def close(self) -> None:
        self._connection.close()
