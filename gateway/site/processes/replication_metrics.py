"""How the site stands, as metrics: counted by the keeper every so often, since it looks at all blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.metrics import gauge
from gateway.site import replication_status

if TYPE_CHECKING:
    from gateway.site.site import Site

HELD = gauge("entrepot_backend_blocks", "Blocks that the journal has on a backend.", ("backend",))
HELD_BYTES = gauge("entrepot_backend_held_bytes", "Sealed bytes of those.", ("backend",))
BEHIND = gauge("entrepot_copies_backlog", "Blocks that do not lie where they should.", ("kind",))
OLDEST = gauge("entrepot_copies_oldest_seconds", "For how long the oldest of those has not.", ("kind",))
POINT = gauge("entrepot_policy_behind_seconds", "How far a policy is behind what it keeps.", ("policy",))
LATE = gauge("entrepot_policy_late", "1: that is longer than its within_seconds.", ("policy",))


async def count_copies(site: Site) -> None:
    """For ever."""
    while True:
        found = await replication_status.read_status(site.journal_path, site.storage.topology, site.timing.clock)
        tell(found, list(site.storage.topology.policies))
        await site.timing.clock.sleep(site.timing.probes.copies_seconds)


def tell(found: replication_status.ReplicationStatus, policies: list[str]) -> None:
    """Bring *found* to the metrics. What is not behind stands at 0, so that an alarm ends."""
    HELD.only({use.name: use.blocks for use in found.backends})
    HELD_BYTES.only({use.name: use.bytes for use in found.backends})
    kinds = dict.fromkeys(replication_status.KINDS, 0.0)
    BEHIND.only(kinds | {each.kind: each.blocks for each in found.backlog})
    OLDEST.only(kinds | {each.kind: each.oldest_seconds for each in found.backlog})
    none = dict.fromkeys(policies, 0.0)
    POINT.only(none | {each.policy: each.oldest_seconds for each in found.points})
    LATE.only(none | {each.policy: float(each.late) for each in found.points})
