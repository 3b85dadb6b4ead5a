"""The result of `entrepot backend claim` as JSON and as text."""

from __future__ import annotations

from typing import Any

from gateway.site.admin.claim_backend import ClaimResult


def to_dict(result: ClaimResult) -> dict[str, Any]:
    """Return *result* as plain values, for JSON."""
    return {
        "backend": result.backend,
        "claimed": result.claimed,
        "before": result.previous_incarnation,
        "looked_for": result.expected_blocks,
        "there": result.present_blocks,
    }


def to_text(result: ClaimResult) -> list[str]:
    """Return *result* as lines for people."""
    if not result.claimed:
        first = f"backend {result.backend} has this site's marker already: nothing was done"
    else:
        before = result.previous_incarnation
        instead = f", instead of that of incarnation {before}" if before else ""
        first = f"backend {result.backend} has this site's marker again{instead}: writes resume within seconds"
    if not result.expected_blocks:
        return [first, "the journal has no blocks on it"]
    hint = (
        ""
        if result.present_blocks == result.expected_blocks
        else "; `entrepot fsck --mend` finds and repairs the others"
    )
    return [first, f"{result.present_blocks} of {result.expected_blocks} sampled blocks are there{hint}"]
