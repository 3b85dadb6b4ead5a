"""Listing a local backend in byte order of its keys. Blocking, lazy, and bounded in memory however many there are."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from contextlib import suppress

from backends.base import Listed, is_segment
from backends.local.files import Root

NAMES_AT_ONCE = 65_536  # of one folder; one with more is scanned again for each further so many


def walk(root: Root, prefix: str, after: str) -> Iterator[Listed]:
    """The values below *root*, in byte order. Folders found empty are removed."""
    yield from _walk(root, "", prefix, after)


def _walk(root: Root, folder: str, prefix: str, after: str) -> Iterator[Listed]:
    """*folder* is "" or ends in a slash. A folder's name is sorted with its slash, as it stands in the keys."""
    seen_any, last = False, ""
    while names := _names_after(root, folder, last, prefix, after):
        last = names[-1]
        for name in names:
            seen_any = True
            path = folder + name
            if name.endswith("/"):
                yield from _walk(root, path, prefix, after)
            elif path > after and path.startswith(prefix):
                with suppress(FileNotFoundError):
                    yield Listed(path, os.stat(path, dir_fd=root.fd).st_size)
    if folder and not seen_any and not prefix and not after:
        root.remove_empty(folder)


def _names_after(root: Root, folder: str, last: str, prefix: str, after: str) -> list[str]:
    """The next names behind *last* in *folder* that may matter, sorted."""
    try:
        fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root.fd)
    except FileNotFoundError:
        return []
    try:
        with os.scandir(fd) as entries:
            ours = (entry for entry in entries if is_segment(entry.name))  # not `lost+found`, nor the control folder
            names = (entry.name + "/" if entry.is_dir() else entry.name for entry in ours)
            wanted = (name for name in names if name > last and _matters(folder + name, prefix, after))
            return heapq.nsmallest(NAMES_AT_ONCE, wanted)
    finally:
        os.close(fd)


def _matters(path: str, prefix: str, after: str) -> bool:
    """Whether *path* is, or as a folder may hold, a key with *prefix* behind *after*."""
    if not path.endswith("/"):
        return path > after and path.startswith(prefix)
    return (path > after or after.startswith(path)) and (path.startswith(prefix) or prefix.startswith(path))
