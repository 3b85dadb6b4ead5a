"""Which copies a change of the config would make and drop, over which lines, and at what price. Pure.

The keeper makes copies: it reads a copy from the cheapest backend that has one, and puts it on the backend that should.
So a copy crosses the line from the source's cluster to the keeper's, and the one from there to the target's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from gateway.placement.desired import StoredBlock, desired
from gateway.topology import Line, Topology


class BlockGroup(NamedTuple):
    """Blocks of the same policy that are held by the same backends."""

    block: StoredBlock
    blocks: int
    bytes: int
    """Sealed."""


class Copies(NamedTuple):
    """Copies of one kind that would be made or dropped on one backend."""

    backend: str
    source: str
    """The backend that they would be read from; empty for copies that would be dropped."""
    copies: int
    bytes: int
    lines: tuple[str, ...]
    """The lines that they would cross, each as `CLUSTER-CLUSTER`."""
    price: float
    """What the lines cost, in the currency of the config."""


class Movement(NamedTuple):
    makes: tuple[Copies, ...]
    drops: tuple[Copies, ...]

    @property
    def price(self) -> float:
        """The price of all copies together."""
        return sum(each.price for each in self.makes)


def movement(groups: Iterable[BlockGroup], topology: Topology, lost: Collection[str]) -> Movement:
    """Return the copies that the keeper would make and drop, so that each block is where *topology* wants it. *lost*:
    the backends that were given up."""
    makes: dict[tuple[str, str], list[int]] = {}
    drops: dict[tuple[str, str], list[int]] = {}
    for group in groups:
        wanted, held = desired(group.block, topology, lost), group.block.held.difference(lost)
        for backend in wanted - held:
            _count(makes, (backend, _source(held, topology)), group)
        for backend in held - wanted:
            _count(drops, (backend, ""), group)
    return Movement(_copies(makes, topology), _copies(drops, topology))


def _count(counts: dict[tuple[str, str], list[int]], key: tuple[str, str], group: BlockGroup) -> None:
    count = counts.setdefault(key, [0, 0])
    count[0] += group.blocks
    count[1] += group.bytes


def _source(held: Collection[str], topology: Topology) -> str:
    """Return the backend in *held* that is read from at the lowest price; empty if the config names none of them."""
    known = sorted(name for name in held if name in topology.backends)
    return min(known, key=lambda name: _price_per_gib(_crossed(topology, name)), default="")


def _crossed(topology: Topology, backend: str) -> tuple[Line, ...]:
    """Return the line between the keeper's cluster and *backend*; none if it is in the same cluster."""
    clusters = frozenset({topology.home, topology.backends[backend].cluster})
    line = topology.lines.get(clusters)
    return () if line is None else (line,)


def _price_per_gib(lines: Iterable[Line]) -> float:
    return sum(line.price_per_gib for line in lines)


def _copies(counts: dict[tuple[str, str], list[int]], topology: Topology) -> tuple[Copies, ...]:
    found = []
    for (backend, source), (copies, size) in sorted(counts.items()):
        crossed = (*_crossed(topology, source), *_crossed(topology, backend)) if source else ()
        names = tuple("-".join(sorted(line.clusters)) for line in crossed)
        found.append(Copies(backend, source, copies, size, names, _price_per_gib(crossed) * size / (1 << 30)))
    return tuple(found)
