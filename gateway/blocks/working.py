"""What the background workers share: a loop that follows the journal, and what it needs of the journal's client.

A worker never hears from the front desk: it looks at the tables, does a bounded step, and looks again; with nothing to
do it waits until the journal has grown, or a while. Each step is idempotent and conditional on what was read, so that
a worker may be killed anywhere, and two of them do no harm.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from backends.errors import BackendError
from gateway.errors import EntrepotError

POLL_SECONDS = 0.25
"""How often an idle worker asks whether the journal has grown."""
IDLE_SECONDS = 5.0
"""After which it looks again in any case: some work falls due with time."""
HELD_BACK_SECONDS = 0.5
"""As `IDLE_SECONDS`, while there is work that waits for readers alone."""
FAILED_SECONDS_MAX = 30.0

_log = logging.getLogger(__name__)


class Journal(Protocol):
    """What workers ask of the journal's client."""

    async def send(self, command: Any, /) -> Any:
        """The command's answer."""

    async def floors(self, *, pins: bool = True) -> int:
        """What died at this number or before is out of everybody's sight; 0 while that is not known. Without *pins*,
        backups are not asked."""

    def reading(self) -> AbstractContextManager[Any]:
        """Held while reading: nothing that was alive when it began is deleted before it ends."""


class Tables(Protocol):
    """What workers ask of the read-only store."""

    def query(self, statement: str, values: Sequence[Any] = (), /) -> list[Any]: ...

    def head(self) -> int: ...

    def snapshot(self) -> AbstractContextManager[None]: ...


class Worker(ABC):
    """One kind of background work."""

    name: str

    def __init__(self, store: Tables) -> None:
        self.store = store
        self.held_back = False
        """There is work that only waits for readers to go on: the journal need not grow for that."""

    @abstractmethod
    async def step(self) -> bool:
        """Do a bounded piece of work; False if there was none to do now."""

    async def run(self) -> None:
        """Work until cancelled. What fails is logged and tried again, less and less often."""
        failed_seconds = 0.0
        while True:
            seen = self.store.head()
            try:
                busy = await self.step()
                failed_seconds = 0.0
            except (EntrepotError, BackendError, OSError) as error:
                failed_seconds = min(FAILED_SECONDS_MAX, 2 * failed_seconds or POLL_SECONDS)
                _log.warning("%s: %s: %s", self.name, type(error).__name__, error)
                await asyncio.sleep(failed_seconds)
                continue
            await (asyncio.sleep(0) if busy else self._quiet(seen))

    async def _quiet(self, seen: int) -> None:
        """Until the journal is longer than *seen*, or a while."""
        seconds = HELD_BACK_SECONDS if self.held_back else IDLE_SECONDS
        for _ in range(int(seconds / POLL_SECONDS)):
            await asyncio.sleep(POLL_SECONDS)
            if self.store.head() != seen:
                return
