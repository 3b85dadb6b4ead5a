"""The marker of a local backend: a small JSON file in the control folder, replaced as a whole. Blocking."""

from __future__ import annotations

import os
import stat

from backends import errors
from backends.base import Marker, check_claim, is_claimed
from backends.local.files import CONTROL, Root, read_all
from backends.local.workdir import WorkDir
from backends.marker_format import MARKER_BYTES_MAX, encode_marker, parse_marker

MARKER = f"{CONTROL}/marker"


def read_marker(root: Root) -> Marker | None:
    """Return the marker; None while nobody claimed the folder.

    Raises `OwnedByAnotherSite` if the file is no marker, and `Misconfigured` if the folder is not the one at its path
    any more: the caller wants to know what another process would find there."""
    with root.translated(MARKER):
        root.check_still_at_path()
        raw = _read(root)
    if raw is None:
        return None
    try:
        return parse_marker(raw)
    except ValueError as error:
        message = f"{root.path}/{MARKER}: it is no marker; find out whose folder this is, then remove that file"
        raise errors.OwnedByAnotherSite(message, backend=root.name) from error


def _read(root: Root) -> bytes | None:
    """Return the marker file's bytes, no more than `parse_marker` needs; None where it is missing, and nothing of what
    is no regular file."""
    try:
        fd = os.open(MARKER, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root.fd)  # does not wait for a FIFO
    except FileNotFoundError:
        return None
    try:
        return bytes(read_all(fd, 0, MARKER_BYTES_MAX + 1)) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)


def has_marker(path: str) -> bool:
    """Return whether the folder *path* has a marker, of whichever site. Creates nothing there."""
    return os.path.isfile(os.path.join(path, MARKER))


def write_claim(root: Root, workdir: WorkDir, wanted: Marker) -> None:
    """Write the marker *wanted* if `check_claim` allows it. Under a file lock, since two sites may claim at once."""
    with root.translated(MARKER), root.locked(f"{MARKER}.lock"):
        held = read_marker(root)
        if is_claimed(held, wanted):
            root.sync_folders([CONTROL])  # its writer may have been killed before the name was durable
            return
        reason = check_claim(held, wanted)
        if reason is not None:
            raise errors.OwnedByAnotherSite(f"{root.path}: {reason}", backend=root.name)
        temporary = workdir.temporary()
        root.write(temporary, [encode_marker(wanted)], sync=True)
        root.place(temporary, MARKER)
        root.sync_folders([CONTROL])
