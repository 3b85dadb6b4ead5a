"""The order in which a reader tries the copies of a block. Pure: expected times and health are passed in."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

EXPLORED = 0.01
"""Share of the reads that begin with another copy than the best one, so that old measurements are renewed."""


class Candidate(NamedTuple):
    """A copy that a reader could try."""

    id: int
    """The backend's id in the journal."""
    near: bool
    """Whether the backend is in the reader's cluster."""
    expected_s: float
    price_per_gib: float
    broken: bool


def read_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Sort *candidates*, best first: near, then fast, then cheap. Broken ones come last; they may be the only ones.

    Ties are broken by id, so the order is deterministic."""
    return sorted(
        candidates, key=lambda each: (each.broken, not each.near, each.expected_s, each.price_per_gib, each.id)
    )


def explore(order: list[Candidate], chance: Random) -> list[Candidate]:
    """Return *order*, or in `EXPLORED` of the calls a copy of it with another candidate moved to the front.

    That candidate is as near as the first one and not broken: no read crosses a line only to measure it."""
    if len(order) < 2 or chance.random() >= EXPLORED:
        return order
    first = order[0]
    others = [each for each in order[1:] if each.near == first.near and not each.broken]
    if not others:
        return order
    chosen = chance.choice(others)
    return [chosen, *(each for each in order if each is not chosen)]
