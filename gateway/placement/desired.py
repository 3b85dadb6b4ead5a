"""Which backends should hold a block. Pure: no clock, no I/O, no journal.

A policy's `keep` lists them. A backend that drains or is lost is left out, and no other backend replaces it: the block
is kept on the rest of the policy's backends. The answer never leaves a block without a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from gateway.topology import DEFAULT, Topology


class StoredBlock(NamedTuple):
    """The properties of a block that decide where it should be held."""

    policy: str
    """The policy under which it was written."""
    held: frozenset[str]
    """The names of the backends that hold it."""


def desired(block: StoredBlock, topology: Topology, lost: Collection[str] = frozenset()) -> frozenset[str]:
    """Return the names of the backends that should hold *block*. *lost*: those whose copies are permanently lost. The
    result is empty only if every copy is lost and no backend could hold another one.

    If the config no longer has the block's policy, the block stays where it is. The same holds if the policy leaves no
    backend: such a config would be refused, so backends must have been lost since it was loaded."""
    for names in _keep_choices(block, topology):
        usable = frozenset(name for name in names if name not in lost and not topology.backends[name].drain)
        if usable:
            return usable
    return block.held.difference(lost)


def _keep_choices(block: StoredBlock, topology: Topology) -> Iterator[Collection[str]]:
    """Yield the lists of backends to keep, in order of preference. The first one with a usable backend counts.

    For a known policy that is its `keep` alone. For an unknown policy these are the block's present backends and then,
    since all of these may drain, the `keep` of the policy `default`."""
    policy = topology.policies.get(block.policy)
    if policy is not None:
        yield policy.keep
        return
    yield [name for name in block.held if name in topology.backends]
    if DEFAULT in topology.policies:
        yield topology.policies[DEFAULT].keep
