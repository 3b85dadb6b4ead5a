"""The result of `entrepot takeover` as JSON and as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.cli.output import format_time
from gateway.site.admin.takeover import BackendStamp, HistoryComparison


def to_dict(comparison: HistoryComparison) -> dict[str, Any]:
    """Return *comparison* as plain values, for JSON."""
    return {
        "parted": comparison.diverged,
        "common": comparison.common,
        "common_ns": comparison.common_ns,
        "exact": comparison.exact,
        "ours": comparison.own_records,
        "theirs": comparison.other_records,
        "keys": comparison.touched,
        "more": comparison.more,
        "backends": [each._asdict() for each in comparison.backends],
        "counter": comparison.counter,
    }


def to_text(comparison: HistoryComparison, folder: Path) -> list[str]:
    """Return *comparison* of the site in *folder* as lines for people."""
    lines = [_stamp(each) for each in comparison.backends]
    if not comparison.diverged:
        return [*lines, "the backends have this folder's own history: there is nothing to take over"]
    about = "" if comparison.exact else "about "
    lines += [
        f"the two histories diverge after {about}record {comparison.common}, of {format_time(comparison.common_ns)}",
        f"this folder has {comparison.own_records} record(s) after it, the other {comparison.other_records} or more",
    ]
    lines += [f"touched in this folder since: {address}" for address in comparison.touched]
    lines += ["and others"] if comparison.more else []
    if comparison.counter:
        lines.append(
            f"this folder has taken over, with token {comparison.counter}: start it with `entrepot serve {folder}`"
        )
    else:
        lines.append(
            f"nothing was changed. With `entrepot takeover {folder} --yes` this folder takes over: the other copy "
            "ends, and its records since then stay in its own folder"
        )
    return lines


def _stamp(stamp: BackendStamp) -> str:
    match stamp.state:
        case "away":
            return f"backend {stamp.backend}: cannot be used: {stamp.why}"
        case "unstamped":
            return f"backend {stamp.backend}: no committer has stamped it"
        case _:
            whose = "this folder's history" if stamp.state == "ours" else "ANOTHER history"
            stamped = format_time(stamp.at_ns)
            return f"backend {stamp.backend}: {whose}, token {stamp.counter}, record {stamp.number}, {stamped}"
