"""The marker of a local backend: a small JSON file in the control folder, replaced as a whole. Blocking."""

from __future__ import annotations

import fcntl
import os
import stat

from backends import errors
from backends.base import Marker, check_claim, is_claimed
from backends.local.files import CONTROL, Root, read_all
from backends.local.workdir import WorkDir
from backends.marker_format import MARKER_BYTES_MAX, marker_text, parse_marker

MARKER = f"{CONTROL}/marker"


def read_marker(root: Root) -> Marker | None:
    """Whose folder this is; None while nobody claimed it. Raises `OwnedByAnotherSite` if what stands there is no
    marker, and
    `Misconfigured` if the folder does not stand at its path any more: who asks wants to know what others would find."""
    with root.translated(MARKER):
        root.check_still_at_path()
        raw = _read(root)
    if raw is None:
        return None
    try:
        return parse_marker(raw)
    except ValueError as error:
        message = f"{root.path}/{MARKER}: is no marker; see whose folder this is, then remove that file"
        raise errors.OwnedByAnotherSite(message, backend=root.name) from error


def _read(root: Root) -> bytes | None:
    """What stands there, and no more of it than `parse_marker` needs; nothing of what is no file. None where nothing
    stands there."""
    try:
        fd = os.open(MARKER, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root.fd)  # a FIFO holds nobody up
    except FileNotFoundError:
        return None
    try:
        return bytes(read_all(fd, 0, MARKER_BYTES_MAX + 1)) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)


def bears_marker(path: str) -> bool:
    """Whether somebody's marker stands in the folder *path*; nothing is made there to find out."""
    return os.path.isfile(os.path.join(path, MARKER))


def write_claim(root: Root, desk: WorkDir, wanted: Marker) -> None:
    """Put *wanted* there if `check_claim` allows it. Under a lock, since two sites may claim at the same moment."""
    with root.translated(MARKER):
        lock = os.open(f"{MARKER}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=root.fd)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = read_marker(root)
            if is_claimed(held, wanted):
                root.sync_folders([CONTROL])  # who wrote it may have been killed before its name was durable
                return
            reason = check_claim(held, wanted)
            if reason is not None:
                raise errors.OwnedByAnotherSite(f"{root.path}: {reason}", backend=root.name)
            temporary = desk.temporary()
            root.write(temporary, [marker_text(wanted)], sync=True)
            root.place(temporary, MARKER)
            root.sync_folders([CONTROL])
        finally:
            os.close(lock)
