"""The mover: works off the rows of work, many at a time: copies are made, mended, dropped, and at last their bytes go.

**The crash argument**, for each block:
1. *Begun*: a record says on which further backends bytes of it may lie from now on (its strays).
2. *Put*: a good copy, verified frame by frame, is put there; it counts once the backend has confirmed its checksum.
   Where bytes of it may lie already, and finding out costs less than putting, it is looked at first.
3. *Settled*: one record, conditional on the set that was read, names the set that holds it now: those that held it
   before, and those where it was put.
4. *Let go of*: those that should not hold it are taken out of its set, and their bytes deleted, only after a wait and
   after those that should hold it were asked again (`old_copies`, with the argument). Only then does the row go.

Killed anywhere, the row stands and names every place where bytes may be; everything is done again, to the same end. A
block that dies meanwhile is the sweeper's, which deletes strays as well; it waits for this process's horizon, which is
held from before step 1 until step 3 was answered.

What falls due while some is worked on waits until that is done; and where clients are in the way of it, they go
first, for a while, and then a few blocks at a time are worked on (`giving_way`).

Work whose backend is in trouble is passed over, in memory, until that has rested: it costs no record, and holds up
nobody behind it. One that is full takes nothing, but it is read and emptied all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from backends.base import Backend, Buffer
from gateway import errors, failpoints
from gateway.blocks.budget import Budget
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Covers, Tables, WorkerJournal, no_fence
from gateway.blocks.read.lookup import Lookup
from gateway.crypto.sealing import BlockKeys
from gateway.journal.apply.work import ids_in
from gateway.journal.site_clock import SiteClock, moments
from gateway.reconcile.backend_health import BackendHealth
from gateway.reconcile.backoff import WorkBackoff
from gateway.reconcile.batching import Batching
from gateway.reconcile.clock import JournalClock
from gateway.reconcile.commands import (
    Begin,
    BeginWork,
    ClearCopies,
    Settle,
    SettleWork,
    SuspectCopy,
)
from gateway.reconcile.copy_ops import BackendFailed, CopyOps, Task
from gateway.reconcile.old_copies import OldCopies
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.reconcile.throttle import no_throttle
from gateway.timing import Timing

AT_ONCE = 64
"""Blocks that are worked on at a time, and"""
BYTES_AT_ONCE = 64 << 20
"""the sealed bytes of them that are held."""
_ROWS = (
    "SELECT w.block, w.due_ns, w.attempts, w.suspects, w.strays, w.strays_number, w.placed_ns, b.ring_key, b.size, "
    "b.crc32c, b.backends, b.policy, b.died FROM work w JOIN block b ON b.id = w.block "
    "WHERE w.due_ns <= ? AND (w.due_ns, w.block) > (?, ?) ORDER BY w.due_ns, w.block LIMIT ?"
)
_OLDEST = "SELECT min(due_ns) FROM work WHERE due_ns <= ?"
_START = (0, b"")
ROWS = 256
"""Looked at between two turns of the loop."""
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
        """*covers*: where old copies may be deleted."""
        super().__init__(store, timing)
        self._journal = journal
        self._lookup = lookup
        self._targets = targets
        self._copies = CopyOps(store, keys, backends, targets.is_local, covers)
        self._budget = Budget(bytes_at_once)
        self._throttle = throttle
        self._at_once = at_once
        self._begin = Batching(journal, BeginWork)
        self._settle = Batching(journal, SettleWork, self._gather)
        self._backoff = WorkBackoff(journal, targets, JournalClock(store, timing.clock), timing)
        self.health = BackendHealth(targets, timing)
        site_clock = SiteClock(store.query, moments(timing.clock))
        self._old = OldCopies(
            journal, self._copies, targets, self.health, self._backoff, self._budget, timing, site_clock
        )
        self._under_way: dict[bytes, asyncio.Task[bool]] = {}
        self._cursor = _START
        self._until_ns = self._may_begin = 0
        self._progress = self._caught_up = False
        self._skipped = 0
        self._again = 0.0
        self.copied = self.copied_bytes = self.mended = self.found = 0

    @property
    def dropped(self) -> int:
        """Old copies so far that were deleted."""
        return self._old.deleted

    @property
    def vanished(self) -> int:
        """Copies so far that a backend had confirmed, and that were not there when they were asked for again."""
        return self._old.vanished

    @property
    def failed(self) -> int:
        """Blocks so far that could not be brought where they should be."""
        return self._backoff.failed

    async def _gather(self) -> None:
        """Wait until other copies have come along that the journal can hear of in the same command."""
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
        if not self._under_way and not self._may_start():
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
        """The planner knows what should be now: so where it changes back, all that is done until then is walked."""
        return self.store.query("SELECT fingerprint FROM plan") == [(self._targets.fingerprint,)]

    def _may_start(self) -> bool:
        """Whether any of what is due may be begun, or all gives way to somebody."""
        now_ns = self._backoff.clock.now_ns()
        if self._cursor == _START:
            self._until_ns = now_ns
        ((oldest_ns,),) = self.store.query(_OLDEST, (now_ns,))
        self._may_begin = self._throttle(now_ns, oldest_ns, self._targets.within_seconds)
        return self._may_begin > 0

    def _end_of_rows(self) -> bool:
        """Begin anew, sooner or later: all of them that are passed over are looked at again."""
        now, pauses = self._clock.monotonic(), self._timing.mover
        if self._cursor == _START or now < self._again:
            return False
        self._cursor = _START
        revisit_seconds = 0.0 if self._progress else pauses.revisit_seconds
        self._again = now + max(revisit_seconds, self._skipped * pauses.skip_seconds)
        return self._progress

    async def _start_some(self) -> None:
        """Begin as many of the next rows as there is room for, and as may be begun."""
        if not self._may_begin or len(self._under_way) > self._at_once * 3 // 4:
            return  # many at a time: each look at the tables costs as much as some of what it finds
        while len(self._under_way) < self._at_once:
            rows = self.store.query(_ROWS, (self._until_ns, *self._cursor, ROWS))
            for row in rows:
                if len(self._under_way) >= self._at_once or not self._may_begin:
                    return
                self._cursor = (row[1], row[0])
                task = Task._make((*row[:3], ids_in(row[3]), ids_in(row[4]), *row[5:]))
                if task.block in self._under_way:
                    continue
                if self._must_wait(task):
                    self._skipped += 1
                else:
                    self._may_begin -= 1
                    self._under_way[task.block] = asyncio.create_task(self._work(task))
            if len(rows) < ROWS:
                self._caught_up = True
                return
            await asyncio.sleep(0)

    def _must_wait(self, task: Task) -> bool:
        """Whether all that could be done for it now would fail: its backends rest."""
        if not self.health:
            return False
        members = self._lookup.members(task.set_id)
        have = [each for each in members if each not in self._targets.lost]
        desired = self._targets.desired(task.policy, members)
        missing = desired.difference(have)
        lets_go = not missing and not task.suspects and (task.strays or desired != set(have))
        return self.health.must_wait(task, have, missing, desired if lets_go else ())

    async def _wait_for_some(self) -> None:
        done, _ = await asyncio.wait(self._under_way.values(), return_when=asyncio.FIRST_COMPLETED)
        if self._caught_up:
            await self._clock.sleep(self._timing.mover.look_seconds)
            done = {task for task in self._under_way.values() if task.done()}
        for block in [block for block, task in self._under_way.items() if task in done]:
            self.health.end_trial(block)
            self._progress |= self._under_way.pop(block).result()

    # ---- one block --------------------------------------------------------------------------------------------------

    async def _work(self, task: Task) -> bool:
        """Answers whether anything came of it."""
        try:
            if task.died:  # the sweeper takes it, and its row; it may come back to life as long as it has not
                return await self._backoff.postpone(task, "it is dead")
            with self._journal.reading():
                return await self._reconcile(task)
        except BackendFailed as trouble:
            self.health.record_failure(trouble)
            return False
        except errors.EntrepotError as error:
            _log.warning("block %s: %s", task.block.hex(), error)
            return False
        except Exception as error:  # noqa: BLE001 (it is put off, and the others go on)
            _log.exception("block %s", task.block.hex())
            return await self._backoff.retry(task, f"{type(error).__name__}: {error}")

    async def _reconcile(self, task: Task) -> bool:
        members = self._lookup.members(task.set_id)
        have = [each for each in members if each not in self._targets.lost]
        desired = self._targets.desired(task.policy, members)
        if not task.suspects and desired == set(members):
            return await self._old.clear(task, desired)
        if not task.suspects and desired < set(have):
            return await self._old.drop(task, members, desired)
        async with self._budget.charged(task.size):
            return await self._make_copies(task, members, have, desired)

    async def _make_copies(
        self, task: Task, members: tuple[int, ...], have: list[int], desired: frozenset[int]
    ) -> bool:
        began = self.health.clock()
        copy, bad, good = await self._find_copies(task, have, desired)
        missing = desired.difference(have)
        wanted = {place for place in missing | (bad & desired) if self.health.can_write(place, task.block)}
        if copy is None:
            return await self._backoff.mark_lost(task, have) if set(have) <= bad else False
        if task.placed_ns:  # a copy that is made now was not there during the wait: so that begins anew
            for place in sorted((bad & desired).difference(task.suspects)):
                await self._journal.send(SuspectCopy(task.block, place, "absent or damaged"))
        there, wrong = await self._find_present(task, copy, wanted & missing)
        self.health.record_success(there, began)
        wanted -= there.union(error.place for error in wrong)
        new = tuple(sorted(wanted & missing))
        if new:
            if not await self._begin.send(Begin(task.block, task.set_id, new)):
                return True
            failpoints.reach("copies-begun")
        put, failures = await self._copies.put(task, copy, sorted(wanted))
        self.health.record_stored(put, began)
        if put:
            failpoints.reach("copies-put")
        self._count(task, put, bad)
        put |= there
        good |= put
        if desired - set(have) - put or (bad & desired) - put:
            held, placed = set(have) | put, False
        else:
            held, placed = set(desired).union(set(have) - bad), True
        progress = await self._record_holders(task, members, held, good, desired, placed=placed)
        odd = None
        for error in (*wrong, *failures):
            if self.health.is_rejection(error, task.block):
                odd = error
            else:
                self.health.record_failure(error)
        return progress if odd is None else await self._backoff.retry(task, str(odd))

    async def _find_copies(
        self, task: Task, have: list[int], desired: frozenset[int]
    ) -> tuple[Buffer | None, set[int], set[int]]:
        """A good copy if any, which ones are bad, and which good. All that are suspected are looked at; of the others
        one, and the next where that is bad; last of all what no set names, and what was given up, as far as it answers
        all the same: its copies do not count, but one that can still be had need not be lost."""
        copy: Buffer | None = None
        bad: set[int] = set()
        good: set[int] = set()
        trouble: BackendFailed | None = None
        suspected = [place for place in have if place in task.suspects]
        others = sorted(
            (place for place in have if place not in task.suspects),
            key=lambda place: (not self.health.can_read(place, task.block), place not in desired),
        )
        last = [place for place in task.strays if place not in have and place not in self._targets.lost]
        given_up = [place for place in self._lookup.members(task.set_id) if place in self._targets.lost]
        for place in [*suspected, *others, *last, *given_up]:
            if copy is not None and place not in task.suspects:
                break
            if place in given_up and place in self.health.call_backoff:
                continue
            began = self.health.clock()
            try:
                found = await self._copies.examine(task, place, alone=have == [place])
            except BackendFailed as error:
                trouble = trouble if place in given_up else error
                self.health.record_failure(error)
                continue
            (bad if found is None else good).add(place)
            if found is not None:
                self.health.record_success([place], began)
                copy = found
        if copy is None and trouble is not None:
            raise trouble
        return copy, bad, good

    async def _find_present(self, task: Task, copy: Buffer, missing: set[int]) -> tuple[set[int], list[BackendFailed]]:
        """Where the copy stands already, of the places where it may: a put behind an answer has ended, or one of our
        own before a kill. And what could not be asked."""
        there: set[int] = set()
        wrong: list[BackendFailed] = []
        for place in sorted(missing.intersection(task.strays)):
            try:
                if await self._copies.is_present(task, copy, place):
                    there.add(place)
            except BackendFailed as trouble:
                wrong.append(trouble)
        self.found += len(there)
        return there, wrong

    async def _record_holders(
        self,
        task: Task,
        members: tuple[int, ...],
        held: set[int],
        good: set[int],
        desired: frozenset[int],
        *,
        placed: bool,
    ) -> bool:
        """The journal says who holds it now, and which copies are good again. Only a set with a good copy is named.
        *placed*: all of *should* have confirmed it, and the wait for those that should not hold it begins."""
        progress = False
        settled = good.union(each for each in task.suspects if each not in held).intersection(task.suspects)
        if settled:
            await self._journal.send(ClearCopies(task.block, tuple(sorted(settled))))
            progress = True
        if held != set(members) and held & good:
            goes = held.union(members, task.strays) - desired - self._targets.lost
            times = self._old.begin_wait() if placed and goes else (0, 0)
            item = Settle(task.block, task.set_id, members, tuple(sorted(held)), held == desired, *times)
            progress = await self._settle.send(item) or progress
            failpoints.reach("copies-settled")
        return progress

    def _count(self, task: Task, put: set[int], bad: set[int]) -> None:
        self.copied += len(put - bad)
        self.mended += len(put & bad)
        self.copied_bytes += len(put) * task.size
