"""Writing bodies: their bytes are hashed, split into blocks, sealed and stored; then a command names the result.

A large body is split into blocks of its own (`chunker.py`); small bodies share packs (`packer.py`). The crash argument
is in `block_put.py`. Memory is bounded by the budget: each byte is charged before it is kept, and until its block is
stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from backends.base import Buffer
from gateway import errors
from gateway.blocks.budget import Budget
from gateway.blocks.inline.values import InlineValues
from gateway.blocks.types import BLOCK_BYTES, WriteContext
from gateway.blocks.write.block_put import BlockRef
from gateway.blocks.write.block_writer import BlockWriter
from gateway.blocks.write.chunker import Chunker
from gateway.blocks.write.packer import StoredExtent
from gateway.blocks.write.reclaim import Reclaimer
from gateway.journal.columns import Extent
from gateway.journal.records.bytes import NewBlock
from gateway.timing import Timing

PACKED_BODY_BYTES_MAX = 1 << 20
"""Bodies of at most this many plain bytes go into packs; so do the ends of larger ones."""
PIECE_BYTES = 1 << 20
"""A chunk is processed in pieces of at most this size, so that no step takes longer than about 1 ms on the loop."""


class Sink(Protocol):
    """What sees the bytes of a body as they are stored: `Digests`."""

    def update_now(self, buffer: Buffer, /) -> bool:
        """Process *buffer* if that needs no waiting. Returns whether it did."""

    async def update(self, buffer: Buffer, /) -> None:
        """Process *buffer*."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The blocks of one body, stored or attached (`gateway/blocks/inline`), which no row names yet. Its owner passes it
    to `mark_named`, `mark_unknown` or `release_unnamed`."""

    extents: tuple[Extent, ...]
    """In the order of the bytes; empty for an empty body."""
    blocks: tuple[NewBlock, ...]
    """The facts of each block that the extents are in, once."""
    size: int
    """Plain bytes."""
    block_refs: tuple[BlockRef, ...]
    """One for each extent."""


class Writer:
    """Stores the bodies that one process writes. For one event loop."""

    def __init__(
        self,
        session: Callable[[], int],
        reading: Callable[[], AbstractContextManager[Any]],
        budget: Budget,
        *,
        pack_bytes: int = PACKED_BODY_BYTES_MAX,
        packs_in_flight: int = 4,
        blocks_in_flight: int = 2,
        wait_seconds: float | None = None,
        inline: InlineValues | None = None,
        timing: Timing,
    ) -> None:
        """*session* returns the session that commands are sent under, 0 while there is none. *reading* is the journal
        client's, and holds this session's horizon.

        *packs_in_flight*: packs of one key and policy that are being stored at once. *blocks_in_flight*: blocks of one
        body that are being stored while the next one arrives. *wait_seconds*: how long a body waits for the budget, at
        most, before it is refused with `Busy`; None means without limit. *inline*: where small packs may go instead of
        their backend. Raises `ValueError` for a budget that is
        smaller than two pieces."""
        if budget.limit < 2 * PIECE_BYTES:
            raise ValueError(f"a writer's budget must have at least {2 * PIECE_BYTES} bytes, not {budget.limit}")
        self.budget = budget
        self.pack_bytes = pack_bytes
        self.blocks_in_flight = blocks_in_flight
        self.wait_seconds = wait_seconds
        self._reclaimer = Reclaimer(budget, timing.blocks.fill_seconds)
        self._blocks = BlockWriter(session, reading, budget, packs_in_flight, inline, timing)

    async def store(
        self, context: WriteContext, body: AsyncIterator[Buffer], size_hint: int | None, sink: Sink
    ) -> StoredRun:
        """Store *body*. Once this returns, each block is either durable on as many targets as its policy requires, or
        attached to the command that will name it (`gateway/blocks/inline/values.py`) and durable with that command.

        *size_hint*: the body's length in bytes, if the client declared it; a wrong value does no harm. *sink* sees
        every byte, in order. If anything raises, including *body*, what was stored is released. Raises `DiskFull` and
        `Unavailable`, of which `CommitterGone` means that this process has no session, and `Busy` that too many bytes
        are in flight."""
        chunker = Chunker(
            self._blocks,
            context,
            size_hint,
            pack_bytes=self.pack_bytes,
            blocks_in_flight=self.blocks_in_flight,
            wait_seconds=self.wait_seconds,
        )
        self._reclaimer.add(chunker)
        try:
            async for chunk in body:
                chunker.waits_for_client = False
                for piece in _pieces(chunk):
                    if not sink.update_now(piece):
                        await sink.update(piece)
                    if not chunker.add_now(piece):
                        await chunker.add(piece)
                chunker.waits_for_client = True
            chunker.waits_for_client = False
            return _stored_run(await chunker.finish())
        except BaseException:
            chunker.waits_for_client = False
            chunker.abort()
            raise
        finally:
            self._reclaimer.remove(chunker)

    @asynccontextmanager
    async def storing(
        self, context: WriteContext, body: AsyncIterator[Buffer], size_hint: int | None, sink: Sink
    ) -> AsyncIterator[StoredRun]:
        """Store a body as `store` does; inside the `async with`, the caller sends the command that names it.

        The exit calls `mark_named` if nothing was raised, and `release_unnamed` if the command was refused. After any
        other error, or a cancellation, the command may have been committed, so it calls `mark_unknown`."""
        stored = await self.store(context, body, size_hint, sink)
        try:
            yield stored
        except (errors.Refused, errors.DiskFull, errors.Busy):
            self.release_unnamed(stored)
            raise
        except BaseException:
            self.mark_unknown(stored)
            raise
        self.mark_named(stored)

    def mark_named(self, stored: StoredRun) -> None:
        """Record that a committed command names *stored*."""
        for block_ref in stored.block_refs:
            block_ref.mark_named()

    def mark_unknown(self, stored: StoredRun) -> None:
        """Record that a command may name *stored*, or may still do so: the bytes stay until the session is swept."""
        for block_ref in stored.block_refs:
            block_ref.mark_unknown()

    def release_unnamed(self, stored: StoredRun) -> None:
        """Record that no command names *stored*, and none will. Its blocks are deleted in the background, unless others
        use them.

        Errors of these deletions are only logged: the sweep of this session deletes what is left."""
        for block_ref in stored.block_refs:
            block_ref.release_unnamed()

    async def store_packed(self, context: WriteContext, data: Buffer) -> StoredRun:
        """Store *data*, at most one block, in a pack and as one extent. The caller has charged it to the budget."""
        return _stored_run([await self._blocks.store_small(context, (data,), len(data))])

    def drop_idle_packers(self) -> None:
        """Drop the packers that have nothing to do, and with them the targets of the bodies that they stored last."""
        self._blocks.drop_idle_packers()

    async def close(self) -> None:
        """Wait for everything that is being stored. No call of `store` may be under way."""
        await self._blocks.close()


def _pieces(chunk: Buffer) -> Sequence[Buffer]:
    if len(chunk) <= PIECE_BYTES:
        return (chunk,)
    view = memoryview(chunk)
    return [view[at : at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES)]


def _stored_run(stored: Sequence[StoredExtent]) -> StoredRun:
    unique = {each.block_ref.block.id: each.block_ref.block for each in stored}
    return StoredRun(
        tuple(each.extent for each in stored),
        tuple(unique.values()),
        sum(each.extent.length for each in stored),
        tuple(each.block_ref for each in stored),
    )


assert PACKED_BODY_BYTES_MAX <= BLOCK_BYTES
