"""The mover: processes the rows of work that say which blocks are not where they should be, many at a time.

Theory of operation
-------------------
A row of the table `work` names a block whose copies are not as they should be. The planner makes rows, and so do
readers that find a bad copy. The mover reads the rows that are due, in the order of their due times, and runs one
asyncio task for each block, `AT_ONCE` at most. Each task takes one step, chosen by what the journal says now
(`_reconcile`):

| state of the block                          | step                              | records                            |
|---------------------------------------------|-----------------------------------|------------------------------------|
| it is dead                                  | postpone the row (the sweeper     | `WorkFailed`                       |
|                                             | deletes the block)                |                                    |
| copies are missing or suspected             | make copies (`copy_maker.py`)     | `WorkBegun`, `BlockBackendsSet`    |
| all that should hold it do, and others, too | drop the others after a wait      | `CopiesPlaced`, `BlockBackendsSet` |
|                                             | (`old_copies.py`)                 |                                    |
| exactly those that should hold it do        | delete strays, and then the row   | `WorkDone`                         |
|                                             | (`old_copies.py`)                 |                                    |

A step that fails, or has to wait, emits `WorkFailed` too, which postpones the row.

A step that records something changes the block's state or the row's due time, so the block is processed again in its
new state. A pass begins with the first due row (`_START`) and ends when all due rows have been processed; a row that
falls due meanwhile is left to the next pass. If a pass recorded nothing, the next one waits for `revisit_seconds`.

Rows are passed over, in memory alone, if everything that could be done for them would fail: their backends have failed
and are paused (`backend_health.py`). That costs no record, and delays no row after them. A backend that is full takes
no copies, but it is still read and emptied.

While processors are scarce, clients come first: the mover begins nothing for a while, and then a few blocks at a time
(`throttle.py`).

**The crash argument**, for each block:

1. *Begun*: `WorkBegun` says on which further backends bytes of it may be from now on (its strays).
2. *Put*: a good copy, verified frame by frame, is put there. It counts once the backend has confirmed its checksum. If
   bytes may be there already, and finding out costs less than a put, the mover looks first.
3. *Recorded*: `BlockBackendsSet`, conditional on the set that was read, names the set that holds it now: the backends
   that held it before, and those where it was put.
4. *Dropped*: backends that should not hold it are removed from its set, and their bytes deleted, only after a wait and
   after those that should hold it were checked again (`old_copies.py`, with the argument). Only then is the row
   deleted.

If the process is killed anywhere, the row still exists and names every place where bytes may be. Everything is done
again, with the same result. A block that dies meanwhile belongs to the sweeper, which deletes strays as well. The
sweeper waits for this process's horizon, which is held from before step 1 until step 3 was answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from backends.base import Backend
from gateway import errors
from gateway.blocks.budget import Budget
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Covers, Tables, WorkerJournal, no_fence
from gateway.blocks.read.lookup import Lookup
from gateway.crypto.sealing import BlockKeys
from gateway.journal.apply.work import unpack_ids
from gateway.journal.site_clock import SiteClock, clock_reader
from gateway.reconcile.backend_health import BackendHealth
from gateway.reconcile.backoff import WorkBackoff
from gateway.reconcile.clock import WorkClock
from gateway.reconcile.copy_maker import CopyMaker
from gateway.reconcile.copy_ops import BackendFailed, CopyOps, WorkItem
from gateway.reconcile.old_copies import OldCopies
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.reconcile.throttle import no_throttle
from gateway.timing import Timing

AT_ONCE = 64
"""Most blocks that are worked on at a time."""
BYTES_AT_ONCE = 64 << 20
"""Most sealed bytes of these blocks that are held in memory."""
_ROWS = (
    "SELECT w.block, w.due_ns, w.attempts, w.suspects, w.strays, w.strays_number, w.placed_ns, b.ring_key, b.size, "
    "b.crc32c, b.backends, b.policy, b.died FROM work w JOIN block b ON b.id = w.block "
    "WHERE w.due_ns <= ? AND (w.due_ns, w.block) > (?, ?) ORDER BY w.due_ns, w.block LIMIT ?"
)
_OLDEST = "SELECT min(due_ns) FROM work WHERE due_ns <= ?"
_START = (0, b"")
ROWS = 256
"""Rows that are read between two turns of the event loop."""
_log = logging.getLogger(__name__)


class Mover(Worker):
    """Brings blocks where they should be."""

    name = "mover"

    def __init__(
        self,
        store: Tables,
        journal: WorkerJournal,
        lookup: Lookup,
        backends: Mapping[int, Backend],
        keys: BlockKeys,
        targets: PlacementTargets,
        throttle: Callable[[int, int | None, float], int] = no_throttle,
        *,
        timing: Timing,
        at_once: int = AT_ONCE,
        bytes_at_once: int = BYTES_AT_ONCE,
        covers: Covers = no_fence,
    ) -> None:
        """*throttle*: as `BackgroundThrottle`. *covers*: where old copies may be deleted."""
        super().__init__(store, timing)
        self._journal = journal
        self._lookup = lookup
        self._targets = targets
        self._budget = Budget(bytes_at_once)
        self._throttle = throttle
        self._at_once = at_once
        self._backoff = WorkBackoff(journal, targets, WorkClock(store, timing.clock), timing)
        self.health = BackendHealth(targets, timing)
        copies = CopyOps(store, keys, backends, targets.is_local, covers)
        site_clock = SiteClock(store.query, clock_reader(timing.clock))
        self._old = OldCopies(journal, copies, targets, self.health, self._backoff, self._budget, timing, site_clock)
        self.copy_maker = CopyMaker(
            journal, lookup, copies, targets, self.health, self._backoff, self._old, self._gather
        )
        self._under_way: dict[bytes, asyncio.Task[bool]] = {}
        self._cursor = _START  # the row that was processed last: (due time, block)
        self._until_ns = 0  # rows that fall due later are left to the next pass
        self._may_begin = 0  # blocks that the throttle still allows
        self._progress = False  # a task of this pass recorded something
        self._caught_up = False  # no more rows are due
        self._skipped = 0  # rows of this pass that were passed over
        self._again = 0.0  # when the next pass may begin

    @property
    def dropped(self) -> int:
        """Old copies so far that were deleted."""
        return self._old.deleted

    @property
    def vanished(self) -> int:
        """Copies so far that a backend had confirmed, and that were not there when they were checked again."""
        return self._old.vanished

    @property
    def failed(self) -> int:
        """Blocks so far that could not be brought where they should be."""
        return self._backoff.failed

    async def _gather(self) -> None:
        """Wait until the records of other copies can join the same command."""
        await self._clock.sleep(self._timing.mover.gather_seconds if self._caught_up else 0.0)

    # ---- the loop ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            for task in self._under_way.values():
                task.cancel()
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def step(self) -> bool:
        if not self._targets.refresh() or not self._is_planned():
            return False
        if self._cursor == _START and not self._under_way:
            self._progress = self.held_back = False
            self._old.begin_pass()
            self._skipped = 0
        if not self._under_way and not self._ask_throttle():
            self.held_back = True
            return False
        self._caught_up = False
        await self._start_some()
        if self._under_way:
            await self._wait_for_some()
            self.held_back = self._old.held_back
            return True
        return self._end_of_rows()

    def _is_planned(self) -> bool:
        """Whether the planner has begun to walk under the present targets. If the targets change back later, the
        planner finds another fingerprint and starts a new walk, which examines every block that the mover has
        changed."""
        return self.store.query("SELECT fingerprint FROM plan") == [(self._targets.fingerprint,)]

    def _ask_throttle(self) -> bool:
        """Ask the throttle how many blocks may be begun, and note it. Returns whether any may."""
        now_ns = self._backoff.clock.now_ns()
        if self._cursor == _START:
            self._until_ns = now_ns
        ((oldest_ns,),) = self.store.query(_OLDEST, (now_ns,))
        self._may_begin = self._throttle(now_ns, oldest_ns, self._targets.within_seconds)
        return self._may_begin > 0

    def _end_of_rows(self) -> bool:
        """Begin another pass, if its time has come. It reads all rows again that were passed over, so the pause grows
        with their number. Returns whether the pass that ends recorded anything."""
        now, pauses = self._clock.monotonic(), self._timing.mover
        if self._cursor == _START or now < self._again:
            return False
        self._cursor = _START
        revisit_seconds = 0.0 if self._progress else pauses.revisit_seconds
        self._again = now + max(revisit_seconds, self._skipped * pauses.skip_seconds)
        return self._progress

    async def _start_some(self) -> None:
        """Start tasks for the next rows, as many as fit and as the throttle allows."""
        if not self._may_begin or len(self._under_way) > self._at_once * 3 // 4:
            return  # start many at a time, since each query costs as much as some of its rows
        while len(self._under_way) < self._at_once:
            rows = self.store.query(_ROWS, (self._until_ns, *self._cursor, ROWS))
            for row in rows:
                if len(self._under_way) >= self._at_once or not self._may_begin:
                    return
                self._cursor = (row[1], row[0])
                item = WorkItem._make((*row[:3], unpack_ids(row[3]), unpack_ids(row[4]), *row[5:]))
                if item.block in self._under_way:
                    continue
                if self._must_wait(item):
                    self._skipped += 1
                else:
                    self._may_begin -= 1
                    self._under_way[item.block] = asyncio.create_task(self._work(item))
            if len(rows) < ROWS:
                self._caught_up = True
                return
            await asyncio.sleep(0)

    def _must_wait(self, item: WorkItem) -> bool:
        """Whether everything that could be done for the block now would fail, since its backends are paused."""
        if not self.health:
            return False
        members = self._lookup.members(item.set_id)
        have = [each for each in members if each not in self._targets.lost]
        desired = self._targets.desired(item.policy, members)
        missing = desired.difference(have)
        only_drops = not missing and not item.suspects and (item.strays or desired != set(have))
        return not self.health.try_start_trials(item, have, missing, desired if only_drops else ())

    async def _wait_for_some(self) -> None:
        """Wait until a task ends; and a little longer if no more rows are due, so that several end together."""
        done, _ = await asyncio.wait(self._under_way.values(), return_when=asyncio.FIRST_COMPLETED)
        if self._caught_up:
            await self._clock.sleep(self._timing.mover.look_seconds)
            done = {task for task in self._under_way.values() if task.done()}
        for block in [block for block, task in self._under_way.items() if task in done]:
            self.health.end_trial(block)
            self._progress |= self._under_way.pop(block).result()

    # ---- one block --------------------------------------------------------------------------------------------------

    async def _work(self, item: WorkItem) -> bool:
        """Take the next step for a block. Returns whether that recorded anything."""
        try:
            if item.died:  # the sweeper deletes the block and its row; until then the block may come back to life
                return await self._backoff.postpone(item, "it is dead")
            with self._journal.reading():
                return await self._reconcile(item)
        except BackendFailed as failure:
            self.health.record_failure(failure)
            return False
        except errors.EntrepotError as error:
            _log.warning("block %s: %s", item.block.hex(), error)
            return False
        except Exception as error:  # noqa: BLE001 (the block is retried later, and the others go on)
            _log.exception("block %s", item.block.hex())
            return await self._backoff.retry(item, f"{type(error).__name__}: {error}")

    async def _reconcile(self, item: WorkItem) -> bool:
        members = self._lookup.members(item.set_id)
        have = [each for each in members if each not in self._targets.lost]
        desired = self._targets.desired(item.policy, members)
        if not item.suspects and desired == set(members):
            return await self._old.clear(item, desired)
        if not item.suspects and desired < set(have):
            return await self._old.drop(item, members, desired)
        async with self._budget.charged(item.size):
            return await self.copy_maker.make(item, members, have, desired)
