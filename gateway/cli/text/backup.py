"""The result of `entrepot backup` as JSON and as text."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from gateway.cli.output import format_time
from gateway.journal.history.backup import Manifest


def to_dict(manifest: Manifest, target: Path) -> dict[str, Any]:
    """Return the manifest of the backup in *target* as plain values, for JSON."""
    return {**asdict(manifest), "folder": str(target)}


def to_text(manifest: Manifest, target: Path) -> list[str]:
    """Return the same as lines for people."""
    first = f"backed up {manifest.number} records of site {manifest.site} to {target}; "
    if not manifest.damage:
        return [f"{first}good until {format_time(manifest.until_ns)}"]
    damage = (
        f"NOT sound: {manifest.damage}. Keep older backups: only the tables of this one can be restored, with "
        "`entrepot restore --tables-only`"
    )
    return [f"{first}its blocks are kept until {format_time(manifest.until_ns)}", damage]
