"""What a process that reads says of copies that are no good: a command to the journal, on which the mover works."""

from __future__ import annotations

import asyncio
import logging

from gateway.errors import EntrepotError
from gateway.journal.client import Journal
from gateway.reconcile.commands import SuspectCopy
from gateway.timing import Timing

MOST_AT_ONCE = 256
"""More than so many on their way are left to a later read. Who reports does so a few times a second."""

_log = logging.getLogger(__name__)


class SuspectReporter:
    """Called with a block, a backend's id and a word. Never waits, never raises. For one event loop."""

    def __init__(self, journal: Journal, timing: Timing) -> None:
        self._journal = journal
        self._close_seconds = timing.backends.report_close_seconds
        self._sending: set[asyncio.Task[None]] = set()

    def __call__(self, block: bytes, backend: int, word: str) -> None:
        if len(self._sending) < MOST_AT_ONCE:
            task = asyncio.create_task(self._send(SuspectCopy(block, backend, word)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Let what is on its way arrive: who reads once and ends would say nothing otherwise. Not for long, and what
        does not is left to a later read."""
        if self._sending:
            _, late = await asyncio.wait(self._sending, timeout=self._close_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _send(self, command: SuspectCopy) -> None:
        try:
            if await self._journal.send(command):
                _log.warning("block %s: a copy is %s and is going to be mended", command.block.hex(), command.word)
        except EntrepotError as error:
            _log.warning("a copy that is %s could not be reported: %s", command.word, error)
