"""Disk kept back beside the journal, so that deletions still commit when everything else is full."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from gateway.journal.sqlite.store import CHECKPOINT_BYTES

log = logging.getLogger(__name__)

RESERVE_BYTES = 16 << 20


class Reserve:
    """A file of nothing, given back to the disk when it is full. Used by the commit thread."""

    def __init__(self, path: Path, size: int = RESERVE_BYTES) -> None:
        self._path = path
        self._folder = str(path.parent)
        self._size = size
        self.spent = True
        """Only deletions are taken: the disk is full, or has been and is still too full for the reserve."""
        self.keep()

    def keep(self) -> None:
        """Set the reserve aside (again), where there is room for it and as much beside it."""
        if self._path.exists() and self._path.stat().st_size >= self._size:
            self.spent = False
            return
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < 2 * self._size:
            if not self.spent:
                log.warning("%s: the journal's disk is full; only deletions are taken", self._path.parent)
            self.spent = True
            return
        try:
            with self._path.open("wb") as kept:
                os.posix_fallocate(kept.fileno(), 0, self._size)
                os.fsync(kept.fileno())
        except OSError:
            self._path.unlink(missing_ok=True)
            return
        self.spent = False

    def wal_bytes(self) -> int:
        """How long the WAL may grow: what is in it must find room in the file once the reserve is spent."""
        disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize > 2 * CHECKPOINT_BYTES:
            return CHECKPOINT_BYTES
        return min(self._size // 4, CHECKPOINT_BYTES - 1)

    def spend(self) -> None:
        """Give the reserve back to the disk."""
        if not self.spent:
            log.warning("%s: the journal's disk is full; from its reserve, only deletions are taken", self._path.parent)
        self.spent = True
        self._path.unlink(missing_ok=True)
