"""What should be: the copies that a policy asks for. Pure: no clock, no I/O, no journal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from gateway.topology import Policy, Topology


class PlacedBackend(NamedTuple):
    """A backend as placement sees it."""

    id: int
    """As interned in the journal."""
    name: str
    cluster: str


def placed_backends(topology: Topology, ids: Mapping[str, int]) -> dict[str, PlacedBackend]:
    """Every backend of a sound *topology* by its name; *ids* are the journal's."""
    return {name: PlacedBackend(ids[name], name, backend.cluster) for name, backend in topology.backends.items()}


# ---- what was given up ----------------------------------------------------------------------------------------------


def acked_on(policy: Policy, topology: Topology, lost: Collection[str]) -> tuple[str, ...]:
    """Where a write of *policy* goes at once: nothing new is put on what is *lost*."""
    return tuple(name for name in topology.acked_on(policy) if name not in lost)


def unmet(policy: Policy, topology: Topology, lost: Collection[str]) -> str:
    """Why writes of *policy* cannot be answered, since a backend whose copy they await is *lost*; empty if they can."""
    missing = [name for name in topology.acked_on(policy) if name in lost]
    needed = topology.copies_before_answer(policy)
    if not missing or len(acked_on(policy, topology, lost)) >= needed:
        return ""
    these = f"{' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} lost"
    return f"policy {policy.name!r} awaits copies on {these}: name others in its ack, and reload"


def remarks(topology: Topology, lost: Collection[str]) -> Iterator[str]:
    """What people should change in the config since backends are *lost*, for each policy that names one."""
    for policy in topology.policies.values():
        named = [name for name in topology.backends if name in lost and name in {*policy.ack, *policy.keep}]
        why = unmet(policy, topology, lost)
        if why:
            yield f"writes are refused: {why}"
        elif named:
            yield f"policy {policy.name!r} names {' and '.join(named)}, lost for good: nothing is put there any more"
