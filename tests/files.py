"""What lies below a folder while a site is served from it.

A backend removes folders as they become empty, and one that vanishes under `Path.rglob` or `Path.glob` ends the search
with `FileNotFoundError`; `os.walk` passes over it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def files_below(folder: Path) -> Iterator[Path]:
    """Every file that is met on the way; none where the folder is not there."""
    for at, _, names in os.walk(folder):
        yield from (Path(at, name) for name in names)


def block_files(folder: Path) -> list[Path]:
    """The blocks in a local backend's folder, without what it keeps for itself, by name."""
    return sorted(path for path in files_below(folder) if ".entrepot" not in path.relative_to(folder).parts)
