"""The store of readers: read-only connections, queries on the caller's thread, short snapshots.

A reader never writes, not even a checkpoint. It never holds a snapshot across an `await`, except in
`separate_snapshot`, which uses a connection of its own.

**Forks.** A child process must not inherit SQLite's record of the locks that its parent holds: it would believe that it
has locks that it does not have, and a checkpoint could then overwrite what it reads. So a fork waits until no query is
running, and in the child every connection is closed before a new one is opened.
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
from gateway.journal.sqlite.catalog_version import CatalogVersion
from gateway.journal.sqlite.journal_reader import count_steps
from gateway.timing import Timing

CACHE_KIB = 65536
SEPARATE_CACHE_KIB = 8192
SEPARATE_MAX = 2
"""How many snapshots a store holds over several turns of the event loop at a time."""
MAPPED_BYTES = (1 << 31) - 1
"""How many bytes of the file are read through a memory mapping, without a system call and a copy per page. The pages
are in the kernel's page cache, which evicts them when memory is short. A mapping requires that the file is never
truncated: it is never vacuumed, and a restore makes another file."""


class ReadStore:
    """The tables of a site, read-only. For one thread."""

    def __init__(self, path: Path, cache_kib: int = CACHE_KIB, timing: Timing | None = None) -> None:
        """Open the file at *path*. *timing* has the usual defaults.

        Raises `CommitterGone` if the file cannot be opened, since no committer has created it or has it open."""
        self._path = path
        self._cache_kib = cache_kib
        self._timing = timing or Timing()
        self._depth = 0
        self._catalog = CatalogVersion(str(path))
        self._separate = asyncio.Semaphore(SEPARATE_MAX)
        self._idle: list[ReadStore] = []
        """Connections that `separate_snapshot` has used and will use again."""
        self.lock = threading.RLock()
        """Held during a query or a snapshot."""
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

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows that a statement selects. They should be few, since the event loop waits."""
        with self.lock:
            return self._open_connection().execute(statement, values).fetchall()

    def query_one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Return the first row that a statement selects, or None."""
        with self.lock:
            return self._open_connection().execute(statement, values).fetchone()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A context within which all queries see the same state. May be nested."""
        with self.lock:
            if self._depth == 0:
                self._open_connection().execute("BEGIN")
            self._depth += 1
            try:
                yield
            finally:
                self._depth = max(0, self._depth - 1)
                if self._depth == 0 and self._connection is not None and self._connection.in_transaction:
                    self._connection.execute("COMMIT")

    @asynccontextmanager
    async def separate_snapshot(self) -> AsyncIterator[ReadStore]:
        """A context with another connection to the same file, on a snapshot that is held until the context ends. At
        most `SEPARATE_MAX` exist at a time; further callers wait. It should be short, since the WAL cannot be restarted
        meanwhile."""
        async with self._separate:
            store = self._idle.pop() if self._idle else ReadStore(self._path, SEPARATE_CACHE_KIB, self._timing)
            try:
                with store.snapshot():
                    yield store
            except BaseException:
                store.close()
                raise
            self._idle.append(store)

    def head(self) -> int:
        """Return the number of the last record."""
        row = self.query_one("SELECT number FROM head")
        return 0 if row is None else int(row[0])

    def catalog_version(self) -> int:
        """Return a number that changes whenever the committer has changed the catalog (`catalog_version`). Cached rows
        of it are valid while the number is unchanged. In a snapshot, which may be older than the catalog, each call
        returns another number."""
        return self._catalog.none() if self._depth else self._catalog.read()

    def steps(self, count: list[int]) -> None:
        """Add the steps of SQLite's virtual machine, which are the cost of a query, to *count*[0] from now on."""
        count_steps(self._open_connection(), count)

    def forget(self) -> None:
        """Close the connections in a forked child, since they belong to the parent."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._depth = 0
        self._separate = asyncio.Semaphore(SEPARATE_MAX)
        self._idle = []
        self.lock = threading.RLock()

    def close(self) -> None:
        _OPEN.discard(self)
        while self._idle:
            self._idle.pop().close()
        self._catalog.close()
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
