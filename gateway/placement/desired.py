"""What should be: the copies that a block ought to have, and until when that holds. Pure: no clock, no I/O, no journal.

A policy's `keep` says which. A backend that drains, or is lost, gets nothing and is replaced by nothing: the policy's
others are what is kept. Nothing is ever asked to go where that would leave a block without a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from gateway.topology import DEFAULT, Topology

FOR_EVER_NS = (1 << 63) - 1
"""Until when what time does not change holds."""


class StoredBlock(NamedTuple):
    """What is known of a block."""

    policy: str
    """The policy under which it was written."""
    size: int
    """Sealed bytes."""
    held: frozenset[str]
    """The backends that hold it, by name."""
    since_ns: int = 0
    """Since when it has been there; 0 where nobody knows."""


class Desired(NamedTuple):
    """What should be."""

    backends: frozenset[str]
    """By name; empty only where every copy is lost and nothing could hold another."""
    until_ns: int
    """When it has to be asked again, if nothing else changes."""


def desired(facts: StoredBlock, topology: Topology, now_ns: int, lost: Collection[str] = frozenset()) -> Desired:
    """The backends that should hold a block, by name. *lost*: those whose copies are gone for good.

    A policy that the config no longer has keeps what there is. So does one that could keep nothing: its config would be
    refused, but for what was lost since."""
    for wished in _keep_choices(facts, topology):
        found = frozenset(name for name in wished if name not in lost and not topology.backends[name].drain)
        if found:
            return Desired(found, FOR_EVER_NS)
    return Desired(facts.held.difference(lost), FOR_EVER_NS)


def _keep_choices(facts: StoredBlock, topology: Topology) -> Iterator[Collection[str]]:
    """What to keep, the first that anything is left of: what the policy says; for one that is not known, what is held,
    and if all of that drains, what the policy `default` says."""
    policy = topology.policies.get(facts.policy)
    if policy is not None:
        yield policy.keep
        return
    yield [name for name in facts.held if name in topology.backends]
    if DEFAULT in topology.policies:
        yield topology.policies[DEFAULT].keep
