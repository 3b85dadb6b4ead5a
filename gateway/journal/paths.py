"""Where a journal's files stand, and a socket path that the kernel takes."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

SOCKET_PATH_MAX = 100
"""`sockaddr_un` holds 108 bytes (unix(7))."""


class JournalPaths:
    """The files in a journal's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "journal.db"
        self.lock = folder / "lock"
        self.reserve = folder / "reserve"

    def socket(self) -> Path:
        """Where the committer listens: in the folder, or, where that path is too long, in a private folder of the
        user's under /tmp, named after it. Everybody finds the same, by whatever name they know the folder, and
        whatever their TMPDIR. Raises `PermissionError` if that private folder is somebody else's."""
        folder = self.folder.resolve()
        inside = folder / "committer.sock"
        if len(os.fsencode(inside)) <= SOCKET_PATH_MAX:
            return inside
        private = Path("/tmp") / f"entrepot-{os.getuid()}"  # noqa: S108 (made for one user, and checked below)
        private.mkdir(mode=0o700, exist_ok=True)
        found = private.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(f"{private} is not this user's alone")
        name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]
        return private / f"{name}.sock"


def make_folder(folder: Path) -> None:
    """Make *folder*, which only its owner may enter, and what lacks above it; their names are durable.

    Also where they are there already: who made them may have died before it did this. A folder above that this user
    may not look into was not made here. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for above in folder.absolute().parents:
        with contextlib.suppress(PermissionError):
            sync_folder(above)


def sync_folder(folder: Path) -> None:
    """Make durable which names stand in *folder*."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
