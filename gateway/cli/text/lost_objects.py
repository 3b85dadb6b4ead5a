"""The result of `entrepot backend lost` as JSON and as text."""

from __future__ import annotations

from typing import Any

from gateway.site.admin.lost_objects import Losses


def to_dict(losses: Losses) -> dict[str, Any]:
    """Return *losses* as plain values, for JSON."""
    return losses._asdict()


def to_text(losses: Losses) -> list[str]:
    """Return *losses* as lines for people."""
    lines = [*losses.objects, *([f"and {losses.more} more"] if losses.more else [])]
    if not losses.backend:
        return [*lines, f"{losses.blocks} block(s), {losses.bytes} bytes have no good copy left"]
    lines.append(f"{losses.blocks} block(s), {losses.bytes} bytes have their only copy on {losses.backend}")
    lines += _other_copies(losses)
    if losses.forgotten:
        lines.append(
            f"copies on {losses.backend} count as deleted; `entrepot status` reports when the others are complete"
        )
    elif not losses.blocks and not losses.unchecked:
        lines.append("nothing would be lost with it")
    return lines


def _other_copies(losses: Losses) -> list[str]:
    """Return what is known of the copies that the journal names on other backends."""
    lines = []
    if losses.absent:
        lines.append(
            f"{losses.absent} of these should have another copy, according to the journal, but it was not found: "
            f"`entrepot fsck --mend` makes such copies again while {losses.backend} can be read"
        )
    if losses.present:
        lines.append(f"{losses.present} block(s) on {losses.backend} have another copy, which was found")
    lines += losses.away
    if losses.unchecked:
        lines.append(
            f"{losses.unchecked} block(s) on {losses.backend} have another copy according to the journal, which was "
            "not checked: they may be lost, too"
        )
    return lines
