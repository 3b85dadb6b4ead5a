"""Open files for reads that need no thread. Belongs to the event loop's thread alone, so it needs no lock."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Iterable

from backends.base import Buffer
from backends.buffers import unfilled

NOW_BYTES_MAX = 2 << 20  # copying more than this out of the page cache would hold up the loop


class FdCache:
    """The descriptors of the files read last, at most *most* of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[str, int] = OrderedDict()
        self._usable = hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: str) -> bool:
        return key in self._open

    @property
    def usable(self) -> bool:
        """Whether this system can read without waiting at all."""
        return self._usable and self._most > 0

    def offer(self, key: str, fd: int) -> None:
        """Take over *fd*, which reads *key*; it may be closed at once."""
        if not self.usable or key in self._open:
            os.close(fd)
            return
        self._open[key] = fd
        if len(self._open) > self._most:
            os.close(self._open.popitem(last=False)[1])

    def read(self, key: str, start: int, length: int | None) -> Buffer | None:
        """The bytes, if the file is open here and the page cache holds them all; else None."""
        fd = self._open.get(key)
        if fd is None:
            return None
        if length is None:
            length = os.fstat(fd).st_size - start
        if not 0 <= length <= NOW_BYTES_MAX:
            return None
        self._open.move_to_end(key)
        buffer = unfilled(length)
        try:
            return buffer if os.preadv(fd, (buffer,), start, os.RWF_NOWAIT) == length else None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                self._usable = False
                self.clear()
            return None

    def drop(self, key: str) -> None:
        """Close the file of *key*, if it is open."""
        fd = self._open.pop(key, None)
        if fd is not None:
            os.close(fd)

    def keys(self) -> list[str]:
        """Whose files are open."""
        return list(self._open)

    def drop_deleted(self, keys: Iterable[str]) -> None:
        """Close those files of *keys* that somebody deleted: as long as they are open their space is not free."""
        for key in keys:
            fd = self._open.get(key)
            if fd is not None and not os.fstat(fd).st_nlink:
                self.drop(key)

    def halve(self) -> None:
        """Close the older half, when the process runs out of descriptors."""
        for key in list(self._open)[: len(self._open) // 2 + 1]:
            self.drop(key)

    def clear(self) -> None:
        """Close all."""
        for key in list(self._open):
            self.drop(key)
