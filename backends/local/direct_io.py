"""Write large files past the page cache (O_DIRECT, open(2)).

A process that writes seldom reads the same bytes soon; to allocate, fill, write and evict their pages costs more than
the disk's work. Reads fill the cache.

The kernel requires aligned memory, offsets and lengths. So bytes are copied into a page-aligned staging buffer, one per
thread, and the last write is padded with zeros, which a truncation removes. Both happen before the sync, and before
that the file has no name under which anybody looks for it. So a crash leaves no more than after a buffered write.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

from backends.base import Buffer

STAGE_BYTES = 1 << 20
"""Size of a staging buffer. Larger ones were not faster."""
ALIGNED_BYTES = 4096
"""No disk in use has larger sectors. One that has them returns EINVAL, and is written to through the page cache."""


class DirectWriter:
    """Writes whole files of one file system. For any number of threads."""

    def __init__(self) -> None:
        self.usable = True
        """False once the file system has refused O_DIRECT."""
        self._stages = threading.local()

    def write(self, fd: int, value: Sequence[Buffer]) -> bool:
        """Write *value* into the empty file *fd*.

        Return False where the file system has no O_DIRECT: then the file may hold any part of the value, and *fd*
        writes through the page cache. Raises `OSError`."""
        if not self.usable:
            return False
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
            self._write(fd, value)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            self.usable = False
            with suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETFL, flags)
            return False
        return True

    def _write(self, fd: int, value: Sequence[Buffer]) -> None:
        stage = self._stage()
        at = filled = 0
        for buffer in value:
            left = memoryview(buffer).cast("B")
            while left:
                size = min(len(left), STAGE_BYTES - filled)
                stage[filled : filled + size] = left[:size]
                filled += size
                left = left[size:]
                if filled == STAGE_BYTES:
                    _write_all(fd, stage, at)
                    at += filled
                    filled = 0
        if filled:
            padded = -(-filled // ALIGNED_BYTES) * ALIGNED_BYTES
            stage[filled:padded] = bytes(padded - filled)
            _write_all(fd, stage[:padded], at)
            os.ftruncate(fd, at + filled)

    def _stage(self) -> memoryview:
        stage: memoryview | None = getattr(self._stages, "stage", None)
        if stage is None:
            pages = mmap.mmap(-1, STAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            stage = self._stages.stage = memoryview(pages)
        return stage


def _write_all(fd: int, left: memoryview, at: int) -> None:
    """Write all of *left*, past short writes. One that ends unaligned makes the next fail with EINVAL."""
    while left:
        done = os.pwritev(fd, (left,), at)
        left, at = left[done:], at + done
