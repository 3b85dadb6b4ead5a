"""In which order a reader tries the copies of a block. Pure: what is expected and what is broken come as values."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

EXPLORED = 0.01
"""The share of reads that begin with another copy than the best one, so that what was measured long ago is measured
again."""


class Candidate(NamedTuple):
    """A copy, as a reader sees the way to it."""

    id: int
    """The backend's, as interned in the journal."""
    near: bool
    """It stands in the reader's cluster."""
    expected_s: float
    price_per_gib: float
    broken: bool


def read_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The copies to try, best first: near, then fast, then cheap; broken ones last, for they may be all there is.
    Ties go by id, so the order is always the same."""
    return sorted(
        candidates,
        key=lambda candidate: (
            candidate.broken,
            not candidate.near,
            candidate.expected_s,
            candidate.price_per_gib,
            candidate.id,
        ),
    )


def explore(order: list[Candidate], chance: Random) -> list[Candidate]:
    """*order* itself, or now and then with another copy in front that is as near as the first and not broken: nobody
    crosses a line just to find out how fast it is."""
    if len(order) < 2 or chance.random() >= EXPLORED:
        return order
    first = order[0]
    others = [each for each in order[1:] if each.near == first.near and not each.broken]
    if not others:
        return order
    chosen = chance.choice(others)
    return [chosen, *(each for each in order if each is not chosen)]
