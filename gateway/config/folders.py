"""Which folder a path leads to, whatever it is called: through symbolic links, and where it is mounted twice."""

from __future__ import annotations

import os.path
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

Identity = tuple[int, int]
"""The device and the inode of a folder."""


class Seen(NamedTuple):
    """What a path is, and what it leads to."""

    written: str
    """Absolute, without `.` and `..`."""
    real: str
    """Without symbolic links."""
    identity: Identity | None
    """None where nothing is there yet."""
    above: frozenset[Identity]
    """Of the folders that it lies in, itself included, as far as they are there."""

    def holds(self, other: Seen) -> bool:
        """Whether *other* is this folder, or lies in it."""
        if any(_is_in(mine, theirs) for mine, theirs in ((self.written, other.written), (self.real, other.real))):
            return True
        return self.identity is not None and self.identity in other.above

    def shows_overlap(self, other: Seen) -> bool:
        """Whether the paths as they are written say already that one holds the other."""
        return _is_in(self.written, other.written) or _is_in(other.written, self.written)


def look(path: Path) -> Seen:
    """Look at *path*, which is absolute. Blocking."""
    real = os.path.realpath(path)
    above = [found for each in (real, *map(str, Path(real).parents)) if (found := _identity(each)) is not None]
    return Seen(os.path.normpath(path), real, _identity(real), frozenset(above))


def _identity(path: str) -> Identity | None:
    with suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return None


def _is_in(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
