"""The replication status as metrics. The keeper counts it at intervals, since that reads all blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.metrics import gauge
from gateway.site import replication_status

if TYPE_CHECKING:
    from gateway.site.site import Site

HELD = gauge("entrepot_backend_blocks", "Blocks on a backend, according to the journal.", ("backend",))
HELD_BYTES = gauge("entrepot_backend_held_bytes", "Sealed bytes of those.", ("backend",))
BEHIND = gauge("entrepot_copies_backlog", "Blocks whose copies are not where they should be.", ("kind",))
OLDEST = gauge("entrepot_copies_oldest_seconds", "For how long the oldest of those has waited.", ("kind",))
POINT = gauge(
    "entrepot_policy_behind_seconds",
    "How long the oldest incomplete block of a policy has waited.",
    ("policy",),
)
LATE = gauge("entrepot_policy_late", "1: that is longer than the within_seconds of the policy.", ("policy",))


async def count_copies(site: Site) -> None:
    """Update the metrics at intervals, until cancelled."""
    while True:
        status = await replication_status.read_status(site.journal_path, site.storage.topology, site.timing.clock)
        set_gauges(status, list(site.storage.topology.policies))
        await site.timing.clock.sleep(site.timing.probes.copies_seconds)


def set_gauges(status: replication_status.ReplicationStatus, policies: list[str]) -> None:
    """Set the gauges. What is not behind is set to 0, so that alerts end."""
    HELD.only({use.name: use.blocks for use in status.backends})
    HELD_BYTES.only({use.name: use.bytes for use in status.backends})
    kinds = dict.fromkeys(replication_status.KINDS, 0.0)
    BEHIND.only(kinds | {each.kind: each.blocks for each in status.backlog})
    OLDEST.only(kinds | {each.kind: each.oldest_seconds for each in status.backlog})
    none = dict.fromkeys(policies, 0.0)
    POINT.only(none | {each.policy: each.oldest_seconds for each in status.points})
    LATE.only(none | {each.policy: float(each.late) for each in status.points})
