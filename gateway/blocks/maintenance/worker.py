"""What the background workers share: a loop that follows the journal, and what it needs of the journal's client.

A worker never hears from the front desk: it looks at the tables, does a bounded step, and looks again; with nothing to
do it waits until the journal has grown, or a while. Each step is idempotent and conditional on what was read, so that
a worker may be killed anywhere, and two of them do no harm.
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

    def __init__(self, store: Tables, timing: Timing) -> None:
        self.store = store
        self._timing = timing
        self._clock = timing.clock
        self.held_back = False
        """There is work that only waits for readers to go on: the journal need not grow for that."""

    @abstractmethod
    async def step(self) -> bool:
        """Do a bounded piece of work; False if there was none to do now."""

    async def run(self) -> None:
        """Work until cancelled. What fails is logged and tried again, less and less often."""
        pauses, failed_seconds = self._timing.workers, 0.0
        while True:
            seen = self.store.head()
            try:
                busy = await self.step()
                failed_seconds = 0.0
            except (EntrepotError, BackendError, OSError) as error:
                failed_seconds = min(pauses.failed_most_seconds, 2 * failed_seconds or pauses.poll_seconds)
                _log.warning("%s: %s: %s", self.name, type(error).__name__, error)
                await self._clock.sleep(failed_seconds)
                continue
            await (asyncio.sleep(0) if busy else self._quiet(seen))

    async def _quiet(self, seen: int) -> None:
        """Until the journal is longer than *seen*, or a while."""
        pauses = self._timing.workers
        until = self._clock.monotonic() + (pauses.held_back_seconds if self.held_back else pauses.idle_seconds)
        while self._clock.monotonic() < until:
            await self._clock.sleep(pauses.poll_seconds)
            if self.store.head() != seen:
                return
