"""List a local backend in byte order of its keys. Blocking and lazy, with bounded memory."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from contextlib import suppress

from backends.base import Listed, is_segment
from backends.local.files import Root

NAMES_AT_ONCE = 65_536  # names of one folder held in memory; a larger folder is scanned again for each such batch


def walk(root: Root, prefix: str, after: str) -> Iterator[Listed]:
    """Yield the values below *root*, in byte order of their keys. Remove the folders that are found empty."""
    yield from _walk(root, "", prefix, after)


def _walk(root: Root, folder: str, prefix: str, after: str) -> Iterator[Listed]:
    """Walk one folder: *folder* is "" or ends with a slash. Its subfolders are sorted with a slash at the end of their
    names, as in the keys."""
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
    """Return the next names after *last* in *folder* that are, or may lead to, wanted keys; sorted."""
    try:
        fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root.fd)
    except FileNotFoundError:
        return []
    try:
        with os.scandir(fd) as entries:
            segments = (
                entry for entry in entries if is_segment(entry.name)
            )  # not `lost+found`, nor the control folder
            names = (entry.name + "/" if entry.is_dir() else entry.name for entry in segments)
            wanted = (name for name in names if name > last and _may_match(folder + name, prefix, after))
            return heapq.nsmallest(NAMES_AT_ONCE, wanted)
    finally:
        os.close(fd)


def _may_match(path: str, prefix: str, after: str) -> bool:
    """Return whether *path* is, or as a folder may contain, a key with *prefix* that is greater than *after*."""
    if not path.endswith("/"):
        return path > after and path.startswith(prefix)
    return (path > after or after.startswith(path)) and (path.startswith(prefix) or prefix.startswith(path))
