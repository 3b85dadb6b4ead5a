"""Splitting one body into blocks of 8 MiB, each of which is stored while the next one arrives.

**Theory of operation.** A `Chunker` holds one body. Each of its bytes passes through these states:

1. *charged*: acquired from the budget, before the byte arrives (`_charged_ahead`);
2. *in the current block*: `_filled` bytes, of which the last `_unsealed_bytes` are not sealed yet. A body of more than
   `pack_bytes` is sealed while it arrives, in whole frames; a smaller one stays plain, since it goes into a pack;
3. *being stored*: `_submit` detaches the block and starts a task for it (`_tasks`, oldest first). At most
   `blocks_in_flight` blocks of a body are being stored while the next one arrives. The task gives the block's bytes
   back to the budget when it ends, however it ends;
4. *stored*: `_collect` waits for the oldest task and appends its extent to `_stored`, in the order of the bytes.

`add_now`, `add` and `finish` are called by the body's own task. `reclaim` is called by the `Reclaimer` from another
one, and does something only while `waits_for_client` is set: then the body's task is outside these methods.

**The rule of the budget.** A body that has to wait for bytes submits its current block first. So while it waits it
holds nothing but blocks that are being stored, which come back without anybody's help. A body that waits for a slow
client has its current block stored early if others need the bytes (`reclaim.py`). So blocks are shorter than 8 MiB if
memory is short, and never otherwise.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from backends.base import Buffer
from gateway.blocks.types import BLOCK_BYTES, WriteContext
from gateway.blocks.write.block_writer import BlockWriter
from gateway.blocks.write.packer import StoredExtent
from gateway.crypto.sealing import FRAME_PLAIN, Sealer
from gateway.errors import Unavailable
from gateway.journal.columns import Extent

CHARGE_AHEAD_BYTES = 64 << 10
"""A body charges at least this much at a time while the budget is free, ahead of its bytes."""
SHORT_MEMORY_BYTES = 1 << 20
"""A body that has to wait for the budget waits for this much, so that blocks are not cut shorter than this."""
SEAL_BYTES = 1 << 20
"""Plain bytes that are sealed at once: about 0.1 ms."""


class _DetachedBlock(NamedTuple):
    """The bytes of one block, or the small end of a body, which is not sealed yet."""

    size: int
    """Plain bytes, all of them charged to the budget."""
    unsealed: list[Buffer]
    """The bytes, if there is no sealer."""
    sealer: Sealer | None
    """Holds the sealed bytes; None for what goes into a pack."""
    begins: tuple[int, int]
    """Where the extent begins in the sealed block: (offset, frame)."""


class Chunker:
    """One body that is being written: `add` its bytes, then `finish`; or `abort`."""

    def __init__(
        self,
        blocks: BlockWriter,
        context: WriteContext,
        size_hint: int | None,
        *,
        pack_bytes: int,
        blocks_in_flight: int,
        wait_seconds: float | None,
    ) -> None:
        """The arguments are those of `Writer` and `Writer.store`."""
        self._blocks = blocks
        self._budget = blocks.budget
        self._context = context
        self._pack_bytes = pack_bytes
        self._blocks_in_flight = blocks_in_flight
        self._wait_seconds = wait_seconds
        self._expected = size_hint  # bytes that are still to come
        self._unsealed: list[Buffer] = []
        self._unsealed_bytes = 0
        self._filled = 0
        self._charged_ahead = 0
        self._begun_s = 0.0  # when the first byte of the current block came, by the loop's clock
        self.waits_for_client = False
        """The body's task waits for the client, outside this object's methods."""
        self._sealer: Sealer | None = None
        self._begins = (0, 0)
        self._tasks: deque[asyncio.Task[StoredExtent]] = deque()
        self._stored: list[StoredExtent] = []

    def add_now(self, piece: Buffer) -> bool:
        """Add *piece* if that needs no waiting: it does not fill the block, and the budget has enough bytes.

        Returns whether it was added."""
        size = len(piece)
        if self._filled + size >= BLOCK_BYTES or not self._charge_now(size):
            return False
        self._append(piece)
        return True

    async def add(self, piece: Buffer) -> None:
        """Add *piece*. Waits for the budget, and while too many blocks of this body are being stored."""
        while piece:
            head = piece[: BLOCK_BYTES - self._filled]
            if not self._charge_now(len(head)):
                await self._charge(len(head))
            self._append(head)
            if self._filled == BLOCK_BYTES:
                await self._submit()
            piece = piece[len(head) :]

    async def finish(self) -> list[StoredExtent]:
        """Store the rest of the body. Once this returns, every block is durable or attached."""
        if 0 < self._filled <= self._pack_bytes and not self._tasks:
            self._stored.append(await self._store_block(self._detach()))  # most bodies: no task is needed
        elif self._filled:
            await self._submit()
        while self._tasks:
            await self._collect()
        self._release_ahead()
        return self._stored

    def abort(self) -> None:
        """Drop the body: abort the blocks that are stored, and those that are being stored once they are."""
        self._release_ahead()
        self._budget.release(self._filled)
        self._filled = 0
        for stored in self._stored:
            stored.block_ref.release_unnamed()
        self._stored = []
        for task in self._tasks:
            self._blocks.keep(task)
            task.add_done_callback(_abort_result)

    def reclaim(self, begun_before: float) -> int:
        """Implements `Reclaimable.reclaim`."""
        if not self.waits_for_client or not self._filled or self._begun_s > begun_before:
            return 0
        size = self._filled + self._charged_ahead
        try:
            block = self._detach()
        except Unavailable:
            return 0  # the process has no session to write under; the body's own task will raise it
        self._release_ahead()
        self._tasks.append(asyncio.create_task(self._store_block(block)))
        return size

    # ---- the budget ---------------------------------------------------------------------------------------------

    def _charge_now(self, size: int) -> bool:
        if size > self._charged_ahead:
            ahead = max(size, CHARGE_AHEAD_BYTES)
            missing = max(size, min(ahead, self._expected or ahead)) - self._charged_ahead
            if not self._budget.acquire_now(missing):
                return False
            self._charged_ahead += missing
        return True

    async def _charge(self, size: int) -> None:
        """Charge *size* bytes, and wait for them. The current block is submitted first."""
        if self._filled:
            await self._submit()
        self._release_ahead()
        wanted = max(size, min(SHORT_MEMORY_BYTES, self._expected or SHORT_MEMORY_BYTES))
        await self._budget.acquire(wanted, self._wait_seconds, self._context.user)
        self._charged_ahead = wanted

    def _release_ahead(self) -> None:
        self._budget.release(self._charged_ahead)
        self._charged_ahead = 0

    # ---- the current block --------------------------------------------------------------------------------------

    def _append(self, piece: Buffer) -> None:
        """Append *piece*, which is charged, to the current block."""
        size = len(piece)
        if not self._filled:
            self._begun_s = asyncio.get_running_loop().time()
        self._charged_ahead -= size
        self._filled += size
        if self._expected is not None:
            self._expected = max(0, self._expected - size)
        self._unsealed.append(piece)
        self._unsealed_bytes += size
        if self._filled > self._pack_bytes and self._unsealed_bytes > SEAL_BYTES:
            # At least one byte stays unsealed: more may follow, and only the final frame is sealed as the last one.
            self._seal((self._unsealed_bytes - 1) // FRAME_PLAIN * FRAME_PLAIN, more=True)

    def _seal(self, size: int, *, more: bool) -> None:
        """Seal the first *size* unsealed bytes: whole frames, or, without *more*, all that is left of the block."""
        if self._sealer is None:
            self._sealer = self._blocks.new_sealer(self._context)
            placed = self._sealer.add(self._take_unsealed(size), more=more)
            self._begins = (placed.offset, placed.frame)
        else:
            self._sealer.add(self._take_unsealed(size), more=more)

    def _take_unsealed(self, size: int) -> list[Buffer]:
        """Remove the first *size* unsealed bytes, and return them."""
        taken, self._unsealed = self._unsealed, []
        rest = self._unsealed_bytes - size
        self._unsealed_bytes = rest
        if rest:
            last = memoryview(taken[-1])
            while len(last) <= rest:
                self._unsealed.insert(0, taken.pop())
                rest -= len(last)
                last = memoryview(taken[-1])
            if rest:
                taken[-1] = last[: len(last) - rest]
                self._unsealed.insert(0, last[len(last) - rest :])
        return taken

    # ---- storing blocks -----------------------------------------------------------------------------------------

    async def _submit(self) -> None:
        """Start to store the current block. Waits while too many blocks of this body are being stored."""
        self._tasks.append(asyncio.create_task(self._store_block(self._detach())))
        while len(self._tasks) > self._blocks_in_flight:
            await self._collect()

    def _detach(self) -> _DetachedBlock:
        """Remove the current block, and begin an empty one. Raises `Unavailable` without a session."""
        if self._filled > self._pack_bytes:
            self._seal(self._unsealed_bytes, more=False)
        block = _DetachedBlock(self._filled, self._unsealed, self._sealer, self._begins)
        self._filled, self._unsealed, self._unsealed_bytes, self._sealer = 0, [], 0, None
        return block

    async def _collect(self) -> None:
        """Wait for the oldest task. It stays in `_tasks` if that is cancelled or raises, for `abort` to find."""
        task = self._tasks[0]
        stored = await asyncio.shield(task)
        self._tasks.popleft()
        self._stored.append(stored)

    async def _store_block(self, block: _DetachedBlock) -> StoredExtent:
        """Store a detached block, and give its bytes back to the budget."""
        try:
            if block.sealer is None:
                return await self._blocks.store_small(self._context, block.unsealed, block.size)
            sealed = block.sealer.finish()
            block_ref = await self._blocks.store_block(self._context, sealed)
            return StoredExtent(Extent(sealed.block_id, *block.begins, block.size), block_ref)
        finally:
            self._budget.release(block.size)


def _abort_result(task: asyncio.Task[StoredExtent]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().block_ref.release_unnamed()
