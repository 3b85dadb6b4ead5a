"""The results of `entrepot fsck` and `entrepot gc` as JSON and as text."""

from __future__ import annotations

from typing import Any

from gateway.blocks.fsck.findings import FsckReport, Severity
from gateway.blocks.maintenance.gc import Waste

_CONCLUSIONS = {
    Severity.NONE: "clean",
    Severity.WASTE: "sound; some space is wasted",
    Severity.UNCHECKED: "sound as far as it was checked, but NOT everything could be checked",
    Severity.WRONG: "NOT sound",
}
"""The last line of the text of `fsck`, by the worst finding."""


def fsck_to_dict(report: FsckReport) -> dict[str, Any]:
    """Return *report* as plain values, for JSON."""
    return {
        "status": "clean" if report.worst is Severity.NONE else report.worst.name.lower(),
        "kinds": dict(report.kinds),
        "looked_at": dict(report.counted),
        "unchecked": report.unchecked,
        "to_mend": len(report.to_mend),
        "findings": [{**each._asdict(), "severity": each.severity.name.lower()} for each in report.findings],
    }


def fsck_to_text(report: FsckReport) -> list[str]:
    """Return *report* as lines for people. The report counts more findings than it contains if there are many."""
    lines = [f"{each.severity.name.lower()}: {each.kind}: {each.where}: {each.what}" for each in report.findings]
    more = report.kinds.total() - len(report.findings)
    if more:
        lines.append(f"and {more} more")
    if report.to_mend:
        lines.append(f"copies that the keeper repairs while the site is served: {len(report.to_mend)}")
    checked = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in sorted(report.counted.items()))
    return [*lines, f"checked {checked}", _CONCLUSIONS[report.worst]]


def waste_to_dict(waste: Waste) -> dict[str, Any]:
    """Return *waste* as plain values, for JSON."""
    return {
        "freed": waste.freed,
        "blocks": {state.value: count for state, count in waste.blocks.items()},
        "bytes": {state.value: size for state, size in waste.bytes.items()},
        "sparse_blocks": waste.sparse_blocks,
        "sparse_bytes": waste.sparse_bytes,
        "unchecked": dict(waste.unchecked),
    }


def waste_to_text(waste: Waste, *, dry_run: bool) -> list[str]:
    """Return *waste* as lines for people. With *dry_run* it is what `gc` would delete, otherwise what is left."""
    prefix = "would be deleted" if dry_run else "left"
    lines = [
        f"{prefix}: {count} {state.value} block(s), {waste.bytes[state]} bytes" for state, count in waste.blocks.items()
    ]
    lines += [f"not listed completely: {name}: {why}" for name, why in waste.unchecked.items()]
    lines.append(f"{prefix}: the contents of {waste.freed} deleted file(s), part(s) or upload(s)")
    lines.append(f"{prefix}: {waste.sparse_bytes} dead bytes in {waste.sparse_blocks} pack(s) that are to be rewritten")
    return lines
