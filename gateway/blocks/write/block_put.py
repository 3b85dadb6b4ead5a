"""Putting a sealed block where its policy wants it, and the account of who named it.

**The crash argument** (bytes first, journal second, answer last). A block's bytes are durable on every target before
`place` returns; only then may a command name it; only when that command's batch is durable is the client answered.
- Killed before the command is durable: no row names the block, nobody was told. Its id begins with this process's
  session; the session ends (goodbye or lease), is ended by a record, and the sweeper deletes what no row names.
- Killed after: the row stands, and the bytes were there before it.
- The command was refused: the block is given back, that is deleted, once everybody with an extent in it was refused.
  This is an economy, never relied on: where it fails the sweeper comes. Where the outcome of a command is unknown
  nothing is deleted.
- A pack is shared. Its first object may be committed, deleted and taken apart while its second is yet to be
  committed: then the block is dead for a moment, and comes back to life. So a token is held from before the pack is
  stored until all of them have said how it went: it keeps this session's horizon below any record that could kill the
  block, and the sweeper takes only what died below every horizon. After an unknown outcome the command may still stand
  in the committer's queue, so the token is held on, longer than any queue.
- Where a policy awaits only some of its copies, the others go on behind the answer. The row names those that were
  there when it was made, and the others as places where bytes of it may lie, and is due: whoever settles copies makes
  sure of the rest, whatever became of it. A block that dies before is deleted in all of those places, and not before
  its puts have ended, for until then they hold this session's horizon. One that nobody named is deleted only once
  nobody puts it any more.
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
"""Puts of a block that go on although it may be named already."""


class BlockRef:
    """A stored block, and those in this process who have extents in it and have yet to say whether it was named."""

    __slots__ = ("_end", "_holders", "block", "doubtful", "late", "named", "targets")

    def __init__(
        self, block: NewBlock, targets: Targets, holders: int, end: Callable[[BlockRef], None], late: PendingPuts = ()
    ) -> None:
        """*end* is called once all *holders* have said how it went."""
        self.block = block
        self.targets = targets
        self.late = late
        """Copies that are still being made, and that nobody awaits."""
        self.named = False
        """Somebody named the block, or may have."""
        self.doubtful = False
        """Of somebody it is not known."""
        self._holders = holders
        self._end = end

    def commit(self) -> None:
        """A command named the block."""
        self.named = True
        self._leave()

    def commit_unknown(self) -> None:
        """The outcome of this holder's command is unknown: it may have named the block, or may still do so."""
        self.named = self.doubtful = True
        self._leave()

    def abort(self) -> None:
        """This holder did not name it and never will."""
        self._leave()

    def _leave(self) -> None:
        self._holders -= 1
        assert self._holders >= 0, "somebody settled twice"
        if self._holders == 0:
            self._end(self)


async def place(sealed: Sealed, ring_key: int, targets: Targets, timing: Timing) -> tuple[NewBlock, PendingPuts]:
    """Store *sealed* on as many targets as are needed. Durable on those once this returns; answers the block's facts
    and the copies that are still being made.

    Raises `DiskFull` where there is no room on too many, `Unavailable` where too many fail; then none is left behind,
    as far as may be."""
    key = block_path(sealed.block_id)
    set_id, settled = targets.set_id, targets.settled
    late: PendingPuts = ()
    strays: tuple[int, ...] = ()
    try:
        if len(targets.copies) == 1:
            await targets.copies[0].backend.put(key, sealed.buffers, sealed.crc32c)
        else:
            done, late = await _put(key, sealed, targets)
            if len(done) < len(targets.copies):
                set_id, settled = targets.some[frozenset(done)], False
                strays = tuple(each.id for each in targets.copies if each.id not in done)
    except backend_errors.Full as error:
        raise errors.DiskFull(str(error)) from error
    except backend_errors.BackendError as error:
        raise errors.Unavailable(str(error)) from error
    landing_ns = int(timing.blocks.landing_seconds * 1e9) if late else 0
    due_ns = 0 if settled else timing.clock.wall_ns() + landing_ns
    return NewBlock(sealed.block_id, ring_key, sealed.size, sealed.crc32c, set_id, due_ns, strays), late


async def _put(key: str, sealed: Sealed, targets: Targets) -> tuple[list[int], PendingPuts]:
    """Put it on all targets at once, until enough have it. Answers which do, and the puts that go on."""
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
            await delete(key, [each.backend for each in targets.copies])
            raise failed[0]
    except asyncio.CancelledError:
        for each in waiting:
            each.cancel()
        raise
    return done, tuple(waiting)


async def settle(late: PendingPuts) -> None:
    """Wait until nothing of *late* is on its way any more, however it went."""
    await asyncio.gather(*late, return_exceptions=True)


async def delete(key: str, backends: list[Backend]) -> list[backend_errors.BackendError]:
    """Delete a block everywhere; answers what went wrong instead of raising it."""
    failed: list[backend_errors.BackendError] = []
    for backend in backends:
        try:
            await backend.delete(key)
        except backend_errors.BackendError as error:
            failed.append(error)
    return failed
