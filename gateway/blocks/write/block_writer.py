"""Sealing and storing single blocks and packs, with the puts that go on after an answer.

The crash argument is in `block_put.py`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple

from backends.base import Buffer
from gateway import errors, failpoints
from gateway.blocks import metrics
from gateway.blocks.budget import Budget
from gateway.blocks.inline.values import InlineValues
from gateway.blocks.types import WriteContext, block_path
from gateway.blocks.write import block_put
from gateway.blocks.write.block_put import BlockRef, PendingPuts
from gateway.blocks.write.packer import OnDecided, Packer, PackMember, StoredExtent
from gateway.crypto.sealing import Sealed, Sealer
from gateway.journal.columns import Extent
from gateway.journal.records.bytes import NewBlock
from gateway.timing import Timing

PENDING_DIVISOR = 4
"""Puts that no write waits for may hold `budget.limit // PENDING_DIVISOR` bytes, besides what is charged to it."""
ATTACHED_MEMBERS_MAX = 64
"""A pack of more bodies is put on its backend, and not attached to a command: they share the sync of that put."""
PACKERS_MAX = 64
"""Idle packers are dropped once there are more than this."""

_log = logging.getLogger(__name__)


class _PackKey(NamedTuple):
    """What bodies must have in common to share a pack, as ids."""

    ring_key: int
    policy: int
    set_id: int
    may_attach: bool


class BlockWriter:
    """Seals and stores the blocks and packs of one process. For one event loop."""

    def __init__(
        self,
        session: Callable[[], int],
        reading: Callable[[], AbstractContextManager[Any]],
        budget: Budget,
        packs_in_flight: int,
        inline: InlineValues | None,
        timing: Timing,
    ) -> None:
        """*session* returns the session that commands are sent under, 0 while there is none. *reading* is the journal
        client's, and holds this session's horizon. *packs_in_flight*: packs of one key and policy that are being stored
        at once. *inline*: see `Writer`."""
        self.budget = budget
        """The budget that bodies are charged to while they are stored."""
        self._session = session
        self._reading = reading
        self._packs_in_flight = packs_in_flight
        self._inline = inline
        self._timing = timing
        self._packers: dict[_PackKey, Packer] = {}
        self._contexts: dict[_PackKey, WriteContext] = {}
        self._background: set[asyncio.Future[Any]] = set()
        self._pending_bytes = 0  # of puts that no write waits for

    def new_sealer(self, context: WriteContext) -> Sealer:
        """Begin a block. Raises `CommitterGone` while this process has no session: no command could name the block, and
        no session's end would have it swept."""
        session = self._session()
        if not session:
            raise errors.CommitterGone("this process has no session with the committer at the moment")
        return Sealer(context.key.key, context.key.id, session, context.key.mode)

    async def store_block(self, context: WriteContext, sealed: Sealed) -> BlockRef:
        """Store a block that belongs to one body. Raises as `put_block`.

        Only that body's command ever names the block, so the block cannot die before that, and no horizon is held."""
        failpoints.reach("block-sealed")
        block, pending_puts = await block_put.put_block(sealed, context.key.id, context.targets, self._timing)
        failpoints.reach("block-stored")
        metrics.record_stored(metrics.WHOLE, block.size)
        self._continue_or_cancel(block, pending_puts)
        return BlockRef(block, context.targets, 1, self._delete_if_unnamed, pending_puts)

    async def store_small(self, context: WriteContext, buffers: Sequence[Buffer], size: int) -> StoredExtent:
        """Store a small body, or the small end of one, in a pack. Raises as `put_block`."""
        key = _PackKey(context.key.id, context.targets.policy, context.targets.set_id, context.may_attach)
        self._contexts[key] = context  # after a reload, other fields of the targets may differ for the same policy
        packer = self._packers.get(key)
        if packer is None:
            packer = self._packers[key] = Packer(
                lambda pack, on_decided: self._store_pack(self._contexts[key], pack, on_decided),
                self._packs_in_flight,
                self._timing.blocks.gather_seconds,
            )
            if len(self._packers) > PACKERS_MAX:
                self._drop_some_idle(key)
        return await packer.add(buffers, size)

    def keep(self, task: asyncio.Future[Any]) -> None:
        """Hold a reference to *task* until it is done; `close` waits for it."""
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def drop_idle_packers(self) -> None:
        """Drop the packers that have nothing to do, and with them the targets of the bodies that they stored last."""
        for key, packer in list(self._packers.items()):
            if packer.idle:
                del self._packers[key], self._contexts[key]

    async def close(self) -> None:
        """Wait for everything that is being stored. The caller sees to it that nothing new is."""
        for packer in list(self._packers.values()):
            await packer.drain()
        while self._background:
            await asyncio.wait(self._background)

    def _drop_some_idle(self, but: _PackKey) -> None:
        for key, packer in list(self._packers.items()):
            if packer.idle and len(self._packers) > PACKERS_MAX and key != but:
                del self._packers[key], self._contexts[key]

    async def _store_pack(
        self, context: WriteContext, pack: Sequence[PackMember], on_decided: OnDecided
    ) -> list[StoredExtent]:
        """Seal and put one pack. Implements `StorePack`.

        This session's horizon is held until the outcomes of all members' commands are known, and for a while longer if
        one stays unknown (`block_put.py`)."""
        with ExitStack() as opening:
            opening.enter_context(self._reading())
            sealer = self.new_sealer(context)
            placed = []
            for member in pack:
                placed.append(sealer.add(member.buffers))
                member.buffers = ()
            sealed = sealer.finish()
            failpoints.reach("pack-sealed")
            key_id, targets = context.key.id, context.targets
            pending_puts: PendingPuts = ()
            if len(pack) <= ATTACHED_MEMBERS_MAX and self._attach(context, sealed):
                block = block_put.describe_block(sealed, key_id, targets, self._timing)
            else:
                block, pending_puts = await block_put.put_block(sealed, key_id, targets, self._timing)
            failpoints.reach("pack-stored")
            metrics.record_stored(metrics.PACK, block.size)
            metrics.PACKED.observe(len(pack))
            self._continue_or_cancel(block, pending_puts)
            horizon = opening.pop_all()

        def on_pack_decided(block_ref: BlockRef) -> None:
            on_decided()
            if self._inline is not None:
                self._inline.detach(block_ref.block.id)
            if block_ref.is_unknown:
                asyncio.get_running_loop().call_later(self._timing.blocks.doubt_seconds, horizon.close)
            else:
                horizon.close()
            self._delete_if_unnamed(block_ref)

        block_ref = BlockRef(block, context.targets, len(pack), on_pack_decided, pending_puts)
        return [StoredExtent(Extent(sealed.block_id, at.offset, at.frame, at.length), block_ref) for at in placed]

    def _attach(self, context: WriteContext, sealed: Sealed) -> bool:
        """Attach the pack to the commands of its members, if that is possible: then it need not be put."""
        copies = context.targets.copies
        return (
            self._inline is not None
            and context.may_attach
            and len(copies) == 1
            and self._inline.attach(sealed.block_id, copies[0].id, sealed.crc32c, sealed.buffers, sealed.size)
        )

    def _continue_or_cancel(self, block: NewBlock, pending_puts: PendingPuts) -> None:
        """Let the puts that no write waits for go on, as long as they hold little memory.

        Otherwise, as when a backend falls behind, they are cancelled: the block's row says that these copies are still
        to be made. Each put holds this session's horizon, so the block is not deleted there before the put has
        ended."""
        if self._pending_bytes + block.size > self.budget.limit // PENDING_DIVISOR:
            for each in pending_puts:
                each.cancel()
            return

        def ended(put: asyncio.Future[None], horizon: ExitStack) -> None:
            horizon.close()
            self._pending_bytes -= block.size
            if not put.cancelled() and put.exception() is not None:
                _log.info("a copy is left for the mover: %s", put.exception())

        for each in pending_puts:
            self._pending_bytes += block.size
            self.keep(each)
            horizon = ExitStack()
            horizon.enter_context(self._reading())
            each.add_done_callback(functools.partial(ended, horizon=horizon))

    def _delete_if_unnamed(self, block_ref: BlockRef) -> None:
        if not block_ref.is_named:
            self.keep(asyncio.create_task(_delete_unnamed(block_ref)))


async def _delete_unnamed(block_ref: BlockRef) -> None:
    await block_put.wait_for_puts(block_ref.pending_puts)
    backends = [target.backend for target in block_ref.targets.copies]
    for error in await block_put.delete_block(block_path(block_ref.block.id), backends):
        _log.info("a block that no command named stays until its session is swept: %s", error)
