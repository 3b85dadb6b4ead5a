"""Reports absent and damaged copies, which readers find, to the journal. The mover then repairs them."""

from __future__ import annotations

import asyncio
import logging

from gateway.errors import EntrepotError
from gateway.journal.client import Journal
from gateway.reconcile.commands import SuspectCopy
from gateway.timing import Timing

MAX_SENDING = 256
"""While this many reports are being sent, further ones are dropped: a later read reports the copy again. Callers report
a few times per second."""

_log = logging.getLogger(__name__)


class SuspectReporter:
    """A callable that takes a block id, a backend's id and a word that says what is wrong. It never waits and never
    raises. For one event loop."""

    def __init__(self, journal: Journal, timing: Timing) -> None:
        self._journal = journal
        self._close_seconds = timing.backends.report_close_seconds
        self._sending: set[asyncio.Task[None]] = set()

    def __call__(self, block: bytes, backend: int, word: str) -> None:
        if len(self._sending) < MAX_SENDING:
            task = asyncio.create_task(self._send(SuspectCopy(block, backend, word)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Wait for a moment until the reports under way are sent, since a process may read once and end. Reports that
        take longer are dropped: a later read reports the copy again."""
        if self._sending:
            _, late = await asyncio.wait(self._sending, timeout=self._close_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _send(self, command: SuspectCopy) -> None:
        try:
            if await self._journal.send(command):
                _log.warning("block %s: a copy is %s and will be repaired", command.block.hex(), command.word)
        except EntrepotError as error:
            _log.warning("a copy that is %s could not be reported: %s", command.word, error)
