"""Packs: small bodies that arrive while others are being stored are stored together, in one block.

Each pack costs much the same, whatever is in it: a value on every backend, a row, and later a copy elsewhere. So small
bodies are gathered, by these rules:

- A pack starts at once if no other body is undecided (so a lone client never waits), and as soon as at least as many
  bodies wait as are undecided. Then packs become large with many clients, and with few clients nobody waits for others.
  A body is *undecided* from when its pack starts until the outcome of the command that names it is known, since its
  client sends the next body only after that.
- Bodies that together have `PACK_START_BYTES` start without waiting for others, since their bytes cost more than a
  pack.
- After `gather_seconds` the waiting bodies start as soon as a pack may be stored, however slow the packs before it are.

All bodies of a pack have one `WriteContext`: one tenant's ring key, one policy.
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

PACK_START_BYTES = 1 << 20
"""Waiting bodies of this many plain bytes start as a pack, however few they are."""


class StoredExtent(NamedTuple):
    """A stored range of a body, and the reference to the block that it is in."""

    extent: Extent
    block_ref: BlockRef


class PackMember:
    """A small body, or the small end of a large one, that is to be stored in a pack."""

    __slots__ = ("buffers", "done", "size")

    def __init__(self, buffers: Sequence[Buffer], size: int, done: asyncio.Future[StoredExtent]) -> None:
        self.buffers = buffers
        """Emptied once sealed."""
        self.size = size
        """Plain bytes."""
        self.done = done
        """Cancelled if its waiter was cancelled."""


OnDecided = Callable[[], None]
StorePack = Callable[[Sequence[PackMember], OnDecided], Awaitable[Sequence[StoredExtent]]]


class Packer:
    """Gathers bodies of one `WriteContext` into packs. For one event loop."""

    def __init__(self, store: StorePack, packs_in_flight: int, gather_seconds: float) -> None:
        """*store* seals and puts a pack. Unless it raises, it has the function that it is passed called once the
        outcomes of all members' commands are known. At most *packs_in_flight* packs are being stored at once.
        *gather_seconds*: how long waiting bodies wait for others, at most, since the first of them came or the last
        pack started."""
        self._store = store
        self._packs_in_flight = packs_in_flight
        self._gather_seconds = gather_seconds
        self._waiting: deque[PackMember] = deque()
        self._waiting_bytes = 0
        self._storing: set[asyncio.Task[None]] = set()
        self._undecided = 0  # bodies
        self._turn_end: asyncio.Handle | None = None
        self._gather_timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """No body waits, and no pack is being stored."""
        return not self._waiting and not self._storing

    async def add(self, buffers: Sequence[Buffer], size: int) -> StoredExtent:
        """Store *buffers*, which have *size* bytes, together with other bodies. Raises as `put_block`."""
        loop = asyncio.get_running_loop()
        member = PackMember(buffers, size, loop.create_future())
        self._waiting.append(member)
        self._waiting_bytes += size
        if self._turn_end is None:
            # Start packs at the end of this turn of the loop, so that all bodies that arrive in it go together.
            self._turn_end = loop.call_soon(self._on_turn_end)
        try:
            return await member.done
        except asyncio.CancelledError:
            self._withdraw(member)
            raise

    async def drain(self) -> None:
        """Start all waiting bodies, and wait until they are stored."""
        while not self.idle:
            self._start_packs(gathered=True)
            if self._storing:
                await asyncio.wait(self._storing)

    def _withdraw(self, member: PackMember) -> None:
        """The waiter of *member* was cancelled: do not store it, or abort what was stored."""
        if member in self._waiting:
            self._waiting.remove(member)
            self._waiting_bytes -= member.size
        elif not member.done.cancelled() and member.done.exception() is None:
            member.done.result().block_ref.release_unnamed()

    # ---- when a pack starts -------------------------------------------------------------------------------------

    def _on_turn_end(self) -> None:
        self._turn_end = None
        self._start_packs()

    def _on_gathered(self) -> None:
        self._gather_timer = None
        self._start_packs(gathered=True)

    def _start_packs(self, *, gathered: bool = False) -> None:
        """Start the packs that are due; with *gathered*, as many as may be stored at once."""
        while self._waiting and len(self._storing) < self._packs_in_flight and (gathered or self._is_due()):
            self._start(self._next_pack())
        if self._waiting and self._gather_timer is None:
            self._gather_timer = asyncio.get_running_loop().call_later(self._gather_seconds, self._on_gathered)

    def _is_due(self) -> bool:
        return len(self._waiting) >= self._undecided or self._waiting_bytes >= PACK_START_BYTES

    def _next_pack(self) -> list[PackMember]:
        pack = [self._waiting.popleft()]
        size = pack[0].size
        while self._waiting and size + self._waiting[0].size <= BLOCK_BYTES:
            size += self._waiting[0].size
            pack.append(self._waiting.popleft())
        self._waiting_bytes -= size
        return pack

    def _start(self, pack: Sequence[PackMember]) -> None:
        if self._gather_timer is not None:  # the bodies that still wait came later
            self._gather_timer.cancel()
            self._gather_timer = None
        self._undecided += len(pack)
        task = asyncio.create_task(self._store_pack(pack))
        self._storing.add(task)
        task.add_done_callback(self._on_stored)

    def _on_stored(self, task: asyncio.Task[None]) -> None:
        self._storing.discard(task)
        self._start_packs()

    # ---- storing a pack -----------------------------------------------------------------------------------------

    async def _store_pack(self, pack: Sequence[PackMember]) -> None:
        def on_decided() -> None:
            self._undecided -= len(pack)
            self._start_packs()

        try:
            extents = await self._store(pack, on_decided)
        except asyncio.CancelledError:
            on_decided()
            for member in pack:
                member.done.cancel()
            raise
        except Exception as error:  # noqa: BLE001 (raised to each waiter)
            on_decided()
            for member in pack:
                if not member.done.done():
                    member.done.set_exception(error)
            return
        for member, stored in zip(pack, extents, strict=True):
            if member.done.done():
                stored.block_ref.release_unnamed()
            else:
                member.done.set_result(stored)
