"""Small files: written atomically and durably, and compared by their attributes to detect changes."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.journal.paths import sync_folder


def write_file(path: Path, content: str | bytes) -> None:
    """Write *content* to *path*, durably and readable by the owner alone. A reader finds either all of it or the file
    that was there before."""
    temporary = path.with_name(temporary_name(path.name))
    temporary.unlink(missing_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def temporary_name(name: str) -> str:
    """Return the name under which `write_file` writes a file before it gets its own *name*."""
    return f".{name}.new"


def file_stamp(path: Path) -> tuple[int, int, int]:
    """Return a value that differs once the file has changed: time of modification in ns, size, inode. Zeros if there is
    no file."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
