"""A rehearsal: a site that was restored only to be looked at. It is read-only, and the original site goes on.

**Invariants.** A rehearsal sends no commands to its journal, and puts, deletes and claims nothing on any backend. Its
journal keeps the incarnation of the backup. So if its mark is removed, it is an older copy of the original's folder,
which does not start while the backends' markers show a longer journal (`storage/fencing.py`).

A rehearsal reads the blocks that the backup names. The original keeps these for as long as the backup says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from gateway.site.paths import REHEARSAL
from gateway.site.storage.atomic_files import write_file

READ_ONLY = (
    "this site is the rehearsal of a restore and read-only. The original site is not affected by it. "
    "`entrepot restore --take-over` makes a site of the backup that can be written"
)
"""Why a rehearsal refuses a change."""


class Rehearsal(NamedTuple):
    """What the mark of a rehearsal says about the backup."""

    number: int
    """The number of the last record in the backup."""
    made_ns: int
    """The wall time at which the backup was made."""


def mark_rehearsal(folder: Path, rehearsal: Rehearsal) -> None:
    """Mark the site in *folder* as a rehearsal."""
    write_file(folder / REHEARSAL, json.dumps(rehearsal._asdict()) + "\n")


def is_rehearsal(folder: Path) -> bool:
    """Whether the site in *folder* is a rehearsal. A mark that cannot be read counts."""
    return (folder / REHEARSAL).exists()
