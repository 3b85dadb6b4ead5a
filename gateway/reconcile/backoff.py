"""Postponing a row of work that cannot be done now: it is retried later, and a block without any copy is reported."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection

from gateway.blocks.protocols import WorkerJournal
from gateway.journal.tables import WorkState
from gateway.reconcile.batching import CommandBatcher
from gateway.reconcile.clock import WorkClock
from gateway.reconcile.commands import Fail, FailWork, SuspectCopy
from gateway.reconcile.copy_ops import WorkItem
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.timing import Timing

ATTEMPTS = 10
"""After this many failed attempts a block is set aside: it is retried once a day."""

_log = logging.getLogger(__name__)


class WorkBackoff:
    """Postpones rows of work. Each method returns True: it recorded something."""

    def __init__(self, journal: WorkerJournal, targets: PlacementTargets, clock: WorkClock, timing: Timing) -> None:
        self._journal = journal
        self._targets = targets
        self.clock = clock
        self._pauses = timing.block_backoff
        self._fail = CommandBatcher(journal, FailWork)
        self.failed = 0
        """Blocks so far that could not be brought where they should be."""

    async def mark_lost(self, item: WorkItem, have: Collection[int]) -> bool:
        """Record that no good copy of the block is left. *have*: the backends that hold it by the journal."""
        names = ", ".join(self._targets.names[backend_id] for backend_id in have) or "a backend that was lost"
        _log.error("block %s is lost: no good copy on %s", item.block.hex(), names)
        self.failed += 1
        for backend_id in have:  # so that each copy is examined again before it counts as good
            await self._journal.send(SuspectCopy(item.block, backend_id, "absent or damaged"))
        return await self._until(
            item, self._pauses.aside_seconds, WorkState.LOST, item.attempts + 1, f"no good copy on {names}"
        )

    async def retry(self, item: WorkItem, reason: str) -> bool:
        """Record a failed attempt. Each attempt doubles the pause, and after `ATTEMPTS` it is a day."""
        self.failed += 1
        attempts = item.attempts + 1
        state = WorkState.ASIDE if attempts >= ATTEMPTS else WorkState.WAITING
        seconds = min(self._pauses.most_seconds, self._pauses.first_seconds * 2 ** min(attempts, 20))
        if state is WorkState.ASIDE:
            seconds = self._pauses.aside_seconds
        seconds *= random.uniform(0.5, 1.0)  # noqa: S311 (so that blocks that failed together are not retried together)
        return await self._until(item, seconds, state, attempts, reason)

    async def postpone(self, item: WorkItem, reason: str) -> bool:
        """Record that nothing is wrong, and that nothing can be done for a while."""
        return await self._until(item, self._pauses.pinned_seconds, WorkState.WAITING, item.attempts, reason)

    async def _until(self, item: WorkItem, seconds: float, state: WorkState, attempts: int, reason: str) -> bool:
        due_ns = self.clock.now_ns() + int(seconds * 1e9)
        await self._fail.send(Fail(item.block, due_ns, state, attempts, reason))
        return True
