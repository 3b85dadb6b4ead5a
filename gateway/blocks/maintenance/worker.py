"""The loop that all background workers share.

A worker is not notified of work. It reads the tables, does a bounded step, and reads them again. If there is nothing to
do, it waits until the journal has grown, or for a while. Each step is idempotent and conditional on what was read, so a
worker may be killed at any point, and two workers of a kind do no harm.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from backends.errors import BackendError
from gateway.blocks.protocols import Tables
from gateway.errors import EntrepotError
from gateway.timing import Timing

_log = logging.getLogger(__name__)


class Worker(ABC):
    """One kind of background work."""

    name: str
    """The worker's name in the log."""

    def __init__(self, store: Tables, timing: Timing) -> None:
        self.store = store
        self._timing = timing
        self._clock = timing.clock
        self.held_back = False
        """There is work that something other than a new record may unblock: a horizon, a fence, the throttle. So `run`
        looks again soon, even if the journal does not grow."""

    @abstractmethod
    async def step(self) -> bool:
        """Do a bounded piece of work. Returns whether there may be more to do now."""

    async def run(self) -> None:
        """Work until cancelled. Errors are logged, and the step is tried again after a growing pause."""
        pauses, failed_seconds = self._timing.workers, 0.0
        while True:
            head = self.store.head()
            try:
                busy = await self.step()
                failed_seconds = 0.0
            except (EntrepotError, BackendError, OSError) as error:
                failed_seconds = min(pauses.failed_most_seconds, 2 * failed_seconds or pauses.poll_seconds)
                _log.warning("%s: %s: %s", self.name, type(error).__name__, error)
                await self._clock.sleep(failed_seconds)
                continue
            await (asyncio.sleep(0) if busy else self._wait_for_records(head))

    async def _wait_for_records(self, head: int) -> None:
        """Wait until the journal's last record is not *head* any more, or for a while."""
        pauses = self._timing.workers
        until = self._clock.monotonic() + (pauses.held_back_seconds if self.held_back else pauses.idle_seconds)
        while self._clock.monotonic() < until:
            await self._clock.sleep(pauses.poll_seconds)
            if self.store.head() != head:
                return
