"""Bytes come in, are hashed, cut, sealed and placed; what comes out is what a command names in the journal.

Small bodies share packs (`packing`), large ones are blocks of their own (`cutting`). The crash argument stands in
`placing`. Memory is bounded by the budget: a chunk is charged before it is kept, and until its block is stored.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from backends.base import Buffer
from gateway import errors, failpoints
from gateway.blocks import metrics
from gateway.blocks.budget import Budget
from gateway.blocks.types import BLOCK_BYTES, WriteContext, block_path
from gateway.blocks.write import block_put
from gateway.blocks.write.block_put import BlockRef, PendingPuts
from gateway.blocks.write.chunker import Chunker
from gateway.blocks.write.packer import Packer, PackMember, Settled, StoredExtent
from gateway.blocks.write.reclaim import Reclaimer
from gateway.crypto.sealing import Sealed, Sealer
from gateway.journal.columns import Extent
from gateway.journal.records.bytes import NewBlock
from gateway.timing import Timing

PACK_BYTES = 1 << 20
"""Bodies of at most so many plain bytes go into packs; so do the ends of larger ones."""
PIECE_BYTES = 1 << 20
"""A chunk is taken in pieces of at most so many bytes, so that nothing on the loop takes longer than a millisecond."""
LATE_SHARE = 4
"""Copies that nobody awaits hold at most this part of what the writer may hold besides."""

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Who hashes along: `Digests`, or nobody."""

    def update_now(self, buffer: Buffer, /) -> bool: ...

    async def update(self, buffer: Buffer, /) -> None: ...


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Durable bytes that no row names yet. Whoever has one says `named`, `give_back` or `leave`, once."""

    extents: tuple[Extent, ...]
    """In the order of the bytes; empty for an empty body."""
    blocks: tuple[NewBlock, ...]
    """The facts of every block that they lie in."""
    size: int
    """Plain bytes."""
    block_refs: tuple[BlockRef, ...]


class Writer:
    """What a process writes with. For one event loop."""

    def __init__(
        self,
        session: Callable[[], int],
        reading: Callable[[], AbstractContextManager[Any]],
        budget: Budget,
        *,
        pack_bytes: int = PACK_BYTES,
        flights: int = 4,
        blocks_in_flight: int = 2,
        wait_seconds: float | None = None,
        timing: Timing,
    ) -> None:
        """*session* answers the session that commits will be made under, 0 while there is none; *reading* is the
        journal client's, and holds its horizon.
        *flights*: packs on their way at once, a stamp. *blocks_in_flight*: blocks of one body being stored while its
        next one comes in.
        *wait_seconds*: how long a body waits for bytes at once before it is refused with `Busy`; None: as long as it
        takes. A budget that does not hold two pieces is a `ValueError`."""
        if budget.limit < 2 * PIECE_BYTES:
            raise ValueError(f"a writer's budget has at least {2 * PIECE_BYTES} bytes, not {budget.limit}")
        self.budget = budget
        self.pack_bytes = pack_bytes
        self.blocks_in_flight = blocks_in_flight
        self.wait_seconds = wait_seconds
        self._pressure = Reclaimer(budget, timing.blocks.fill_seconds)
        self._session = session
        self._reading = reading
        self._flights = flights
        self._timing = timing
        self._packers: dict[tuple[int, int, int], Packer] = {}
        self._stamps: dict[tuple[int, int, int], WriteContext] = {}
        self._background: set[asyncio.Future[Any]] = set()
        self._late_bytes = 0

    async def store(
        self, stamp: WriteContext, body: AsyncIterator[Buffer], size_hint: int | None, sink: Sink
    ) -> StoredRun:
        """Store *body*; every byte is durable on every target once this returns. *size_hint*: its length in bytes,
        where the client said so; a wrong one does no harm. *sink* sees every byte, in order.

        If anything raises, also the body itself, what was stored is given back. Raises `DiskFull`, `Unavailable`
        (`CommitterGone` while this process has no session, `Busy` where too much is under way).
        """
        cutter = Chunker(self, stamp, size_hint)
        self._pressure.join(cutter)
        try:
            async for chunk in body:
                cutter.waits = False
                for piece in _pieces(chunk):
                    if not sink.update_now(piece):
                        await sink.update(piece)
                    if not cutter.take_now(piece):
                        await cutter.take(piece)
                cutter.waits = True
            cutter.waits = False
            return _stored(await cutter.finish())
        except BaseException:
            cutter.waits = False
            cutter.give_up()
            raise
        finally:
            self._pressure.leave(cutter)

    @asynccontextmanager
    async def storing(
        self, stamp: WriteContext, body: AsyncIterator[Buffer], size_hint: int | None, sink: Sink
    ) -> AsyncIterator[StoredRun]:
        """`store`, and settle by how the command that names it went, which is sent inside the `async with`.

        Nothing raised: it was named. Refused, for whatever reason: given back. Any other error, or a cancellation:
        the command may have been committed, so the bytes stay until the session is swept.
        """
        stored = await self.store(stamp, body, size_hint, sink)
        try:
            yield stored
        except (errors.Refused, errors.DiskFull, errors.Busy):
            self.abort(stored)
            raise
        except BaseException:
            self.commit_unknown(stored)
            raise
        self.commit(stored)

    def commit(self, stored: StoredRun) -> None:
        """A command named it."""
        for block_ref in stored.block_refs:
            block_ref.commit()

    def commit_unknown(self, stored: StoredRun) -> None:
        """A command may have named it, or may do so yet: the bytes stay until the session is swept."""
        for block_ref in stored.block_refs:
            block_ref.commit_unknown()

    def abort(self, stored: StoredRun) -> None:
        """No command named it, and none will: blocks that nobody else has a stake in are deleted, in the background
        and as far as may be (the sweep of this session is what is relied on)."""
        for block_ref in stored.block_refs:
            block_ref.abort()

    async def store_packed(self, stamp: WriteContext, data: Buffer) -> StoredRun:
        """Store *data*, at most a block, in a pack and as one extent. The caller has charged it to its budget."""
        return _stored([await self.store_small(stamp, (data,), len(data))])

    async def close(self) -> None:
        """Wait for what is on its way. Nobody may be inside `store`."""
        for packer in list(self._packers.values()):
            await packer.drain()
        while self._background:
            await asyncio.wait(self._background)

    # ---- for the cutter -----------------------------------------------------------------------------------------

    def new_sealer(self, stamp: WriteContext) -> Sealer:
        """Raises `CommitterGone` while this process has no session: what it wrote could not be named, nor swept."""
        session = self._session()
        if not session:
            raise errors.CommitterGone("this process has no session with the committer at the moment")
        return Sealer(stamp.key.key, stamp.key.id, session, stamp.key.mode)

    async def store_small(self, stamp: WriteContext, buffers: Sequence[Buffer], size: int) -> StoredExtent:
        """A body, or the end of one, into a pack."""
        name = (stamp.key.id, stamp.targets.policy, stamp.targets.set_id)
        self._stamps[name] = stamp  # a later one of that name may know more of the same policy and set
        packer = self._packers.get(name)
        if packer is None:
            packer = self._packers[name] = Packer(
                lambda pack, settled: self._store_pack(self._stamps[name], pack, settled),
                self._flights,
                self._timing.blocks.gather_seconds,
            )
            self._forget_idle(name)
        return await packer.add(buffers, size)

    async def store_block(self, stamp: WriteContext, sealed: Sealed) -> BlockRef:
        """A block of one body. Nobody else will ever name it, so that it cannot die before it is named, and needs no
        token."""
        failpoints.reach("block-sealed")
        block, late = await block_put.place(sealed, stamp.key.id, stamp.targets, self._timing)
        failpoints.reach("block-stored")
        metrics.record_stored(metrics.WHOLE, block.size)
        self._go_on(block, late)
        return BlockRef(block, stamp.targets, 1, self._ended, late)

    def background(self, task: asyncio.Future[Any]) -> None:
        """Keep *task* until it is done."""
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # ---- packs --------------------------------------------------------------------------------------------------

    async def _store_pack(
        self, stamp: WriteContext, pack: Sequence[PackMember], settled: Settled
    ) -> list[StoredExtent]:
        with ExitStack() as token:
            token.enter_context(self._reading())
            sealer = self.new_sealer(stamp)
            placed = []
            for member in pack:
                placed.append(sealer.add(member.buffers))
                member.buffers = ()
            sealed = sealer.finish()
            failpoints.reach("pack-sealed")
            block, late = await block_put.place(sealed, stamp.key.id, stamp.targets, self._timing)
            failpoints.reach("pack-stored")
            metrics.record_stored(metrics.PACK, block.size)
            metrics.PACKED.observe(len(pack))
            self._go_on(block, late)
            held = token.pop_all()

        def ended(block_ref: BlockRef) -> None:
            settled()
            if block_ref.doubtful:
                asyncio.get_running_loop().call_later(self._timing.blocks.doubt_seconds, held.close)
            else:
                held.close()
            self._ended(block_ref)

        block_ref = BlockRef(block, stamp.targets, len(pack), ended, late)
        return [StoredExtent(Extent(sealed.block_id, at.offset, at.frame, at.length), block_ref) for at in placed]

    def _go_on(self, block: NewBlock, late: PendingPuts) -> None:
        """Let copies that nobody awaits be made, as long as they hold little memory. Those of a backend that falls
        behind are broken off: the block's row says that they are still to be made. Each holds this session's horizon,
        so that nobody deletes the block there before it lands."""
        if self._late_bytes + block.size > self.budget.limit // LATE_SHARE:
            for each in late:
                each.cancel()
            return

        def ended(put: asyncio.Future[None], token: ExitStack) -> None:
            token.close()
            self._late_bytes -= block.size
            if not put.cancelled() and put.exception() is not None:
                _log.info("a copy is left for later: %s", put.exception())

        for each in late:
            self._late_bytes += block.size
            self._background.add(each)
            each.add_done_callback(self._background.discard)
            token = ExitStack()
            token.enter_context(self._reading())
            each.add_done_callback(functools.partial(ended, token=token))

    def _ended(self, block_ref: BlockRef) -> None:
        if not block_ref.named:
            self.background(asyncio.create_task(_drop(block_ref)))

    def drop_idle_packers(self) -> None:
        """Let go of what packers that have nothing to do remember of those who wrote last."""
        for name, packer in list(self._packers.items()):
            if packer.idle:
                del self._packers[name], self._stamps[name]

    def _forget_idle(self, but: tuple[int, int, int]) -> None:
        for name, packer in list(self._packers.items()):
            if packer.idle and len(self._packers) > 64 and name != but:
                del self._packers[name], self._stamps[name]


def _pieces(chunk: Buffer) -> Sequence[Buffer]:
    if len(chunk) <= PIECE_BYTES:
        return (chunk,)
    view = memoryview(chunk)
    return [view[at : at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES)]


def _stored(cuts: Sequence[StoredExtent]) -> StoredRun:
    block_refs = tuple({cut.block_ref.block.id: cut.block_ref for cut in cuts}.values())
    return StoredRun(
        tuple(cut.extent for cut in cuts),
        tuple(block_ref.block for block_ref in block_refs),
        sum(cut.extent.length for cut in cuts),
        tuple(cut.block_ref for cut in cuts),
    )


async def _drop(block_ref: BlockRef) -> None:
    await block_put.settle(block_ref.late)
    backends = [target.backend for target in block_ref.targets.copies]
    for error in await block_put.delete(block_path(block_ref.block.id), backends):
        _log.info("a block that nobody named stays until its session is swept: %s", error)


assert PACK_BYTES <= BLOCK_BYTES
