"""A cache of open files, for reads that need no thread. Used by the event loop's thread alone, so it has no lock."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Iterable

from backends.base import Buffer
from backends.buffers import unfilled

NOW_BYTES_MAX = 2 << 20  # to copy more out of the page cache would block the event loop for too long


class FdCache:
    """The descriptors of the files read last, at most *fds_max* of them."""

    def __init__(self, fds_max: int) -> None:
        self._fds_max = fds_max
        self._fds: OrderedDict[str, int] = OrderedDict()
        self._usable = hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")

    def __len__(self) -> int:
        return len(self._fds)

    def __contains__(self, key: str) -> bool:
        return key in self._fds

    @property
    def usable(self) -> bool:
        """Whether this system can read without waiting, and the cache may hold any descriptor."""
        return self._usable and self._fds_max > 0

    def add(self, key: str, fd: int) -> None:
        """Take ownership of *fd*, which reads *key*. It is closed at once where the cache does not keep it."""
        if not self.usable or key in self._fds:
            os.close(fd)
            return
        self._fds[key] = fd
        if len(self._fds) > self._fds_max:
            os.close(self._fds.popitem(last=False)[1])

    def read(self, key: str, start: int, length: int | None) -> Buffer | None:
        """Return the bytes if the file is cached here and the page cache holds all of them; else None."""
        fd = self._fds.get(key)
        if fd is None:
            return None
        if length is None:
            length = os.fstat(fd).st_size - start
        if not 0 <= length <= NOW_BYTES_MAX:
            return None
        self._fds.move_to_end(key)
        buffer = unfilled(length)
        try:
            return buffer if os.preadv(fd, (buffer,), start, os.RWF_NOWAIT) == length else None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                self._usable = False
                self.clear()
            return None

    def drop(self, key: str) -> None:
        """Close the file of *key*, if it is cached."""
        fd = self._fds.pop(key, None)
        if fd is not None:
            os.close(fd)

    def keys(self) -> list[str]:
        """Return the keys whose files are open here, the least recently read first."""
        return list(self._fds)

    def drop_deleted(self, keys: Iterable[str]) -> None:
        """Close those files of *keys* that were deleted: their space is not freed while they are open."""
        for key in keys:
            fd = self._fds.get(key)
            if fd is not None and not os.fstat(fd).st_nlink:
                self.drop(key)

    def halve(self) -> None:
        """Close the less recently read half, for a process that runs out of descriptors."""
        for key in list(self._fds)[: len(self._fds) // 2 + 1]:
            self.drop(key)

    def clear(self) -> None:
        """Close all files."""
        for key in list(self._fds):
            self.drop(key)
