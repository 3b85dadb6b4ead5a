"""Makes the missing and bad copies of one block: steps 1 to 3 of the mover's crash argument (`mover.py`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from backends.base import Buffer
from gateway import failpoints
from gateway.blocks.protocols import WorkerJournal
from gateway.blocks.read.lookup import Lookup
from gateway.reconcile.backend_health import BackendHealth
from gateway.reconcile.backoff import WorkBackoff
from gateway.reconcile.batching import CommandBatcher
from gateway.reconcile.commands import Begin, BeginWork, ClearCopies, SetBlockHolders, SetHolders, SuspectCopy
from gateway.reconcile.copy_ops import BackendFailed, CopyOps, WorkItem
from gateway.reconcile.old_copies import OldCopies
from gateway.reconcile.placement_targets import PlacementTargets


class Examined(NamedTuple):
    """The result of examining the copies of a block."""

    copy: Buffer | None
    """A good copy; None if there is none."""
    bad: set[int]
    """The backends whose copies are absent or damaged."""
    good: set[int]
    """The backends whose copies were found to be good."""


class CopyMaker:
    """Makes copies for the mover, and counts them."""

    def __init__(
        self,
        journal: WorkerJournal,
        lookup: Lookup,
        copies: CopyOps,
        targets: PlacementTargets,
        health: BackendHealth,
        backoff: WorkBackoff,
        old: OldCopies,
        gather: Callable[[], Awaitable[None]],
    ) -> None:
        """*gather*: awaited before a batch of new holders is sent, so that others can join it."""
        self._journal = journal
        self._lookup = lookup
        self._copies = copies
        self._targets = targets
        self._health = health
        self._backoff = backoff
        self._old = old
        self._begin = CommandBatcher(journal, BeginWork)
        self._set_holders = CommandBatcher(journal, SetBlockHolders, gather)
        self.new = self.repaired = self.bytes = 0
        """Copies put on further backends; copies that replaced bad ones; sealed bytes of both."""
        self.already_present = 0
        """Copies that were there already, so that no put was needed."""

    async def make(self, task: WorkItem, members: tuple[int, ...], have: list[int], desired: frozenset[int]) -> bool:
        """Bring good copies of a block to all of *desired*, as far as backends allow. *members*: the block's set.
        *have*: those of its members that are not lost. Returns whether anything was recorded. Raises `BackendFailed`
        if no copy could be read although one may be good."""
        began = self._health.clock()
        copy, bad, good = await self._examine(task, have, desired)
        missing = desired.difference(have)
        wanted = {place for place in missing | (bad & desired) if self._health.can_write(place, task.block)}
        if copy is None:
            return await self._backoff.mark_lost(task, have) if set(have) <= bad else False
        if task.placed_ns:  # a copy that is made now did not exist during the wait: `SuspectCopy` begins that again
            for place in sorted((bad & desired).difference(task.suspects)):
                await self._journal.send(SuspectCopy(task.block, place, "absent or damaged"))
        present, failures = await self._find_present(task, copy, wanted & missing)
        self._health.record_success(present, began)
        wanted -= present.union(failure.place for failure in failures)
        new = tuple(sorted(wanted & missing))
        if new:
            if not await self._begin.send(Begin(task.block, task.set_id, new)):
                return True
            failpoints.reach("copies-begun")
        put, put_failures = await self._copies.put(task, copy, sorted(wanted))
        self._health.record_stored(put, began)
        if put:
            failpoints.reach("copies-put")
        self._count(task, put, bad)
        put |= present
        good |= put
        if desired - set(have) - put or (bad & desired) - put:
            held, placed = set(have) | put, False
        else:
            held, placed = set(desired).union(set(have) - bad), True
        progress = await self._record_holders(task, members, held, good, desired, placed=placed)
        rejection = self._record_failures(task, [*failures, *put_failures])
        return progress if rejection is None else await self._backoff.retry(task, str(rejection))

    async def _examine(self, task: WorkItem, have: list[int], desired: frozenset[int]) -> Examined:
        """Find a good copy, and judge the suspected ones.

        All suspected copies are examined, and of the others one, and the next one if that is bad. Then come the strays,
        and last of all backends that were given up as lost, if they answer all the same: their copies do not count, but
        a block need not be lost while one can still be read. Raises `BackendFailed` if no good copy was found and a
        backend that is not lost could not be read."""
        copy: Buffer | None = None
        bad: set[int] = set()
        good: set[int] = set()
        last_failure: BackendFailed | None = None
        suspected = [place for place in have if place in task.suspects]
        others = sorted(
            (place for place in have if place not in task.suspects),
            key=lambda place: (not self._health.can_read(place, task.block), place not in desired),
        )
        strays = [place for place in task.strays if place not in have and place not in self._targets.lost]
        given_up = [place for place in self._lookup.members(task.set_id) if place in self._targets.lost]
        for place in [*suspected, *others, *strays, *given_up]:
            if copy is not None and place not in task.suspects:
                break
            if place in given_up and place in self._health.call_backoff:
                continue
            began = self._health.clock()
            try:
                value = await self._copies.examine(task, place, allow_open_file=have == [place])
            except BackendFailed as failure:
                last_failure = last_failure if place in given_up else failure
                self._health.record_failure(failure)
                continue
            (bad if value is None else good).add(place)
            if value is not None:
                self._health.record_success([place], began)
                copy = value
        if copy is None and last_failure is not None:
            raise last_failure
        return Examined(copy, bad, good)

    async def _find_present(
        self, task: WorkItem, copy: Buffer, missing: set[int]
    ) -> tuple[set[int], list[BackendFailed]]:
        """Return those of *missing* that have *copy* already, and the failures of those that could not be asked.

        Only strays are asked: a client's put that ended after its answer may have arrived there, or a put of this mover
        before it was killed."""
        present: set[int] = set()
        failures: list[BackendFailed] = []
        for place in sorted(missing.intersection(task.strays)):
            try:
                if await self._copies.is_present(task, copy, place):
                    present.add(place)
            except BackendFailed as failure:
                failures.append(failure)
        self.already_present += len(present)
        return present, failures

    async def _record_holders(
        self,
        task: WorkItem,
        members: tuple[int, ...],
        held: set[int],
        good: set[int],
        desired: frozenset[int],
        *,
        placed: bool,
    ) -> bool:
        """Record that *held* holds the block now, and which suspected copies are good again. Only a set with a good
        copy is recorded. *placed*: all of *desired* have confirmed the block, so the wait for the old copies begins.
        Returns whether anything was recorded."""
        progress = False
        cleared = good.union(each for each in task.suspects if each not in held).intersection(task.suspects)
        if cleared:
            await self._journal.send(ClearCopies(task.block, tuple(sorted(cleared))))
            progress = True
        if held != set(members) and held & good:
            leaving = held.union(members, task.strays) - desired - self._targets.lost
            times = self._old.begin_wait() if placed and leaving else (0, 0)
            item = SetHolders(task.block, task.set_id, members, tuple(sorted(held)), held == desired, *times)
            progress = await self._set_holders.send(item) or progress
            failpoints.reach("holders-recorded")
        return progress

    def _record_failures(self, task: WorkItem, failures: list[BackendFailed]) -> BackendFailed | None:
        """Record the failures of backends. Returns one that is taken for a fault of the block, if there is any."""
        rejection = None
        for failure in failures:
            if self._health.record_rejection_of(failure, task.block):
                rejection = failure
            else:
                self._health.record_failure(failure)
        return rejection

    def _count(self, task: WorkItem, put: set[int], bad: set[int]) -> None:
        self.new += len(put - bad)
        self.repaired += len(put & bad)
        self.bytes += len(put) * task.size
