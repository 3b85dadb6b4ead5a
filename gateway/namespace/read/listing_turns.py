"""Reading a page of a listing in turns, so that no page holds the event loop for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from gateway.namespace.read.lookups import Reads

TURNS = 128
"""The most turns of a page. A page that needs more ends early, with at least one item. S3 allows that, and clients
continue after it."""


class Listing(Protocol):
    """A page that is being read, a turn at a time."""

    @property
    def count(self) -> int:
        """Items so far."""

    def turn(self) -> bool:
        """Read the next items. Returns whether the page is complete."""


L = TypeVar("L", bound=Listing)


async def in_turns(reads: Reads, begin: Callable[[Reads], L]) -> L:
    """Return the listing that *begin* makes over a store, read until it is complete or has used `TURNS` turns.

    It reads one snapshot. The first turn reads *reads* itself and is nearly always enough. Otherwise the listing starts
    again on a separate connection and yields to the event loop between turns. It can be cancelled there."""
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
