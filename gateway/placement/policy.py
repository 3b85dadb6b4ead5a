"""Where the copies of a policy's writes go, and which policies suffer from lost backends. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from gateway.topology import Policy, Topology


class PlacedBackend(NamedTuple):
    """A backend and the cluster that it is in."""

    id: int
    """The journal's id."""
    name: str
    cluster: str


def placed_backends(topology: Topology, ids: Mapping[str, int]) -> dict[str, PlacedBackend]:
    """Return every backend of a valid *topology* by name. *ids* maps their names to the journal's ids."""
    return {name: PlacedBackend(ids[name], name, backend.cluster) for name, backend in topology.backends.items()}


# ---- lost backends --------------------------------------------------------------------------------------------------


def acked_on(policy: Policy, topology: Topology, lost: Collection[str]) -> tuple[str, ...]:
    """Return the names of the backends that a write of *policy* goes to before it is answered, without *lost* ones."""
    return tuple(name for name in topology.acked_on(policy) if name not in lost)


def unmet(policy: Policy, topology: Topology, lost: Collection[str]) -> str:
    """Return why writes of *policy* must be refused, since they await copies on *lost* backends; empty if they need
    not."""
    missing = [name for name in topology.acked_on(policy) if name in lost]
    needed = topology.copies_before_answer(policy)
    if not missing or len(acked_on(policy, topology, lost)) >= needed:
        return ""
    names = f"{' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} lost"
    return f"policy {policy.name!r} awaits copies on {names}: name others in its ack, and reload"


def remarks(topology: Topology, lost: Collection[str]) -> Iterator[str]:
    """Yield, for each policy that names a *lost* backend, what the operator should change in the config."""
    for policy in topology.policies.values():
        named = [name for name in topology.backends if name in lost and name in {*policy.ack, *policy.keep}]
        why = unmet(policy, topology, lost)
        if why:
            yield f"writes are refused: {why}"
        elif named:
            yield f"policy {policy.name!r} names {' and '.join(named)}, lost for good: nothing is put there any more"
