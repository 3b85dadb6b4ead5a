"""Reading a page of a listing in turns, so that no page holds the event loop for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from gateway.namespace.read.lookups import Reads

TURNS = 128
"""Turns of a page. One that needs more ends early, with at least one item: S3 allows that, and clients go on behind
it."""


class Listing(Protocol):
    """A page that is being read, a turn at a time."""

    @property
    def count(self) -> int:
        """Items so far."""

    def turn(self) -> bool:
        """Read on. Returns whether the page is complete."""


L = TypeVar("L", bound=Listing)


async def in_turns(reads: Reads, begin: Callable[[Reads], L]) -> L:
    """The listing that *begin* makes over a store, read until it is complete, or has used up `TURNS`.

    Whatever it takes, it reads one snapshot. The first turn reads the store itself, and is nearly always enough; where
    it is not, the listing begins again on a connection of its own, and the loop has others' work between its turns. A
    caller that is cancelled stops there."""
    with reads.snapshot():
        listing = begin(reads)
        if listing.turn():
            return listing
    await asyncio.sleep(0)
    async with reads.separate_snapshot() as still:
        listing = begin(still)
        turns = 1
        while not listing.turn() and (turns < TURNS or not listing.count):
            turns += 1
            await asyncio.sleep(0)
    return listing
