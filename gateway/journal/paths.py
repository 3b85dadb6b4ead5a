"""The paths of a journal's files, and folders whose names are durable."""

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
        """Return the path of the committer's socket. It is in the folder or, if that path is too long for the kernel,
        in a private folder of the user under /tmp, named by a hash of the folder's path. All processes get the same
        path, by whichever name they know the folder, and whatever their TMPDIR is. Raises `PermissionError` if another
        user may use that private folder."""
        folder = self.folder.resolve()
        inside = folder / "committer.sock"
        if len(os.fsencode(inside)) <= SOCKET_PATH_MAX:
            return inside
        private = Path("/tmp") / f"entrepot-{os.getuid()}"  # noqa: S108 (made for one user, and checked below)
        private.mkdir(mode=0o700, exist_ok=True)
        status = private.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise PermissionError(f"{private} is not private to this user")
        name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]
        return private / f"{name}.sock"


def make_folder(folder: Path) -> None:
    """Create *folder*, which only its owner may enter, and missing folders above it, and make their names durable.

    The names of folders that exist are made durable too: the process that created them may have died before it did
    that. A folder above that this user may not open is skipped, since this user did not create anything in it. Raises
    `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for above in folder.absolute().parents:
        with contextlib.suppress(PermissionError):
            sync_folder(above)


def sync_folder(folder: Path) -> None:
    """Make the names in *folder* durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
