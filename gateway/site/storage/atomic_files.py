"""Small files: private ones are written whole and durably, watched ones are told apart by their stamps."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.journal.paths import sync_folder


def write_file(path: Path, content: str | bytes) -> None:
    """Put *content* at *path*, readable by the owner alone; whoever looks finds all of it or what was there before."""
    making = path.with_name(temporary_name(path.name))
    making.unlink(missing_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    making.replace(path)
    sync_folder(path.parent)


def temporary_name(name: str) -> str:
    """The name under which a file of this name is written before it has its own."""
    return f".{name}.new"


def file_stamp(path: Path) -> tuple[int, int, int]:
    """What is another one once the file has changed; zeros where there is none."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
