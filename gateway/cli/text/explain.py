"""The result of `entrepot explain` as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.site.admin.explain import EXTENTS_MAX, Explanation, StoredBlocks, WriteTarget
from gateway.site.storage.backend_trouble import CombinedTrouble


def to_dict(explanation: Explanation, troubles: Mapping[str, CombinedTrouble]) -> dict[str, Any]:
    """Return *explanation* as plain values, for JSON. *troubles*: what is wrong with backends, by name."""
    stored = explanation.stored
    return {
        "address": explanation.address,
        "version": explanation.version,
        "size": explanation.size,
        "delete_marker": explanation.delete_marker,
        "would_go": explanation.target._asdict(),
        "lies": None if stored is None else _stored_dict(stored, explanation.cluster),
        "backend_troubles": {name: trouble.to_dict() for name, trouble in troubles.items()},
    }


def _stored_dict(stored: StoredBlocks, cluster: str) -> dict[str, Any]:
    return {
        "blocks": stored.blocks,
        "only_the_first": stored.truncated,
        "work": stored.work,
        "groups": [
            {
                "blocks": group.blocks,
                "policy": group.policy,
                "on": group.backends,
                "should": group.desired,
                "reads_from": cluster,
                "order": [each._asdict() for each in group.order],
            }
            for group in stored.groups
        ],
    }


def to_text(explanation: Explanation, troubles: Mapping[str, CombinedTrouble]) -> list[str]:
    """Return *explanation* as lines for people. *troubles*: what is wrong with backends, by name."""
    lines = [f"{explanation.address}: {_object(explanation)}", *_target(explanation.target)]
    if explanation.stored is not None:
        lines += _stored(explanation.stored, explanation.cluster, troubles)
    return lines


def _object(explanation: Explanation) -> str:
    if explanation.delete_marker:
        return f"a delete marker (version {explanation.version})"
    if explanation.size is None:
        return "there is no such object"
    version = "" if explanation.version == "null" else f" (version {explanation.version})"
    return f"{explanation.size} bytes{version}"


def _target(target: WriteTarget) -> list[str]:
    size = "in parts" if target.size is None else f"as {target.size} bytes at once"
    first = f"written now {size}: policy {target.policy} ({target.because})"
    if target.refused:
        return [first, f"  refused: {target.refused}"]
    return [
        first,
        f"  acknowledged once {target.ack_copies} of {', '.join(target.ack)} have it",
        f"  kept on {', '.join(target.keep)} within {target.within_seconds:g} s",
    ]


def _stored(stored: StoredBlocks, cluster: str, troubles: Mapping[str, CombinedTrouble]) -> list[str]:
    lines = []
    for group in stored.groups:
        lines.append(f"{group.blocks} block(s) of policy {group.policy}: on {', '.join(group.backends)}")
        if sorted(group.backends) != list(group.desired):
            lines.append(f"  should be on {', '.join(group.desired)}")
        lines.append(f"  read from {cluster}:")
        lines += [
            f"    {n}. {option.backend}: {option.why}"
            + (f"; {troubles[option.backend].to_text()}" if option.backend in troubles else "")
            for n, option in enumerate(group.order, 1)
        ]
    lines += [f"work: {count} block(s) {kind}" for kind, count in stored.work.items()]
    if stored.truncated:
        lines.append(f"(only the first {EXTENTS_MAX} extents were examined)")
    return lines
