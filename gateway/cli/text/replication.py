"""The replication status of a site as JSON and as text, for `entrepot status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.site.replication_status import ReplicationStatus
from gateway.site.storage.backend_trouble import CombinedTrouble


def to_dict(status: ReplicationStatus) -> dict[str, Any]:
    """Return *status* as plain values, for JSON."""
    return {
        "settled": status.settled,
        "walking": status.walking,
        "placement": [each._asdict() for each in status.backends],
        "backlog": [each._asdict() for each in status.backlog],
        "recovery_points": [each._asdict() for each in status.points],
        "unknown_policies": list(status.unknown_policies),
        "remarks": list(status.remarks),
    }


def to_text(status: ReplicationStatus, troubles: Mapping[str, CombinedTrouble]) -> list[str]:
    """Return *status* as lines for people. *troubles*: what is wrong with backends, by name."""
    lines = [
        f"backend {use.name}: "
        + (f"{troubles[use.name].to_text()}; " if use.name in troubles else "")
        + f"{use.state}, {use.blocks} block(s), {use.bytes} bytes"
        + (f", bytes of {use.leaving} more are being written or deleted" if use.leaving else "")
        + (": it may be taken out of the config" if use.state == "empty" else "")
        for use in status.backends
    ]
    held = {use.name for use in status.backends}
    lines += [f"backend {name}: {trouble.to_text()}" for name, trouble in troubles.items() if name not in held]
    summary = "all are where they should be" if status.settled else "some are not where they should be yet"
    lost = sum(each.blocks for each in status.backlog if each.kind == "lost")
    if lost:
        summary = f"{lost} block(s) are LOST, `entrepot backend lost` names the objects; of the rest, {summary}"
    lines.append(f"copies: {summary}" + (" (all blocks are being examined)" if status.walking else ""))
    lines += [
        f"  {each.kind}: {each.blocks} block(s), {each.bytes} bytes, for {each.oldest_seconds:.0f} s at most"
        for each in status.backlog
    ]
    lines += [
        f"  policy {each.policy}: {each.blocks} block(s) behind, for {each.oldest_seconds:.0f} s at most"
        + (f", LATE: it promises {each.within_seconds:g} s" if each.late else "")
        for each in status.points
    ]
    lines += [f"policy {name} is not in the config: its blocks stay where they are" for name in status.unknown_policies]
    return [*lines, *status.remarks]
