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


class Stored(NamedTuple):
    """The result of putting a good copy on several backends."""

    confirmed: set[int]
    """The backends that confirmed it, or had it already."""
    failures: list[BackendFailed]


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

    async def make(self, item: WorkItem, members: tuple[int, ...], have: list[int], desired: frozenset[int]) -> bool:
        """Bring good copies of a block to all of *desired*, as far as backends allow. *members*: the block's set.
        *have*: those of its members that are not lost. Returns whether anything was recorded. Raises `BackendFailed`
        if no copy could be read although one may be good."""
        copy, bad, good = await self._examine(item, have, desired)
        if copy is None:
            return await self._backoff.mark_lost(item, have) if set(have) <= bad else False
        if item.placed_ns:  # a copy that is made now did not exist during the wait: `SuspectCopy` begins that again
            for backend_id in sorted((bad & desired).difference(item.suspects)):
                await self._journal.send(SuspectCopy(item.block, backend_id, "absent or damaged"))
        stored = await self._store(item, copy, desired.difference(have), bad & desired)
        if stored is None:
            return True
        good |= stored.confirmed
        if desired.difference(have) <= stored.confirmed and bad & desired <= stored.confirmed:
            held, placed = set(desired).union(set(have) - bad), True
        else:
            held, placed = set(have) | stored.confirmed, False
        progress = await self._record_holders(item, members, held, good, desired, placed=placed)
        rejection = self._record_failures(item, stored.failures)
        return progress if rejection is None else await self._backoff.retry(item, str(rejection))

    async def _store(self, item: WorkItem, copy: Buffer, missing: frozenset[int], bad: set[int]) -> Stored | None:
        """Put *copy* on those of *missing* and *bad* that take copies now. *missing*: the backends that should hold the
        block and do not. *bad*: those whose copies should be replaced. Returns None if the row of work has changed
        meanwhile."""
        began = self._health.clock()
        wanted = {backend_id for backend_id in missing | bad if self._health.can_write(backend_id, item.block)}
        present, failures = await self._find_present(item, copy, wanted & missing)
        self._health.record_success(present, began)
        wanted -= present.union(failure.backend_id for failure in failures)
        new = tuple(sorted(wanted & missing))
        if new:
            if not await self._begin.send(Begin(item.block, item.set_id, new)):
                return None
            failpoints.reach("copies-begun")
        put, put_failures = await self._copies.put(item, copy, sorted(wanted))
        self._health.record_stored(put, began)
        if put:
            failpoints.reach("copies-put")
        self._count(item, put, bad)
        return Stored(put | present, [*failures, *put_failures])

    async def _examine(self, item: WorkItem, have: list[int], desired: frozenset[int]) -> Examined:
        """Find a good copy, and judge the suspected ones.

        All suspected copies are examined, and of the others one, and the next one if that is bad. Then come the strays,
        and last of all backends that were given up as lost, if they answer all the same: their copies do not count, but
        a block need not be lost while one can still be read. Raises `BackendFailed` if no good copy was found and a
        backend that is not lost could not be read."""
        copy: Buffer | None = None
        bad: set[int] = set()
        good: set[int] = set()
        last_failure: BackendFailed | None = None
        suspected = [backend_id for backend_id in have if backend_id in item.suspects]
        others = sorted(
            (backend_id for backend_id in have if backend_id not in item.suspects),
            key=lambda backend_id: (not self._health.can_read(backend_id, item.block), backend_id not in desired),
        )
        strays = [
            backend_id for backend_id in item.strays if backend_id not in have and backend_id not in self._targets.lost
        ]
        given_up = [backend_id for backend_id in self._lookup.members(item.set_id) if backend_id in self._targets.lost]
        for backend_id in [*suspected, *others, *strays, *given_up]:
            if copy is not None and backend_id not in item.suspects:
                break
            if backend_id in given_up and backend_id in self._health.call_backoff:
                continue
            began = self._health.clock()
            try:
                value = await self._copies.examine(item, backend_id, allow_open_file=have == [backend_id])
            except BackendFailed as failure:
                last_failure = last_failure if backend_id in given_up else failure
                self._health.record_failure(failure)
                continue
            (bad if value is None else good).add(backend_id)
            if value is not None:
                self._health.record_success([backend_id], began)
                copy = value
        if copy is None and last_failure is not None:
            raise last_failure
        return Examined(copy, bad, good)

    async def _find_present(
        self, item: WorkItem, copy: Buffer, missing: set[int]
    ) -> tuple[set[int], list[BackendFailed]]:
        """Return those of *missing* that have *copy* already, and the failures of those that could not be asked.

        Only strays are asked: a client's put that ended after its answer may have arrived there, or a put of this mover
        before it was killed."""
        present: set[int] = set()
        failures: list[BackendFailed] = []
        for backend_id in sorted(missing.intersection(item.strays)):
            try:
                if await self._copies.is_present(item, copy, backend_id):
                    present.add(backend_id)
            except BackendFailed as failure:
                failures.append(failure)
        self.already_present += len(present)
        return present, failures

    async def _record_holders(
        self,
        item: WorkItem,
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
        cleared = good.union(each for each in item.suspects if each not in held).intersection(item.suspects)
        if cleared:
            await self._journal.send(ClearCopies(item.block, tuple(sorted(cleared))))
            progress = True
        if held != set(members) and held & good:
            leaving = held.union(members, item.strays) - desired - self._targets.lost
            times = self._old.begin_wait() if placed and leaving else (0, 0)
            holders = SetHolders(item.block, item.set_id, members, tuple(sorted(held)), held == desired, *times)
            progress = await self._set_holders.send(holders) or progress
            failpoints.reach("holders-recorded")
        return progress

    def _record_failures(self, item: WorkItem, failures: list[BackendFailed]) -> BackendFailed | None:
        """Record the failures of backends. Returns one that is taken for a fault of the block, if there is any."""
        rejection = None
        for failure in failures:
            if self._health.record_rejection_of(failure, item.block):
                rejection = failure
            else:
                self._health.record_failure(failure)
        return rejection

    def _count(self, item: WorkItem, put: set[int], bad: set[int]) -> None:
        self.new += len(put - bad)
        self.repaired += len(put & bad)
        self.bytes += len(put) * item.size
