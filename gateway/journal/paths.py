"""Where a journal's files stand, and a socket path that the kernel takes."""

from __future__ import annotations

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
