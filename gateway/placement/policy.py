"""What should be: the copies that a policy asks for. Pure: no clock, no I/O, no journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Place:
    """A backend as placement sees it."""

    name: str
    id: int
    """As interned in the journal."""
    cluster: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Which copies must exist, by backends' names."""

    name: str
    ack: tuple[str, ...]
    """Before a write is answered. At least one."""
    keep: tuple[str, ...]
    """In the end; those of `ack` among them, or they are dropped again."""


Topology = Mapping[str, Place]
"""The places by their names."""


def targets(policy: Policy, topology: Topology) -> tuple[Place, ...]:
    """Where a block of *policy* is put before the write is answered, ascending by id: an interned set's order.

    Raises `Misconfigured` for a policy without such a place, one that stands twice, or one that nobody knows."""
    check(policy, topology)
    return tuple(sorted((topology[name] for name in policy.ack), key=lambda place: place.id))


def check(policy: Policy, topology: Topology) -> None:
    """Raises `Misconfigured` with the first reason why *policy* cannot be followed."""
    if not policy.ack:
        raise Misconfigured(f"policy {policy.name!r}: `ack` names no backend, so a write would be answered from memory")
    for field, names in (("ack", policy.ack), ("keep", policy.keep)):
        if len(set(names)) < len(names):
            raise Misconfigured(f"policy {policy.name!r}: `{field}` names a backend twice")
        for name in names:
            if name not in topology:
                known = ", ".join(sorted(topology)) or "none"
                raise Misconfigured(f"policy {policy.name!r}: `{field}` names backend {name!r}, but there are: {known}")
