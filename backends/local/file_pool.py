"""Empty files made ahead, so that a small put does not wait while the file system looks for a free inode.

That search is usually quick, but ext4 skips inodes that were deleted within the last minutes, one by one; after many
deletions, creating a file takes longer than flushing the disk.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from backends.local.files import Root
from backends.local.workdir import WorkDir

FILES = 32
REFILL_BELOW = 24


class EmptyFile(NamedTuple):
    """An empty temporary file that is open for writing."""

    fd: int
    path: str


class PreallocatedFiles:
    """Some open, empty temporary files of a `WorkDir`. `acquire` may be called from several threads."""

    def __init__(self, root: Root, workdir: WorkDir, pool: ThreadPoolExecutor) -> None:
        """*pool* runs the refills."""
        self._root, self._workdir, self._pool = root, workdir, pool
        self._files: deque[EmptyFile] = deque()
        self._refilling = False
        self._filling = threading.Lock()
        self._closed = False

    def acquire(self) -> EmptyFile:
        """Hand out an empty file, which the caller fills, renames and closes. Raises `OSError`."""
        try:
            file = self._files.popleft()
        except IndexError:
            file = self._make()
        if len(self._files) < REFILL_BELOW and not self._refilling:
            self._refilling = True
            self._pool.submit(self._refill)
        return file

    def close(self) -> None:
        """Close and remove the files that nobody acquired. No call of `acquire` may follow."""
        self._closed = True
        with self._filling:
            while self._files:
                fd, path = self._files.popleft()
                os.close(fd)
                with suppress(OSError):
                    os.unlink(path, dir_fd=self._root.fd)

    def _make(self) -> EmptyFile:
        path = self._workdir.temporary()
        return EmptyFile(self._root.create(path), path)

    def _refill(self) -> None:
        """Make files until there are `FILES`. An error is ignored: `acquire` meets it again and reports it."""
        try:
            with self._filling, suppress(OSError):
                while len(self._files) < FILES and not self._closed:
                    self._files.append(self._make())
        finally:
            self._refilling = False
