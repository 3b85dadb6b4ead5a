"""Packs: small bodies that arrive while others are under way are stored together as the next one.

Each pack costs much the same, whatever is in it: a value on every backend, a row, a copy elsewhere. So a pack leaves
at once where nothing else is under way (one client alone never waits), and where as many bodies wait as are under
way: with many clients packs become large by themselves, and with few they wait for nobody. Under way is a body until
its command was answered, for until then its client will not send the next one. Bodies that are large together leave
without that, since their bytes cost more than their pack; and after `gather_seconds` whoever waits leaves as soon as
there is room, however slow those before it are.

A pack has one stamp: one tenant's ring key, one policy.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from backends.base import Buffer
from gateway.blocks.types import BLOCK_BYTES
from gateway.blocks.write.block_put import BlockRef
from gateway.journal.columns import Extent

WORTH_BYTES = 1 << 20
"""Bodies of so many plain bytes are worth a pack of their own."""


class StoredExtent(NamedTuple):
    """A stored stretch of a body: where it lies, and the stake in its block."""

    extent: Extent
    block_ref: BlockRef


class PackMember:
    """A small body, or the small end of a large one, on its way into a pack."""

    __slots__ = ("buffers", "done", "size")

    def __init__(self, buffers: Sequence[Buffer], size: int, done: asyncio.Future[StoredExtent]) -> None:
        self.buffers = buffers
        """Emptied once sealed."""
        self.size = size
        """Plain bytes."""
        self.done = done
        """Cancelled when who waited went away."""


Settled = Callable[[], None]
StorePack = Callable[[Sequence[PackMember], Settled], Awaitable[Sequence[StoredExtent]]]


class Packer:
    """The packs of one stamp. For one event loop."""

    def __init__(self, store: StorePack, flights: int, gather_seconds: float) -> None:
        """*store* seals and places a pack; unless it raises, it sees to it that the function that it is handed is
        called once all members have said how their command went. At most *flights* packs are being stored at once.
        *gather_seconds*: how long others are waited for, at most, from when bodies began to wait or others left before
        them."""
        self._store = store
        self._flights = flights
        self._gather_seconds = gather_seconds
        self._waiting: deque[PackMember] = deque()
        self._waiting_bytes = 0
        self._flying: set[asyncio.Task[None]] = set()
        self._under_way = 0
        """Bodies in packs that are being stored, or of which somebody has yet to say how it went."""
        self._turn: asyncio.Handle | None = None
        self._patience: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._flying

    async def add(self, buffers: Sequence[Buffer], size: int) -> StoredExtent:
        """Store *buffers*, together with whatever else comes. Raises what `place` raises."""
        loop = asyncio.get_running_loop()
        member = PackMember(buffers, size, loop.create_future())
        self._waiting.append(member)
        self._waiting_bytes += size
        if self._turn is None:
            # at the end of this turn of the loop, so that all requests that became ready with us come along
            self._turn = loop.call_soon(self._end_of_turn)
        try:
            return await member.done
        except asyncio.CancelledError:
            self._forsake(member)
            raise

    async def drain(self) -> None:
        """Wait until nothing is on its way."""
        while not self.idle:
            self._launch(impatient=True)
            if self._flying:
                await asyncio.wait(self._flying)

    def _forsake(self, member: PackMember) -> None:
        if member in self._waiting:
            self._waiting.remove(member)
            self._waiting_bytes -= member.size
        elif not member.done.cancelled() and member.done.exception() is None:
            member.done.result().block_ref.abort()

    # ---- when a pack leaves -------------------------------------------------------------------------------------

    def _end_of_turn(self) -> None:
        self._turn = None
        self._launch()

    def _out_of_patience(self) -> None:
        self._patience = None
        self._launch(impatient=True)

    def _launch(self, *, impatient: bool = False) -> None:
        """Let packs leave for as long as one should; *impatient*: or there is room."""
        while self._waiting and len(self._flying) < self._flights and (impatient or self._worth_a_pack()):
            self._send_off(self._next_pack())
        if self._waiting and self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(self._gather_seconds, self._out_of_patience)

    def _worth_a_pack(self) -> bool:
        return len(self._waiting) >= self._under_way or self._waiting_bytes >= WORTH_BYTES

    def _next_pack(self) -> list[PackMember]:
        pack = [self._waiting.popleft()]
        size = pack[0].size
        while self._waiting and size + self._waiting[0].size <= BLOCK_BYTES:
            size += self._waiting[0].size
            pack.append(self._waiting.popleft())
        self._waiting_bytes -= size
        return pack

    def _send_off(self, pack: Sequence[PackMember]) -> None:
        if self._patience is not None:  # those who are left behind came later
            self._patience.cancel()
            self._patience = None
        self._under_way += len(pack)
        flight = asyncio.create_task(self._fly(pack))
        self._flying.add(flight)
        flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flying.discard(flight)
        self._launch()

    # ---- a pack on its way --------------------------------------------------------------------------------------

    async def _fly(self, pack: Sequence[PackMember]) -> None:
        def settled() -> None:
            self._under_way -= len(pack)
            self._launch()

        try:
            cuts = await self._store(pack, settled)
        except asyncio.CancelledError:
            settled()
            for member in pack:
                member.done.cancel()
            raise
        except Exception as error:  # noqa: BLE001 (each of those who wait gets it)
            settled()
            for member in pack:
                if not member.done.done():
                    member.done.set_exception(error)
            return
        for member, cut in zip(pack, cuts, strict=True):
            if member.done.done():
                cut.block_ref.abort()
            else:
                member.done.set_result(cut)
