"""Whether two paths lead to the same folder, or one into the other: through symbolic links and bind mounts, too."""

from __future__ import annotations

import os.path
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

Identity = tuple[int, int]
"""The device and the inode of a folder."""


class Folder(NamedTuple):
    """A path, and the folder that it leads to."""

    written: str
    """The path as it was given: absolute, without `.` and `..`."""
    real: str
    """The path with all symbolic links resolved."""
    identity: Identity | None
    """None if the folder does not exist."""
    above: frozenset[Identity]
    """The identities of the folder and of all folders above it, as far as they exist."""

    def holds(self, other: Folder) -> bool:
        """Return whether *other* is this folder or is below it."""
        if any(_is_in(mine, theirs) for mine, theirs in ((self.written, other.written), (self.real, other.real))):
            return True
        return self.identity is not None and self.identity in other.above

    def shows_overlap(self, other: Folder) -> bool:
        """Return whether the given paths alone show that one folder is or contains the other."""
        return _is_in(self.written, other.written) or _is_in(other.written, self.written)


def resolve_folder(path: Path) -> Folder:
    """Resolve *path*, which is absolute. Blocking."""
    real = os.path.realpath(path)
    above = [found for each in (real, *map(str, Path(real).parents)) if (found := _identity(each)) is not None]
    return Folder(os.path.normpath(path), real, _identity(real), frozenset(above))


def _identity(path: str) -> Identity | None:
    with suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return None


def _is_in(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
