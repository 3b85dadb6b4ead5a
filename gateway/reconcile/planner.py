"""The planner: walks all blocks, in slices, and makes a row of work for each that is not where it should be.

A walk starts when what decides about placement has changed: policies, backends, drains, losses (`PlacementTargets`).
The table `plan` holds a fingerprint of it and a durable cursor. So an interrupted walk continues, and a walk under an
older fingerprint starts again. A process that did not yet know of the change may have written blocks that the cursor
has already passed. So a second walk follows the first one, and then one a day."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Tables, WorkerJournal
from gateway.blocks.read.lookup import Lookup
from gateway.reconcile.clock import WorkClock
from gateway.reconcile.commands import AdvancePlan
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.timing import Timing

SLICE_BLOCKS = 2_000
"""Blocks that are examined between two turns of the event loop."""
MAX_ROWS = 256
"""Most rows of work that one command makes."""
QUIET_SLICES = 16
"""After this many slices without a row to make, the cursor is made durable all the same."""
REST_FACTOR = 3.0
"""After a command the planner pauses this many times as long as it took, so that clients' commands come first."""


class Walk(NamedTuple):
    """The row of the table `plan`."""

    fingerprint: bytes
    after: bytes
    walks: int
    again_ns: int


class Planner(Worker):
    """Makes the rows that the mover processes."""

    name = "planner"

    def __init__(
        self, store: Tables, journal: WorkerJournal, lookup: Lookup, targets: PlacementTargets, *, timing: Timing
    ) -> None:
        super().__init__(store, timing)
        self._journal = journal
        self._lookup = lookup
        self._targets = targets
        self._work_clock = WorkClock(store, timing.clock)
        self.noted = 0
        """Blocks so far for which a row was made."""

    async def step(self) -> bool:
        if not self._targets.refresh():
            return False
        walk = self._current_walk()
        if walk is None:
            return False
        before = walk.after
        for _ in range(QUIET_SLICES):
            walk, misplaced = self._examine_slice(walk)
            if misplaced or walk.again_ns:
                return await self._advance(before, walk, misplaced)
            await asyncio.sleep(0)
            if not self._targets.refresh() or self._targets.fingerprint != walk.fingerprint:
                return True
        return await self._advance(before, walk, ())

    def _current_walk(self) -> Walk | None:
        """Return the walk that is under way or due; None if there is none."""
        rows = self.store.query("SELECT fingerprint, after, walks, again_ns FROM plan")
        if not rows or rows[0][0] != self._targets.fingerprint:
            return Walk(self._targets.fingerprint, b"", 0, 0)
        walk = Walk._make(rows[0])
        if not walk.again_ns:
            return walk
        return walk._replace(after=b"", again_ns=0) if walk.again_ns <= self._work_clock.now_ns() else None

    def _examine_slice(self, walk: Walk) -> tuple[Walk, tuple[bytes, ...]]:
        """Examine the next blocks after the cursor. Returns the walk with its new cursor, and the blocks that need a
        row of work."""
        rows = self.store.query(
            "SELECT id, backends, policy FROM block WHERE id > ? AND died = 0 ORDER BY id LIMIT ?",
            (walk.after, SLICE_BLOCKS),
        )
        misplaced: list[bytes] = []
        now_ns, after = self._work_clock.now_ns(), walk.after
        for block, set_id, policy in rows:
            after = block
            held = self._lookup.members(set_id)
            if self._targets.desired(policy, held) != frozenset(held):
                misplaced.append(block)
                if len(misplaced) == MAX_ROWS:
                    return walk._replace(after=after), self._without_row(misplaced, walk, now_ns)
        new = self._without_row(misplaced, walk, now_ns)
        if len(rows) < SLICE_BLOCKS:
            timing = self._timing.planner
            seconds = timing.daily_walk_seconds if walk.walks else timing.second_walk_seconds
            return Walk(walk.fingerprint, b"", walk.walks + 1, now_ns + int(seconds * 1e9)), new
        return walk._replace(after=after), new

    def _without_row(self, blocks: list[bytes], walk: Walk, now_ns: int) -> tuple[bytes, ...]:
        """Return those of *blocks* that need a new row of work. In a first walk these include blocks whose row waits
        for its next attempt: under the new policies the attempt may succeed now."""
        if not blocks:
            return ()
        marks = ", ".join("?" * len(blocks))
        latest_ns = now_ns if walk.walks == 0 else 1 << 62
        known = self.store.query(
            f"SELECT block FROM work WHERE block IN ({marks}) AND due_ns <= ?", (*blocks, latest_ns)
        )
        return tuple(sorted(set(blocks).difference(block for (block,) in known)))

    async def _advance(self, before: bytes, walk: Walk, misplaced: tuple[bytes, ...]) -> bool:
        began = self._clock.monotonic()
        command = AdvancePlan(
            walk.fingerprint, before, walk.after, walk.walks, walk.again_ns, misplaced, self._work_clock.now_ns()
        )
        if await self._journal.send(command):
            self.noted += len(misplaced)
        if misplaced:
            await self._clock.sleep(REST_FACTOR * (self._clock.monotonic() - began))
        return True
