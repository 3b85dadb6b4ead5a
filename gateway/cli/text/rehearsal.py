"""The rehearsal of a restore, and the plan of one that takes over, as JSON and as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.cli.output import format_time
from gateway.site.admin.rehearse import RehearsedSite
from gateway.site.admin.takeover_plan import BackendUse, TakeoverPlan


def rehearsed_to_dict(rehearsed: RehearsedSite, folder: Path) -> dict[str, Any]:
    """Return the rehearsal in *folder* as plain values, for JSON."""
    return {
        "folder": str(folder),
        "rehearsal": True,
        **rehearsed._asdict(),
        "backends": [use._asdict() for use in rehearsed.backends],
    }


def rehearsed_to_text(rehearsed: RehearsedSite, folder: Path, now_ns: int) -> list[str]:
    """Return the same as lines for people."""
    as_of = f"as of {format_time(rehearsed.made_ns)}, {rehearsed.number} records"
    lines = [f"rehearsal of site {rehearsed.site} in {folder}: read-only, {as_of}"]
    lines += [_use(use, now_ns, rehearsed.incarnation) for use in rehearsed.backends]
    if any(use.why for use in rehearsed.backends):
        lines.append("what is on these backends alone cannot be read in the rehearsal")
    if now_ns > rehearsed.until_ns:
        lines.append(f"the original kept the blocks of this backup until {format_time(rehearsed.until_ns)} only")
    return [
        *lines,
        f"check it: entrepot fsck {folder} --read",
        f"read from it: entrepot serve {folder}",
        "replace the original: entrepot restore --take-over, with another DIR",
    ]


def plan_to_dict(plan: TakeoverPlan, keep_newer_days: float) -> dict[str, Any]:
    """Return *plan* as plain values, for JSON."""
    return {
        "done": False,
        **plan._asdict(),
        "newer_records": plan.newer_records,
        "keep_newer_days": keep_newer_days,
        "backends": [use._asdict() for use in plan.backends],
        "newer": [each._asdict() for each in plan.newer],
    }


def plan_to_text(plan: TakeoverPlan, now_ns: int, keep_newer_days: float) -> list[str]:
    """Return the same as lines for people. *keep_newer_days*: for how long newer data would be kept."""
    if plan.refused:
        return [f"nothing was done. With --yes it would be refused: {plan.refused}"]
    state = f"its state at {format_time(plan.made_ns)}, {plan.number} records"
    lines = [
        "nothing was done. With --yes:",
        f"site {plan.site} is restored to {state}, in a new incarnation",
        "whoever uses its backends now stops within seconds, and does not start again",
    ]
    for use in plan.backends:
        if use.backend in plan.without:
            lines.append(f"backend {use.backend} is given up for good (--without), which cannot be undone")
        else:
            lines.append(_use(use, now_ns, plan.incarnation))
    lines += _newer(plan)
    kept = f"kept for {keep_newer_days:g} days" if keep_newer_days else "deleted by `entrepot gc`"
    return [
        *lines,
        f"what was written after the backup is not in the restored site, and is {kept}",
        "to lose nothing, back up the folder of the site that uses the backends now, and restore that backup",
    ]


def _newer(plan: TakeoverPlan) -> list[str]:
    """Return what is known of data that is newer than the backup."""
    last, lines = plan.last_stamp, []
    if last is not None:
        lines.append(
            f"at {format_time(last.stamped_ns)} the original had {plan.newer_records} record(s) that are not in this "
            "backup. What it wrote later cannot be seen from here"
        )
    else:
        lines.append("it cannot be seen from here how many newer records there are")
    for newer in plan.newer:
        more = f", and perhaps more: {newer.why}" if newer.why else ""
        lines.append(
            f"backend {newer.backend} has {newer.blocks} block(s), {newer.bytes} bytes, that this backup does not "
            f"name{more}"
        )
    lines.append("newer small values may be in the journal of the original only, and are not counted")
    return lines


def _use(use: BackendUse, now_ns: int, incarnation: int) -> str:
    """Return a line on *use*. *incarnation*: the backup's."""
    if use.why:
        return f"backend {use.backend} cannot be read: {use.why}"
    line = f"backend {use.backend} is used in incarnation {use.incarnation}"
    if use.incarnation > incarnation:
        line += f", later than the backup's ({incarnation})"
    if not use.stamped_ns:
        return line
    seconds = max(0, now_ns - use.stamped_ns) / 1e9
    return (
        f"{line}, and was stamped last at {format_time(use.stamped_ns)} ({seconds:.0f} s ago), which does not say "
        "whether the site is served now"
    )
