"""Old copies: when a block may lose the copies that it has outside the backends that should hold it.

A backend that confirms a put may lose the value all the same. So an old copy goes only after every backend that should
hold the block was asked again, some time after it had confirmed. In this order:

1. *Placed*: every backend that should hold the block has confirmed it. The block's set still names the old holders, so
   that readers find their copies. The row of work says since when (`placed_ns`, by the site's clock) and is due when
   the wait is over (`Topology.recheck_seconds` later), so nobody looks at it before that.
2. *Confirmed*: each backend that should hold the block is asked for it again, and one copy is read back whole. A copy
   that is not there is a suspect from then on: it is made anew from an old one, and the wait starts again.
3. *Dropped*: one record, conditional on the set and on `placed_ns` as they were read, takes the old holders out of the
   set. Their bytes are strays from here on.
4. *Deleted*: once the fence of the journal stands there up to that record (`gateway/site/fencing.py`), no reader and no
   backup can be led to the old copies, and unless that was a moment ago, all are confirmed once more; only then their
   bytes go, and after them the row.

**The crash argument.** Killed before 3, the set names all copies, and `placed_ns` is durable: a restart neither skips
the wait nor begins it again. Killed between 3 and 4, the row names the strays and keeps `placed_ns`. Killed during 4,
some bytes are gone, all of which were to go; deleting twice is harmless. What was confirmed is remembered in memory
alone: after a restart it is confirmed again. A record that adds a holder or suspects a copy resets `placed_ns`, so a
wait never counts for copies that were made after it began.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection

from gateway import failpoints
from gateway.blocks.budget import Budget
from gateway.blocks.working import Journal
from gateway.journal.site_clock import SiteClock
from gateway.reconcile.batching import Batching
from gateway.reconcile.commands import Drop, DropCopies, Finish, FinishWork, Hold, HoldCopies, SuspectCopy
from gateway.reconcile.copying import Hands, Task
from gateway.reconcile.putting_off import PuttingOff
from gateway.reconcile.troubles import Troubles
from gateway.reconcile.wishes import Wishes
from gateway.timing import Timing

FRESH_BLOCKS = 65_536
"""How many confirmations are remembered; one that was forgotten is made again."""

_log = logging.getLogger(__name__)


class OldCopies:
    """Keeps the old copies of moved blocks, and deletes them once that is safe. Used by the mover."""

    def __init__(
        self,
        journal: Journal,
        hands: Hands,
        wishes: Wishes,
        troubles: Troubles,
        put_off: PuttingOff,
        budget: Budget,
        timing: Timing,
        site_clock: SiteClock,
    ) -> None:
        """*site_clock* measures the wait, so a wall clock that is put ahead does not end it."""
        self._site_clock = site_clock
        self._journal = journal
        self._hands = hands
        self._wishes = wishes
        self._troubles = troubles
        self._put_off = put_off
        self._budget = budget
        self._timing = timing.old_copies
        self._hold = Batching(journal, HoldCopies)
        self._drop = Batching(journal, DropCopies)
        self._finish = Batching(journal, FinishWork)
        self._floors: tuple[int, int] | None = None
        self._confirmed: OrderedDict[bytes, tuple[float, frozenset[int]]] = OrderedDict()
        self._warned: dict[int, float] = {}
        self.held_back = False
        """During this pass over the rows, some waited only for readers."""
        self.deleted = self.vanished = 0
        """Old copies deleted so far; copies that were confirmed and then not found."""

    def begin_pass(self) -> None:
        """The rows are looked at from the first one on again."""
        self._floors = None
        self.held_back = False

    def begin_wait(self) -> tuple[int, int]:
        """For a block of which every backend that should hold it has just confirmed it: `placed_ns` and `due_ns`."""
        return self._site_clock.now_ns(), self._put_off.clock.now_ns() + self._wait_ns

    @property
    def _wait_ns(self) -> int:
        return int(self._wishes.recheck_seconds * 1e9)

    async def drop(self, task: Task, members: tuple[int, ...], should: frozenset[int]) -> bool:
        """All of *should* hold the block and others do, too: take those out of its set once that is safe. True if
        something came of it. Raises `Trouble`."""
        if await self._waits(task):
            return True
        absent = await self._absent_from(task, should)
        if absent is None:
            return False
        if absent:
            return await self._suspect(task, absent)
        failpoints.reach("copies-confirmed")
        dropped = await self._drop.send(Drop(task.block, task.set_id, members, tuple(sorted(should)), task.placed_ns))
        failpoints.reach("copies-settled")
        return bool(dropped)

    async def clear(self, task: Task, should: frozenset[int]) -> bool:
        """The set of the block is *should*: delete its bytes elsewhere once that is safe, and then its row. True if
        something came of it. Raises `Trouble`."""
        strays = [each for each in task.strays if each not in should and each not in self._wishes.lost]
        if strays:
            if await self._waits(task):
                return True
            floor, without_pins = await self._readers()
            if without_pins < task.strays_number:
                self.held_back = True
                return False
            if floor < task.strays_number:
                return await self._put_off.later(task, "it waits for a backup that names it")
            if not all(self._hands.covers(place, task.strays_number) for place in strays):
                self.held_back = True
                return False
            if not all(self._troubles.answers(place, task.block) for place in strays):
                return False
            absent = await self._absent_from(task, should)
            if absent is None:
                return False
            if absent:
                return await self._suspect(task, absent)
            await self._delete(task, strays)
            failpoints.reach("strays-deleted")
        return bool(await self._finish.send(Finish(task.block, task.set_id, task.strays)))

    async def _waits(self, task: Task) -> bool:
        """Whether the wait of the block goes on. If so, the row is not due before it is over."""
        now_ns = self._site_clock.now_ns()
        placed_ns = task.placed_ns if 0 < task.placed_ns <= now_ns else now_ns
        left_ns = placed_ns + self._wait_ns - now_ns
        if placed_ns == task.placed_ns and left_ns <= 0:
            return False
        due_ns = self._put_off.clock.now_ns() + left_ns
        await self._hold.send(Hold(task.block, task.set_id, placed_ns, due_ns))
        return True

    async def _readers(self) -> tuple[int, int]:
        """The number up to which no reader and no backup looks anything up, and the same without backups. Both are
        asked for once a pass."""
        if self._floors is None:
            without_pins = await self._journal.floors(pins=False)  # first: a reader who ends now is no backup
            self._floors = await self._journal.floors(), without_pins
        return self._floors

    async def _absent_from(self, task: Task, should: frozenset[int]) -> set[int] | None:
        """Those of *should* that do not have the block; None if one of them cannot be asked now."""
        now = self._troubles.clock()
        at, places = self._confirmed.get(task.block, (0.0, frozenset()))
        if places == should and now - at < self._timing.confirmed_seconds:
            return set()
        if not all(self._troubles.answers(place, task.block) for place in should):
            return None
        self._troubles.asking(should, task.block)
        size = min(self._budget.limit, task.size)
        await self._budget.take(size)
        try:
            absent = await self._hands.absent_from(task, should)
        finally:
            self._budget.give(size)
        self._troubles.did(should, now)
        if not absent:
            self._confirmed[task.block] = self._troubles.clock(), should
            self._confirmed.move_to_end(task.block)
            if len(self._confirmed) > FRESH_BLOCKS:
                self._confirmed.popitem(last=False)
        return absent

    async def _suspect(self, task: Task, absent: Collection[int]) -> bool:
        """Have the copies made anew that backends confirmed and do not have."""
        now = self._troubles.clock()
        for place in sorted(absent):
            self.vanished += 1
            if now >= self._warned.get(place, 0.0):
                self._warned[place] = now + self._timing.warn_again_seconds
                _log.warning(
                    "backend %r confirmed block %s and does not have it: old copies stay, it is put there again",
                    self._wishes.names.get(place, "?"),
                    task.block.hex(),
                )
            await self._journal.send(SuspectCopy(task.block, place, "it was confirmed, and is not there"))
        return True

    async def _delete(self, task: Task, strays: Collection[int]) -> None:
        self._troubles.asking(strays, task.block)
        began = self._troubles.clock()
        await self._hands.delete(task, strays)
        self._troubles.did(strays, began)
        self.deleted += len(strays)
        self._confirmed.pop(task.block, None)
