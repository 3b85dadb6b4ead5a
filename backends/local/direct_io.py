"""Large files written past the page cache (O_DIRECT, open(2)): their pages are made, filled, written and aged out for
nothing where who writes does not read soon, and that costs more than the disk's work. Who reads fills the cache.

The kernel wants memory, offsets and lengths aligned: bytes are laid out in a page-aligned stage, one a thread, and the
last stretch is padded with zeros that a truncation takes away. Both come before the sync, and the file has no name that
anybody looks for before that; so a crash anywhere leaves what it leaves of a buffered write.
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
"""Of each thread that writes: more at once was no faster."""
ALIGNED_BYTES = 4096
"""No disk in use has larger sectors; one that has says EINVAL, and is written to through the page cache."""


class DirectWriter:
    """Writes whole files, of one file system, from any number of threads."""

    def __init__(self) -> None:
        self.usable = True
        """The file system has not refused yet."""
        self._stages = threading.local()

    def write(self, fd: int, value: Sequence[Buffer]) -> bool:
        """Write *value* into the empty file *fd*. False where that is not to be had: then the file may hold
        anything, and *fd* writes through the page cache. Raises `OSError`."""
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
    """A short write that ends unaligned makes the next one fail with EINVAL, as any other misalignment."""
    while left:
        done = os.pwritev(fd, (left,), at)
        left, at = left[done:], at + done
