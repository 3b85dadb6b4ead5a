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
  stored until all of them have said how it went: it keeps this session's floor below any record that could kill the
  block, and the sweeper takes only what died below every floor. After an unknown outcome the command may still stand
  in the committer's queue, so the token is held on, longer than any queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from backends import errors as backend_errors
from backends.base import Backend
from gateway import errors
from gateway.blocks.values import Targets, block_key
from gateway.crypto.sealing import Sealed
from gateway.journal.records import NewBlock


class Stake:
    """A stored block, and those in this process who have extents in it and have yet to say whether it was named."""

    __slots__ = ("_end", "_holders", "block", "doubtful", "named", "targets")

    def __init__(self, block: NewBlock, targets: Targets, holders: int, end: Callable[[Stake], None]) -> None:
        """*end* is called once all *holders* have said how it went."""
        self.block = block
        self.targets = targets
        self.named = False
        """Somebody named the block, or may have."""
        self.doubtful = False
        """Of somebody it is not known."""
        self._holders = holders
        self._end = end

    def keep(self, *, doubtful: bool = False) -> None:
        """A command named it; *doubtful*: or may have, or still will."""
        self.named = True
        self.doubtful |= doubtful
        self._leave()

    def give_back(self) -> None:
        """This holder did not name it and never will."""
        self._leave()

    def _leave(self) -> None:
        self._holders -= 1
        assert self._holders >= 0, "somebody settled twice"
        if self._holders == 0:
            self._end(self)


async def place(sealed: Sealed, ring_key: int, targets: Targets) -> NewBlock:
    """Store *sealed* on every target. Durable on all of them once this returns.

    Raises `DiskFull` where one has no room, `Unavailable` where one fails; then none is left behind, as far as may be.
    """
    key = block_key(sealed.block_id)
    backends = [target.backend for target in targets.copies]
    try:
        if len(backends) == 1:
            await backends[0].put(key, sealed.buffers, sealed.crc32c)
        else:
            await _put_on_all(key, sealed, backends)
    except backend_errors.Full as error:
        raise errors.DiskFull(str(error)) from error
    except backend_errors.BackendError as error:
        raise errors.Unavailable(str(error)) from error
    return NewBlock(sealed.block_id, ring_key, sealed.size, sealed.crc32c, targets.set_id)


async def _put_on_all(key: str, sealed: Sealed, backends: list[Backend]) -> None:
    puts = [asyncio.ensure_future(each.put(key, sealed.buffers, sealed.crc32c)) for each in backends]
    done = await asyncio.gather(*puts, return_exceptions=True)
    failed = [outcome for outcome in done if isinstance(outcome, BaseException)]
    if failed:
        await delete(key, backends)
        raise failed[0]


async def delete(key: str, backends: list[Backend]) -> list[backend_errors.BackendError]:
    """Delete a block everywhere; answers what went wrong instead of raising it."""
    failed: list[backend_errors.BackendError] = []
    for backend in backends:
        try:
            await backend.delete(key)
        except backend_errors.BackendError as error:
            failed.append(error)
    return failed
