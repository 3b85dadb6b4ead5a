"""Cutting one body: into blocks of 8 MiB, each stored while the next comes in; a small body, or end, into a pack.

Rule of the budget: a body that must wait for bytes first sends off what it holds, so it waits with nothing in its
hands but what comes back by itself; and one that waits for a slow client is asked for what it holds (`pressure`).
Under pressure blocks are therefore cut short; never without it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from backends.base import Buffer
from gateway.blocks.types import BLOCK_BYTES, WriteContext
from gateway.blocks.write.packer import StoredExtent
from gateway.crypto.sealing import FRAME_PLAIN, Sealer
from gateway.errors import Unavailable
from gateway.journal.columns import Extent

if TYPE_CHECKING:
    from gateway.blocks.write.writer import Writer

GRAIN_BYTES = 64 << 10
"""What a body charges ahead of its bytes while the budget is free."""
PRESSED_BYTES = 1 << 20
"""What it waits for at once while it is not, so that what is cut short is no shorter than this."""
FEED_BYTES = 1 << 20
"""So many plain bytes are sealed at once: about 0.1 ms."""


class _Filled(NamedTuple):
    """A block's worth of bytes, or the small end of a body (then nothing is sealed yet)."""

    size: int  # plain bytes, charged
    plain: list[Buffer]
    sealer: Sealer | None
    begins: tuple[int, int]  # where the extent begins in the sealed block: offset, frame


