"""Disk space that is reserved beside the journal, so that deletions can still be committed when the disk is full."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from gateway.journal.sqlite.store import CHECKPOINT_BYTES

log = logging.getLogger(__name__)

RESERVE_BYTES = 16 << 20


class Reserve:
    """A preallocated file that is deleted when the disk is full. Used by the commit thread."""

    def __init__(self, path: Path, size: int = RESERVE_BYTES) -> None:
        self._path = path
        self._folder = str(path.parent)
        self._size = size
        self.spent = True
        """Whether only deletions are accepted: the disk is full, or has too little space to restore the reserve."""
        self.restore()

    def restore(self) -> None:
        """Allocate the reserve if it is missing and the disk has twice its size free."""
        if self._path.exists() and self._path.stat().st_size >= self._size:
            self.spent = False
            return
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < 2 * self._size:
            if not self.spent:
                log.warning("%s: the journal's disk is full; only deletions are accepted", self._path.parent)
            self.spent = True
            return
        try:
            with self._path.open("wb") as reserve:
                os.posix_fallocate(reserve.fileno(), 0, self._size)
                os.fsync(reserve.fileno())
        except OSError:
            self._path.unlink(missing_ok=True)
            return
        self.spent = False

    def wal_bytes(self) -> int:
        """Return how long the WAL may grow. When the reserve is spent, the database file needs space for what is in the
        WAL."""
        disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize > 2 * CHECKPOINT_BYTES:
            return CHECKPOINT_BYTES
        return min(self._size // 4, CHECKPOINT_BYTES - 1)

    def spend(self) -> None:
        """Delete the reserve, so that deletions can use its space."""
        if not self.spent:
            log.warning(
                "%s: the journal's disk is full; only deletions are accepted, in its reserve", self._path.parent
            )
        self.spent = True
        self._path.unlink(missing_ok=True)
