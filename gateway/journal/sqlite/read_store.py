"""What readers hold: a read-only connection of their own, point queries inline, short snapshots.

A reader never writes, not even a checkpoint, and never holds a snapshot across an `await`.

**Forks.** SQLite's idea of which locks this process holds must not be carried into a child: the child would believe in
locks that it does not have, and a checkpoint could write what it is reading. So no fork happens in the middle of a
query, and in the child every connection is closed before anybody opens one anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gateway.errors import CommitterGone
from gateway.timing import Timing

CACHE_KIB = 65536
APART_CACHE_KIB = 8192
APART_MAX = 2
"""Snapshots of one process that are held over several turns of the event loop, at a time."""
MAPPED_BYTES = (1 << 31) - 1
"""So much of the file is read through a mapping, without a system call and a copy a page: what the kernel has at hand
it lends, and takes back when memory is short. Nobody cuts the file shorter: it is never vacuumed, and a restored one
is another file."""


class ReadStore:
    """A site's tables, read-only. For one thread."""

    def __init__(self, path: Path, cache_kib: int = CACHE_KIB, timing: Timing | None = None) -> None:
        """*timing*: the defaults, unless given.

        Raises `CommitterGone` if the file cannot be opened: no committer has made it or holds it open."""
        self._path = path
        self._cache_kib = cache_kib
        self._timing = timing or Timing()
        self._depth = 0
        self._version: int | None = None
        """As it was asked in this turn of the loop."""
        self._apart = asyncio.Semaphore(APART_MAX)
        self._idle: list[ReadStore] = []
        """Connections that `separate_snapshot` has used, for the next time."""
        self.lock = threading.RLock()
        """Held during a query or snapshot."""
        self._connection: sqlite3.Connection | None = self._connect()
        _OPEN.add(self)

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                f"file:{quote(str(self._path))}?mode=ro", uri=True, isolation_level=None, check_same_thread=False,
                cached_statements=512,
            )  # fmt: skip
            connection.execute("PRAGMA query_only = 1")
            connection.execute(f"PRAGMA cache_size = -{self._cache_kib}")
            connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
            connection.execute(f"PRAGMA busy_timeout = {round(self._timing.journal.read_busy_seconds * 1000)}")
            connection.execute("SELECT number FROM head").fetchone()
        except sqlite3.Error as error:
            raise CommitterGone(f"the journal {self._path} cannot be read: {error}") from error
        return connection

    def _live(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that a statement finds. Keep them few: this holds the loop."""
        with self.lock:
            return self._live().execute(statement, values).fetchall()

    def query_one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first row that a statement finds, or None."""
        with self.lock:
            return self._live().execute(statement, values).fetchone()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several queries that see one state. May be nested."""
        with self.lock:
            if self._depth == 0:
                self._live().execute("BEGIN")
            self._depth += 1
            try:
                yield
            finally:
                self._depth = max(0, self._depth - 1)
                if self._depth == 0 and self._connection is not None and self._connection.in_transaction:
                    self._connection.execute("COMMIT")

    @asynccontextmanager
    async def separate_snapshot(self) -> AsyncIterator[ReadStore]:
        """Another connection to the same file, on one snapshot that is held until the context ends. At most
        `APART_MAX` at a time; others wait. Keep it short all the same: meanwhile the WAL cannot begin anew."""
        async with self._apart:
            store = self._idle.pop() if self._idle else ReadStore(self._path, APART_CACHE_KIB, self._timing)
            try:
                with store.snapshot():
                    yield store
            except BaseException:
                store.close()
                raise
            self._idle.append(store)

    def head(self) -> int:
        """The number of the last record."""
        row = self.query_one("SELECT number FROM head")
        return 0 if row is None else int(row[0])

    def data_version(self) -> int:
        """Changes whenever somebody committed: what a cache of rows may be kept under.

        On an event loop it is asked once a turn: what is handled in one turn had arrived when the turn began, and what
        hears of a commit is handled in a later one."""
        if self._version is None:
            self._version = int(self.query_one("PRAGMA data_version")[0])
            try:
                asyncio.get_running_loop().call_soon(self._turned)
            except RuntimeError:
                version, self._version = self._version, None
                return version
        return self._version

    def _turned(self) -> None:
        self._version = None

    def steps(self, count: list[int]) -> None:
        """Add SQLite's virtual machine steps to *count*[0] from here on: what a query really costs."""

        def step() -> int:
            count[0] += 1
            return 0

        self._live().set_progress_handler(step, 1)

    def forget(self) -> None:
        """In a forked child: this connection is the parent's."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._depth = 0
        self._version = None
        self._apart = asyncio.Semaphore(APART_MAX)
        self._idle = []
        self.lock = threading.RLock()

    def close(self) -> None:
        _OPEN.discard(self)
        while self._idle:
            self._idle.pop().close()
        if self._connection is not None:
            self._connection.close()


_OPEN: weakref.WeakSet[ReadStore] = weakref.WeakSet()
_paused: list[ReadStore] = []


def _before_fork() -> None:
    for store in list(_OPEN):
        store.lock.acquire()
        _paused.append(store)


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().lock.release()


def _after_fork_in_child() -> None:
    while _paused:
        with contextlib.suppress(sqlite3.Error):
            _paused.pop().forget()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
