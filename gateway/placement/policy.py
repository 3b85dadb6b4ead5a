"""What should be: the copies that a policy asks for. Pure: no clock, no I/O, no journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.topology import Policy, Topology


class Place(NamedTuple):
    """A backend as placement sees it."""

    id: int
    """As interned in the journal."""
    name: str
    cluster: str


def places(topology: Topology, ids: Mapping[str, int]) -> dict[str, Place]:
    """Every backend of a sound *topology* by its name; *ids* are the journal's."""
    return {name: Place(ids[name], name, backend.cluster) for name, backend in topology.backends.items()}


def targets(policy: Policy, topology: Topology, known: Mapping[str, Place]) -> tuple[Place, ...]:
    """Where a block of *policy* is put when it is written here, ascending by id: an interned set's order."""
    return tuple(sorted(known[name] for name in topology.acked_on(policy)))