class Chunker:
    """One body on its way. `take` its bytes, then `finish`; or `give_up`."""

    def __init__(self, writer: Writer, stamp: WriteContext, size_hint: int | None) -> None:
        self._writer = writer
        self._stamp = stamp
        self._left = size_hint
        self._plain: list[Buffer] = []
        self._plain_bytes = 0  # not sealed yet
        self._filled = 0  # of this block, sealed or not
        self._ahead = 0  # charged, and not filled yet
        self._begun = 0.0  # when the first byte of this block came
        self.waits = False
        """The body waits for its client: nothing here is in the middle of anything."""
        self._sealer: Sealer | None = None
        self._begins = (0, 0)
        self._shipped: deque[asyncio.Task[StoredExtent]] = deque()
        self._cuts: list[StoredExtent] = []

    def take_now(self, piece: Buffer) -> bool:
        """Take the next bytes if that needs no waiting: they stay in this block, and the budget has room."""
        size = len(piece)
        if self._filled + size >= BLOCK_BYTES or not self._charge_now(size):
            return False
        self._keep(piece)
        return True

    async def take(self, piece: Buffer) -> None:
        """Take the next bytes."""
        while piece:
            head = piece[: BLOCK_BYTES - self._filled]
            if not self._charge_now(len(head)):
                await self._charge(len(head))
            self._keep(head)
            if self._filled == BLOCK_BYTES:
                await self._ship()
            piece = piece[len(head) :]

    async def finish(self) -> list[StoredExtent]:
        """Every byte is durable once this returns."""
        if 0 < self._filled <= self._writer.pack_bytes and not self._shipped:
            self._cuts.append(await self._store(self._detach()))  # most bodies: no task needed
        elif self._filled:
            await self._ship()
        while self._shipped:
            await self._land()
        self._release_ahead()
        return self._cuts

    def give_up(self) -> None:
        """What was stored is given back, what is on its way once it arrives."""
        self._release_ahead()
        self._writer.budget.release(self._filled)
        self._filled = 0
        for cut in self._cuts:
            cut.block_ref.abort()
        self._cuts = []
        for task in self._shipped:
            self._writer.background(task)
            task.add_done_callback(_return_it)

    def let_go(self, begun_before: float) -> int:
        """As `pressure.Holder` says."""
        if not self.waits or not self._filled or self._begun > begun_before:
            return 0
        size = self._filled + self._ahead
        try:
            filled = self._detach()
        except Unavailable:
            return 0  # there is no session to write under: the body itself will hear of it
        self._release_ahead()
        self._shipped.append(asyncio.create_task(self._store(filled)))
        return size

    # ---- the budget ---------------------------------------------------------------------------------------------

    def _charge_now(self, size: int) -> bool:
        if size > self._ahead:
            grain = min(max(size, GRAIN_BYTES), self._left) if self._left else max(size, GRAIN_BYTES)
            wanted = max(size, grain) - self._ahead
            if not self._writer.budget.acquire_now(wanted):
                return False
            self._ahead += wanted
        return True

    async def _charge(self, size: int) -> None:
        if self._filled:
            await self._ship()
        self._release_ahead()
        wanted = max(size, min(PRESSED_BYTES, self._left or PRESSED_BYTES))
        await self._writer.budget.acquire(wanted, self._writer.wait_seconds, self._stamp.user)
        self._ahead = wanted

    def _release_ahead(self) -> None:
        self._writer.budget.release(self._ahead)
        self._ahead = 0

    # ---- filling a block ----------------------------------------------------------------------------------------

    def _keep(self, piece: Buffer) -> None:
        size = len(piece)
        if not self._filled:
            self._begun = asyncio.get_running_loop().time()
        self._ahead -= size
        self._filled += size
        if self._left is not None:
            self._left = max(0, self._left - size)
        self._plain.append(piece)
        self._plain_bytes += size
        if self._filled > self._writer.pack_bytes and self._plain_bytes > FEED_BYTES:
            # some byte stays behind: only the extent's last frame may be sealed as its last
            self._feed((self._plain_bytes - 1) // FRAME_PLAIN * FRAME_PLAIN, more=True)

    def _feed(self, size: int, *, more: bool) -> None:
        """Seal the first *size* plain bytes that wait: whole frames, or all that is left of the block."""
        if self._sealer is None:
            self._sealer = self._writer.new_sealer(self._stamp)
            placed = self._sealer.add(self._cut_off(size), more=more)
            self._begins = (placed.offset, placed.frame)
        else:
            self._sealer.add(self._cut_off(size), more=more)

    def _cut_off(self, size: int) -> list[Buffer]:
        taken, self._plain = self._plain, []
        over = self._plain_bytes - size
        self._plain_bytes = over
        if over:
            last = memoryview(taken[-1])
            while len(last) <= over:
                self._plain.insert(0, taken.pop())
                over -= len(last)
                last = memoryview(taken[-1])
            if over:
                taken[-1] = last[: len(last) - over]
                self._plain.insert(0, last[len(last) - over :])
        return taken

    # ---- storing it ---------------------------------------------------------------------------------------------

    async def _ship(self) -> None:
        """Send the block off. Waits while too many blocks of this body are on their way."""
        self._shipped.append(asyncio.create_task(self._store(self._detach())))
        while len(self._shipped) > self._writer.blocks_in_flight:
            await self._land()

    def _detach(self) -> _Filled:
        """What fills the block, out of the cutter's hands."""
        if self._filled > self._writer.pack_bytes:
            self._feed(self._plain_bytes, more=False)
        filled = _Filled(self._filled, self._plain, self._sealer, self._begins)
        self._filled, self._plain, self._plain_bytes, self._sealer = 0, [], 0, None
        return filled

    async def _land(self) -> None:
        task = self._shipped[0]
        cut = await asyncio.shield(task)
        self._shipped.popleft()
        self._cuts.append(cut)

    async def _store(self, filled: _Filled) -> StoredExtent:
        """Store what filled a block, and give its bytes back to the budget."""
        try:
            if filled.sealer is None:
                return await self._writer.store_small(self._stamp, filled.plain, filled.size)
            sealed = filled.sealer.finish()
            block_ref = await self._writer.store_block(self._stamp, sealed)
            return StoredExtent(Extent(sealed.block_id, *filled.begins, filled.size), block_ref)
        finally:
            self._writer.budget.release(filled.size)


def _return_it(task: asyncio.Task[StoredExtent]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().block_ref.abort()
