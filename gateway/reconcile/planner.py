"""The planner: walks all blocks, in slices, and makes a row of work for each that is not where it should be.

It walks when what should be has changed (policies, backends, drains, losses): the fingerprint of that stands beside a
durable cursor, so a walk that was cut short goes on, and one under an older fingerprint begins anew. What a process
that did not yet know of the change wrote meanwhile may lie behind the cursor already: so a second walk follows the
first one, and from then on one a day.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Tables, WorkerJournal
from gateway.blocks.read.lookup import Lookup
from gateway.reconcile.clock import JournalClock
from gateway.reconcile.commands import AdvancePlan
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.timing import Timing

LOOKED = 2_000
"""Blocks that are looked at between two turns of the loop."""
NOTED = 256
"""Rows of work that one command makes."""
QUIET_SLICES = 16
"""After so many slices with nothing to note the cursor is made durable all the same."""
REST = 3.0
"""How many times as long as a command took nothing is asked of the committer: the foreground comes first."""


class Walk(NamedTuple):
    """As the table has it."""

    fingerprint: bytes
    after: bytes
    walks: int
    again_ns: int


class Planner(Worker):
    """Makes the rows that the mover works off."""

    name = "planner"

    def __init__(
        self, store: Tables, journal: WorkerJournal, lookup: Lookup, targets: PlacementTargets, *, timing: Timing
    ) -> None:
        super().__init__(store, timing)
        self._journal = journal
        self._lookup = lookup
        self._targets = targets
        self._journal_clock = JournalClock(store, timing.clock)
        self.noted = 0
        """Blocks so far."""

    async def step(self) -> bool:
        if not self._targets.refresh():
            return False
        walk = self._begun()
        if walk is None:
            return False
        before = walk.after
        for _ in range(QUIET_SLICES):
            walk, unsettled = self._slice(walk)
            if unsettled or walk.again_ns:
                return await self._advance(before, walk, unsettled)
            await asyncio.sleep(0)
            if not self._targets.refresh() or self._targets.fingerprint != walk.fingerprint:
                return True
        return await self._advance(before, walk, ())

    def _begun(self) -> Walk | None:
        """The walk that is under way, or due; None if none is."""
        rows = self.store.query("SELECT fingerprint, after, walks, again_ns FROM plan")
        if not rows or rows[0][0] != self._targets.fingerprint:
            return Walk(self._targets.fingerprint, b"", 0, 0)
        walk = Walk._make(rows[0])
        if not walk.again_ns:
            return walk
        return walk._replace(after=b"", again_ns=0) if walk.again_ns <= self._journal_clock.now_ns() else None

    def _slice(self, walk: Walk) -> tuple[Walk, tuple[bytes, ...]]:
        """Look at the blocks behind the cursor. Answers where it stands then, and which are to be noted."""
        rows = self.store.query(
            "SELECT id, backends, policy FROM block WHERE id > ? AND died = 0 ORDER BY id LIMIT ?", (walk.after, LOOKED)
        )
        unsettled: list[bytes] = []
        now_ns, after = self._journal_clock.now_ns(), walk.after
        for block, set_id, policy in rows:
            after = block
            held = self._lookup.members(set_id)
            if self._targets.desired(policy, held) != frozenset(held):
                unsettled.append(block)
                if len(unsettled) == NOTED:
                    return walk._replace(after=after), self._news(unsettled, walk, now_ns)
        news = self._news(unsettled, walk, now_ns)
        if len(rows) < LOOKED:
            walks = self._timing.planner
            seconds = walks.daily_walk_seconds if walk.walks else walks.second_walk_seconds
            return Walk(walk.fingerprint, b"", walk.walks + 1, now_ns + int(seconds * 1e9)), news
        return walk._replace(after=after), news

    def _news(self, blocks: list[bytes], walk: Walk, now_ns: int) -> tuple[bytes, ...]:
        """Those of *blocks* of which a row would say something new. In a first walk that is also what waits for its
        next try: under other policies it may go."""
        if not blocks:
            return ()
        marks = ", ".join("?" * len(blocks))
        latest_ns = now_ns if walk.walks == 0 else 1 << 62
        known = self.store.query(
            f"SELECT block FROM work WHERE block IN ({marks}) AND due_ns <= ?", (*blocks, latest_ns)
        )
        return tuple(sorted(set(blocks).difference(block for (block,) in known)))

    async def _advance(self, before: bytes, walk: Walk, unsettled: tuple[bytes, ...]) -> bool:
        began = self._clock.monotonic()
        command = AdvancePlan(
            walk.fingerprint, before, walk.after, walk.walks, walk.again_ns, unsettled, self._journal_clock.now_ns()
        )
        if await self._journal.send(command):
            self.noted += len(unsettled)
        if unsettled:
            await self._clock.sleep(REST * (self._clock.monotonic() - began))
        return True
