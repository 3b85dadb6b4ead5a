"""Packs: small bodies that arrive while packs are being stored are stored together as the next one.

Natural batching, no timer: one body alone is a pack at once; under load a pack holds what came during the last one.
A pack has one stamp: one tenant's ring key, one policy.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from backends.base import Buffer
from gateway.blocks.placing import Stake
from gateway.blocks.values import BLOCK_BYTES
from gateway.journal.packed import Extent


class Cut(NamedTuple):
    """A stored stretch of a body: where it lies, and the stake in its block."""

    extent: Extent
    stake: Stake


class Member:
    """A small body, or the small end of a large one, on its way into a pack."""

    __slots__ = ("buffers", "done", "size")

    def __init__(self, buffers: Sequence[Buffer], size: int, done: asyncio.Future[Cut]) -> None:
        self.buffers = buffers
        """Emptied once sealed."""
        self.size = size
        """Plain bytes."""
        self.done = done
        """Cancelled when who waited went away."""


StorePack = Callable[[Sequence[Member]], Awaitable[Sequence[Cut]]]


class Packer:
    """The packs of one stamp. For one event loop."""

    def __init__(self, store: StorePack, flights: int) -> None:
        """*store* seals and places a pack; at most *flights* are on their way at once."""
        self._store = store
        self._flights = flights
        self._waiting: deque[Member] = deque()
        self._flying: set[asyncio.Task[None]] = set()
        self._scheduled = False

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._flying

    async def add(self, buffers: Sequence[Buffer], size: int) -> Cut:
        """Store *buffers*, together with whatever else comes. Raises what `place` raises."""
        loop = asyncio.get_running_loop()
        member = Member(buffers, size, loop.create_future())
        self._waiting.append(member)
        if not self._scheduled and len(self._flying) < self._flights:
            # at the end of this turn of the loop, so that all requests that became ready with us come along
            self._scheduled = True
            loop.call_soon(self._launch)
        try:
            return await member.done
        except asyncio.CancelledError:
            self._forsake(member)
            raise

    async def drain(self) -> None:
        """Wait until nothing is on its way."""
        while not self.idle:
            if self._flying:
                await asyncio.wait(self._flying)
            else:
                await asyncio.sleep(0)

    def _forsake(self, member: Member) -> None:
        if member in self._waiting:
            self._waiting.remove(member)
        elif not member.done.cancelled() and member.done.exception() is None:
            member.done.result().stake.give_back()

    def _launch(self) -> None:
        self._scheduled = False
        while self._waiting and len(self._flying) < self._flights:
            flight = asyncio.create_task(self._fly(self._next_pack()))
            self._flying.add(flight)
            flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flying.discard(flight)
        self._launch()

    def _next_pack(self) -> list[Member]:
        pack = [self._waiting.popleft()]
        size = pack[0].size
        while self._waiting and size + self._waiting[0].size <= BLOCK_BYTES:
            size += self._waiting[0].size
            pack.append(self._waiting.popleft())
        return pack

    async def _fly(self, pack: Sequence[Member]) -> None:
        try:
            cuts = await self._store(pack)
        except asyncio.CancelledError:
            for member in pack:
                member.done.cancel()
            raise
        except Exception as error:  # noqa: BLE001 (each of those who wait gets it)
            for member in pack:
                if not member.done.done():
                    member.done.set_exception(error)
            return
        for member, cut in zip(pack, cuts, strict=True):
            if member.done.done():
                cut.stake.give_back()
            else:
                member.done.set_result(cut)
