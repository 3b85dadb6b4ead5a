"""The result of `entrepot restore` as JSON and as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.cli.output import format_time
from gateway.site.admin.lost_objects import Losses
from gateway.site.admin.restore import RestoredSite

OBJECTS_MAX = 20
"""How many objects that cannot be read are printed by name. JSON contains more of them."""


def to_dict(restored: RestoredSite, folder: Path, *, aged: bool) -> dict[str, Any]:
    """Return the site restored in *folder* as plain values, for JSON. *aged*: whether the backup is older than the time
    for which its blocks were kept."""
    lost = None if restored.lost is None else restored.lost._asdict()
    return {"folder": str(folder), **restored._asdict(), "lost": lost, "aged": aged}


def to_text(restored: RestoredSite, folder: Path, *, aged: bool) -> list[str]:
    """Return the same as lines for people."""
    lines = [f"restored site {restored.site} in {folder}, incarnation {restored.incarnation}"]
    if restored.keeps_newer_until_ns is not None:
        until = format_time(restored.keeps_newer_until_ns)
        lines.append(
            f"it deletes nothing before {until}, so that a newer backup can still be restored; "
            f"`entrepot gc {folder} --drop-newer` ends that"
        )
    lines += [
        f"{setting} is {path} in the backup; the restored site uses a path inside {folder}"
        for setting, path in restored.moved.items()
    ]
    lines += [f"backend {name} was NOT claimed, and gets no writes: {why}" for name, why in restored.unclaimed.items()]
    if restored.lost is not None:
        lines += _losses(restored.lost, folder)
    lines += restored.remarks
    if restored.unverified:
        lines.append(restored.unverified)
    if aged:
        lines.append(
            f"its blocks were kept until {format_time(restored.until_ns)} only: `entrepot fsck {folder}` reports "
            "which are missing"
        )
    return lines


def _losses(lost: Losses, folder: Path) -> list[str]:
    """Return what cannot be read without the backends that were given up."""
    lines = [f"{lost.backend} counts as lost for good: nothing is read or stored there any more"]
    lines += [f"{name} cannot be read" for name in lost.objects[:OBJECTS_MAX]]
    count = len(lost.objects) + lost.more
    if count > OBJECTS_MAX:
        lines.append(f"and {count - OBJECTS_MAX} more, which `entrepot backend lost NAME --site {folder}` lists")
    lines.append(
        f"{count} object(s) cannot be read: {lost.blocks} block(s), {lost.bytes} bytes had their only copy there"
    )
    if lost.unchecked:
        lines.append(
            f"{lost.unchecked} block(s) that were stored there have other copies, according to the journal. "
            f"`entrepot fsck {folder}` checks these. When the site is served, it makes the copies that its policies "
            "require from them"
        )
    return lines
