"""Putting a sealed block on its targets, and counting the commands that may still name it.

**The crash argument** (bytes first, journal second, answer last). A block's bytes are durable on every target that the
write needs before `put_block` returns; only then may a command name the block; only when that command's batch is
durable is the client answered. (Blocks that are attached to their command are not put here. Their crash argument is in
`gateway/journal/inline_values.py`.)

- A kill before the command is durable: no row names the block, and no client was answered. The block's id begins with
  this process's session. The session ends (it is closed, or its lease expires), a record says so, and the sweeper
  deletes the blocks of the session that no row names.
- A kill after that: the row exists, and the bytes were durable before it.
- The command was refused: the block is deleted once all holders of an extent in it have aborted. This only saves space
  early and is never relied on: if it fails, the sweeper deletes the block. If a command's outcome is unknown, nothing
  is deleted.
- A pack is shared. Its first object may be committed, deleted and released while its second one is not committed yet:
  then the block is dead for a moment, and comes back to life. So from before the pack is stored until the outcomes of
  all its commands are known, this session's horizon is held below any record that could kill the block, and the sweeper
  deletes only blocks that died below every horizon. After an unknown outcome the command may still be in the
  committer's queue, so the horizon is held for longer than any command can be queued.
- If a policy waits for only some of its copies, the other puts go on after the answer. The block's row names the
  backends that had the block when the command was made, lists the others as places where bytes of it may be (strays),
  and is due for the mover, which makes the missing copies whatever became of those puts. If the block dies before that,
  it is deleted from all of these places, but only after its puts have ended: until then they hold this session's
  horizon. A block that no command names is deleted only once its last put has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from backends import errors as backend_errors
from backends.base import Backend
from gateway import errors
from gateway.blocks.types import Targets, block_path
from gateway.crypto.sealing import Sealed
from gateway.journal.records.bytes import NewBlock
from gateway.timing import Timing

PendingPuts = tuple["asyncio.Future[None]", ...]
"""Puts of a block that the write does not wait for; they go on although the block may be named already."""


class BlockRef:
    """A stored or attached block, with a count of the writers of extents in it whose commands have no known outcome
    yet.

    Each writer calls exactly one of `mark_named`, `mark_unknown` and `release_unnamed`, once."""

    __slots__ = ("_on_decided", "_undecided", "block", "is_named", "is_unknown", "pending_puts", "targets")

    def __init__(
        self,
        block: NewBlock,
        targets: Targets,
        writers: int,
        on_decided: Callable[[BlockRef], None],
        pending_puts: PendingPuts = (),
    ) -> None:
        """*on_decided* is called once the outcomes of all *writers* are known."""
        self.block = block
        self.targets = targets
        self.pending_puts = pending_puts
        self.is_named = False
        """A command named the block, or may have."""
        self.is_unknown = False
        """The outcome of at least one command is unknown."""
        self._undecided = writers
        self._on_decided = on_decided

    def mark_named(self) -> None:
        """Record that a committed command of this writer names the block."""
        self.is_named = True
        self._decide()

    def mark_unknown(self) -> None:
        """Record that the outcome of this writer's command is unknown: it may name the block, or may still do so."""
        self.is_named = self.is_unknown = True
        self._decide()

    def release_unnamed(self) -> None:
        """Record that no command of this writer names the block, and none will."""
        self._decide()

    def _decide(self) -> None:
        self._undecided -= 1
        assert self._undecided >= 0, "a writer reported two outcomes"
        if self._undecided == 0:
            self._on_decided(self)


def describe_block(sealed: Sealed, ring_key: int, targets: Targets, timing: Timing) -> NewBlock:
    """Return the description of an attached block for its record. Its row names the set of all *targets* from the
    start; if these are not final, it is due for the mover at once."""
    due_ns = 0 if targets.is_final else timing.clock.wall_ns()
    return NewBlock(sealed.block_id, ring_key, sealed.size, sealed.crc32c, targets.set_id, due_ns)


async def put_block(sealed: Sealed, ring_key: int, targets: Targets, timing: Timing) -> tuple[NewBlock, PendingPuts]:
    """Store *sealed* on as many targets as the write needs. Once this returns, it is durable on those.

    Returns the description of the block for its record, and the puts that are still running. Raises `DiskFull` if too
    many backends are full, and `Unavailable` if too many fail; then the block is deleted again, as far as the backends
    allow."""
    key = block_path(sealed.block_id)
    set_id, is_final = targets.set_id, targets.is_final
    pending_puts: PendingPuts = ()
    strays: tuple[int, ...] = ()
    try:
        if len(targets.copies) == 1:
            await targets.copies[0].backend.put(key, sealed.buffers, sealed.crc32c)
        else:
            done, pending_puts = await _put_copies(key, sealed, targets)
            if len(done) < len(targets.copies):
                set_id, is_final = targets.partial_sets[frozenset(done)], False
                strays = tuple(each.id for each in targets.copies if each.id not in done)
    except backend_errors.Full as error:
        raise errors.DiskFull(str(error)) from error
    except backend_errors.BackendError as error:
        raise errors.Unavailable(str(error)) from error
    landing_ns = int(timing.blocks.landing_seconds * 1e9) if pending_puts else 0
    due_ns = 0 if is_final else timing.clock.wall_ns() + landing_ns
    return NewBlock(sealed.block_id, ring_key, sealed.size, sealed.crc32c, set_id, due_ns, strays), pending_puts


async def _put_copies(key: str, sealed: Sealed, targets: Targets) -> tuple[list[int], PendingPuts]:
    """Put the block on all targets at once, and wait until enough have it.

    Returns the ids of the backends that have it, and the puts that go on. Raises the first error if too many fail."""
    needed = targets.needed or len(targets.copies)
    puts = {
        asyncio.ensure_future(each.backend.put(key, sealed.buffers, sealed.crc32c)): each.id for each in targets.copies
    }
    waiting, done, failed = set(puts), list[int](), list[BaseException]()
    try:
        while waiting and len(done) < needed <= len(done) + len(waiting):
            ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in ended:
                error = each.exception()
                done.append(puts[each]) if error is None else failed.append(error)
        if len(done) < needed:
            await asyncio.gather(*waiting, return_exceptions=True)
            await delete_block(key, [each.backend for each in targets.copies])
            raise failed[0]
    except asyncio.CancelledError:
        for each in waiting:
            each.cancel()
        raise
    return done, tuple(waiting)


async def wait_for_puts(pending_puts: PendingPuts) -> None:
    """Wait until all of *pending_puts* have ended, with or without an error."""
    await asyncio.gather(*pending_puts, return_exceptions=True)


async def delete_block(key: str, backends: list[Backend]) -> list[backend_errors.BackendError]:
    """Delete a block from each of *backends*. Returns the errors instead of raising them."""
    failed: list[backend_errors.BackendError] = []
    for backend in backends:
        try:
            await backend.delete(key)
        except backend_errors.BackendError as error:
            failed.append(error)
    return failed
