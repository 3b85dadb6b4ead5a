"""The catalog version: a counter in shared memory that changes with each commit that changed the catalog.

The *catalog* are the tables that each request looks up and that seldom change (`Table.catalog`): users, access keys,
tenants, ring keys, buckets. A process that caches their rows compares this counter, which takes no system call and no
query. The counter is the eight bytes of a file beside the database, which all processes of the machine map.

**Why a cache is never older than an answer.** The committer increments the counter after a commit is durable and
before it answers any of its commands. So a request that is sent after the answer reads the new counter, and the rows
are looked up again. If the committer is killed between the two, nobody was answered, and the next committer increments
the counter when it opens the store. A reader reads the counter first and the rows after it, so it may take new rows
for old ones, and never old ones for new.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress

from gateway.errors import DiskFull

VERSION_BYTES = 8


def catalog_version_path(database: str) -> str:
    """Return the path of the counter of the database at that path."""
    return f"{database}-catalog"


class CatalogCounter:
    """The counter, as the committer writes it. The file is never truncated or replaced: readers have it mapped."""

    def __init__(self, database: str) -> None:
        """Open the counter of *database*, or create it; increment it. Raises `DiskFull`, `OSError`."""
        path = catalog_version_path(database)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(fd).st_size < VERSION_BYTES:
                os.posix_fallocate(fd, 0, VERSION_BYTES)  # to write into a map without disk space would be a SIGBUS
            self._mapped = mmap.mmap(fd, VERSION_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"the journal's disk is full ({path})") from error
            raise
        finally:
            os.close(fd)
        self._counter = memoryview(self._mapped).cast("Q")
        self.increment()

    def increment(self) -> None:
        self._counter[0] = (self._counter[0] + 1) % (1 << 64)

    def close(self) -> None:
        self._counter.release()
        self._mapped.close()


class CatalogVersion:
    """The counter, as a reader sees it."""

    def __init__(self, database: str) -> None:
        self._path = catalog_version_path(database)
        self._counter: memoryview | None = None
        self._nones = 0

    def read(self) -> int:
        """Return the counter. While there is none, since no committer of this version has opened the database yet,
        return `none`."""
        if self._counter is None:
            self._map()
        return self.none() if self._counter is None else self._counter[0]

    def none(self) -> int:
        """Return a negative number, another one each time: no cache is valid."""
        self._nones -= 1
        return self._nones

    def _map(self) -> None:
        with suppress(FileNotFoundError, ValueError):  # ValueError: it is empty, since it is being created
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._counter = memoryview(mmap.mmap(fd, VERSION_BYTES, prot=mmap.PROT_READ)).cast("Q")
            finally:
                os.close(fd)

    def close(self) -> None:
        """Unmap the counter. A later `read` maps it again."""
        if self._counter is not None:
            self._counter.release()
            self._counter = None
