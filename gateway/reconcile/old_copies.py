"""When a moved block's old copies, on backends that should no longer hold the block, may be deleted.

Theory of operation
-------------------
A backend may confirm a put and lose the value all the same. So an old copy is deleted only after every backend that
should hold the block has been checked again, some time after that backend's confirmation. A block passes these
steps, in this order:

1. *Placed*: every backend that should hold the block has confirmed it. The block's set of holders still names the old
   ones, so readers find their copies. The block's row of work says since when (`placed_ns`, by the site's clock). The
   row is due when the wait is over (`Topology.recheck_seconds` later), so the mover does not meet it before that.
2. *Confirmed*: each backend that should hold the block is checked again, and one copy is read back whole. A copy that
   is absent becomes a suspect: it is made again from an old copy, and the wait starts again.
3. *Dropped*: one record removes the old holders from the set, if the set and `placed_ns` are still as they were read.
   From here on the old copies are strays.
4. *Deleted*: the strays are deleted, and then the row of work, once all of these conditions hold:
   - The fence on each stray's backend covers the record of step 3 (`gateway/site/storage/fencing.py`).
   - No reader and no backup uses a snapshot of the journal that still names the old copies as holders.
   - The copies that should exist are confirmed once more, unless they were confirmed a moment ago.

Checking backends may take minutes, and the policies may change meanwhile. So the policies are read again before steps 3
and 4: a copy that is wanted again is neither dropped nor deleted. The next pass treats the block by the new policies.

**The crash argument.**

- Killed before 3: the set names all copies, and `placed_ns` is durable. A restart neither skips the wait nor begins it
  again.
- Killed between 3 and 4: the row names the strays and keeps `placed_ns`.
- Killed during 4: some strays are gone. All of them were to be deleted, and deleting one twice is harmless.

Confirmations are remembered in memory alone, so a restart makes them again. A record that adds a holder or suspects a
copy resets `placed_ns`, so the wait never counts for a copy that was made after the wait began.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection
from typing import NamedTuple

from gateway import failpoints
from gateway.blocks.budget import Budget
from gateway.blocks.protocols import WorkerJournal
from gateway.journal.site_clock import SiteClock
from gateway.reconcile.backend_health import BackendHealth
from gateway.reconcile.backoff import WorkBackoff
from gateway.reconcile.batching import CommandBatcher
from gateway.reconcile.commands import Drop, DropCopies, Finish, FinishWork, KeepOld, KeepOldCopies, SuspectCopy
from gateway.reconcile.copy_ops import CopyOps, WorkItem
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.timing import Timing

FRESH_BLOCKS = 65_536
"""How many blocks' confirmations are remembered. A forgotten one is made again."""

_log = logging.getLogger(__name__)


class RecordHorizons(NamedTuple):
    """The journal's horizons: snapshots of earlier records are no longer in use."""

    with_pins: int
    """Neither a reader nor a backup uses a snapshot before this record."""
    without_pins: int
    """No reader uses a snapshot before this record; a backup may."""


