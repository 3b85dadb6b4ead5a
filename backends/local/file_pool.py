"""Empty files made ahead, so that a small put need not wait until the file system has found an inode for it.

That is quick as a rule, but ext4 passes over inodes that were deleted within the last minutes, one by one, and after
many deletions making a file takes longer than a flush of the disk.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from backends.local.files import Root
from backends.local.workdir import WorkDir

FILES = 32
REFILL_BELOW = 24


class PreallocatedFiles:
    """Some open, empty temporary files of a desk. `take` may be called from several threads."""

    def __init__(self, root: Root, desk: WorkDir, pool: ThreadPoolExecutor) -> None:
        self._root, self._workdir, self._pool = root, desk, pool
        self._files: deque[tuple[int, str]] = deque()
        self._refilling = False
        self._filling = threading.Lock()
        self._closed = False

    def take(self) -> tuple[int, str]:
        """(descriptor, path) of an empty file, which is the caller's from now on. Raises `OSError`."""
        try:
            taken = self._files.popleft()
        except IndexError:
            taken = self._make()
        if len(self._files) < REFILL_BELOW and not self._refilling:
            self._refilling = True
            self._pool.submit(self._refill)
        return taken

    def close(self) -> None:
        """Remove what was not taken. Nobody takes any more."""
        self._closed = True
        with self._filling:
            while self._files:
                fd, path = self._files.popleft()
                os.close(fd)
                with suppress(OSError):
                    os.unlink(path, dir_fd=self._root.fd)

    def _make(self) -> tuple[int, str]:
        path = self._workdir.temporary()
        return self._root.create(path), path

    def _refill(self) -> None:
        """What goes wrong here goes wrong again in `take`, where somebody hears of it."""
        try:
            with self._filling, suppress(OSError):
                while len(self._files) < FILES and not self._closed:
                    self._files.append(self._make())
        finally:
            self._refilling = False
