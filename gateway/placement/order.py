"""In which order a reader tries the copies of a block. Pure: the lines and what is broken come as values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gateway.placement.policy import Place


@dataclass(frozen=True, slots=True)
class Line:
    """A dedicated line between two clusters."""

    latency_s: float
    bytes_per_s: float
    price_per_gib: float


LineTable = Mapping[frozenset[str], Line]
"""Lines by the two clusters that they join."""

BLOCK_BYTES = 8 << 20  # what an expected time is reckoned for


def read_order(
    copies: Iterable[Place], reader_cluster: str, lines: LineTable, broken: Collection[int] = ()
) -> list[Place]:
    """The copies to try, best first: near, then fast, then cheap; those without a line behind them; *broken* ones
    (backends' ids) last, for they may be all there is. Ties go by id, so the order is always the same."""

    def cost(place: Place) -> tuple[bool, bool, float, float, int]:
        if place.cluster == reader_cluster:
            return (place.id in broken, False, 0.0, 0.0, place.id)
        line = lines.get(frozenset((place.cluster, reader_cluster)))
        if line is None:
            return (place.id in broken, True, 0.0, 0.0, place.id)
        expected_s = line.latency_s + BLOCK_BYTES / line.bytes_per_s
        return (place.id in broken, False, expected_s, line.price_per_gib, place.id)

    return sorted(copies, key=cost)