class OldCopies:
    """Keeps the old copies of moved blocks, and deletes them once that is safe. Used by the mover."""

    def __init__(
        self,
        journal: WorkerJournal,
        copy_ops: CopyOps,
        targets: PlacementTargets,
        health: BackendHealth,
        backoff: WorkBackoff,
        budget: Budget,
        timing: Timing,
        site_clock: SiteClock,
    ) -> None:
        """*site_clock* measures the wait, so a wall clock that is put ahead does not end it."""
        self._site_clock = site_clock
        self._journal = journal
        self._copies = copy_ops
        self._targets = targets
        self._health = health
        self._backoff = backoff
        self._budget = budget
        self._timing = timing.old_copies
        self._keep_old = CommandBatcher(journal, KeepOldCopies)
        self._drop = CommandBatcher(journal, DropCopies)
        self._finish = CommandBatcher(journal, FinishWork)
        self._horizons: RecordHorizons | None = None
        self._confirmed: OrderedDict[bytes, tuple[float, frozenset[int]]] = OrderedDict()
        self._warned: dict[int, float] = {}
        self.held_back = False
        """Whether a row was passed over in this pass although only readers or a fence held it back."""
        self.deleted = self.vanished = 0
        """Old copies deleted so far; copies that were confirmed and then not found."""

    def begin_pass(self) -> None:
        """Forget what held for the last pass. The mover calls this when it starts again with the first row."""
        self._horizons = None
        self.held_back = False

    def begin_wait(self) -> tuple[int, int]:
        """`placed_ns` and `due_ns` for a block that every backend that should hold it has just confirmed."""
        return self._site_clock.now_ns(), self._backoff.clock.now_ns() + self._wait_ns

    @property
    def _wait_ns(self) -> int:
        return int(self._targets.recheck_seconds * 1e9)

    async def drop(self, item: WorkItem, members: tuple[int, ...], desired: frozenset[int]) -> bool:
        """Steps 2 and 3, for a block that all of *desired* hold, and others, too: take the others out of its set once
        that is safe. True if that recorded anything. Raises `BackendFailed`."""
        if await self._keep_until_due(item):
            return True
        absent = await self._absent_from(item, desired)
        if absent is None:
            return False
        if absent:
            return await self._suspect(item, absent)
        if not self._still_wanted(item, members, desired):
            return False
        failpoints.reach("copies-confirmed")
        dropped = await self._drop.send(Drop(item.block, item.set_id, members, tuple(sorted(desired)), item.placed_ns))
        failpoints.reach("old-holders-dropped")
        return bool(dropped)

    async def clear(self, item: WorkItem, desired: frozenset[int]) -> bool:
        """Step 4, for a block whose set is *desired*: delete its strays once that is safe, and then its row of work.
        True if that recorded anything. Raises `BackendFailed`."""
        strays = [each for each in item.strays if each not in desired and each not in self._targets.lost]
        if strays:
            if await self._keep_until_due(item):
                return True
            horizon, without_pins = await self._record_horizons()
            if without_pins < item.strays_number:
                self.held_back = True
                return False
            if horizon < item.strays_number:
                return await self._backoff.postpone(item, "it waits for a backup that names it")
            if not all(self._copies.covers(backend_id, item.strays_number) for backend_id in strays):
                self.held_back = True
                return False
            if not all(self._health.can_read(backend_id, item.block) for backend_id in strays):
                return False
            absent = await self._absent_from(item, desired)
            if absent is None:
                return False
            if absent:
                return await self._suspect(item, absent)
            if not self._still_wanted(item, tuple(sorted(desired)), desired):
                return False
            await self._delete(item, strays)
            failpoints.reach("strays-deleted")
        return bool(await self._finish.send(Finish(item.block, item.set_id, item.strays)))

    def _still_wanted(self, item: WorkItem, members: tuple[int, ...], desired: frozenset[int]) -> bool:
        """Whether the present policies still want the block, which *members* hold, on the backends *desired*. They may
        have changed while backends were asked."""
        return self._targets.refresh() and self._targets.desired(item.policy, members) == desired

    async def _keep_until_due(self, item: WorkItem) -> bool:
        """If the block still has to wait, make its row of work due at the end of the wait. Returns whether it has
        to."""
        now_ns = self._site_clock.now_ns()
        placed_ns = item.placed_ns if 0 < item.placed_ns <= now_ns else now_ns
        left_ns = placed_ns + self._wait_ns - now_ns
        if placed_ns == item.placed_ns and left_ns <= 0:
            return False
        due_ns = self._backoff.clock.now_ns() + left_ns
        await self._keep_old.send(KeepOld(item.block, item.set_id, placed_ns, due_ns))
        return True

    async def _record_horizons(self) -> RecordHorizons:
        """Return the horizons. They are fetched once per pass."""
        if self._horizons is None:
            # Readers first: so a reader that ends now is not taken for a backup.
            without_pins = await self._journal.horizons(pins=False)
            self._horizons = RecordHorizons(await self._journal.horizons(), without_pins)
        return self._horizons

    async def _absent_from(self, item: WorkItem, desired: frozenset[int]) -> frozenset[int] | None:
        """Return those of *desired* that do not have the block; None if one of them cannot be asked now."""
        now = self._health.clock()
        at, confirmed = self._confirmed.get(item.block, (0.0, frozenset()))
        if confirmed == desired and now - at < self._timing.confirmed_seconds:
            return frozenset()
        if not all(self._health.can_read(backend_id, item.block) for backend_id in desired):
            return None
        self._health.start_trial(desired, item.block)
        async with self._budget.charged(item.size):
            absent = await self._copies.absent_from(item, desired)
        self._health.record_success(desired, now)
        if not absent:
            self._confirmed[item.block] = self._health.clock(), desired
            self._confirmed.move_to_end(item.block)
            if len(self._confirmed) > FRESH_BLOCKS:
                self._confirmed.popitem(last=False)
        return absent

    async def _suspect(self, item: WorkItem, absent: Collection[int]) -> bool:
        """Record the copies that the backends *absent* confirmed and do not have as suspects, to be made again."""
        now = self._health.clock()
        for backend_id in sorted(absent):
            self.vanished += 1
            if now >= self._warned.get(backend_id, 0.0):
                self._warned[backend_id] = now + self._timing.warn_again_seconds
                _log.warning(
                    "backend %r confirmed block %s and does not have it: old copies stay, it is put there again",
                    self._targets.names.get(backend_id, "?"),
                    item.block.hex(),
                )
            await self._journal.send(SuspectCopy(item.block, backend_id, "it was confirmed, and is not there"))
        return True

    async def _delete(self, item: WorkItem, strays: Collection[int]) -> None:
        self._health.start_trial(strays, item.block)
        began = self._health.clock()
        await self._copies.delete(item, strays)
        self._health.record_success(strays, began)
        self.deleted += len(strays)
        self._confirmed.pop(item.block, None)
