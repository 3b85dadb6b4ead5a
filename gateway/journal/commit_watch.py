"""Ends a committer whose commit thread hangs while its event loop goes on.

Such a process renews leases and answers nothing: its supervisor and its clients hear of it, and take it for well.

Why ending it is safe: nothing in the batch that the thread works on was answered, so this is the crash between two
answers of `committing.py`. Either the transaction is durable, and clients that send the same commands again get its
answers, or nothing of it stands. It ends by SIGKILL: a hung thread cannot be stopped, and whatever it would still do
when it came back must not happen beside a successor. The kernel releases the journal's lock only once all threads of
the process are gone, so no successor begins before.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.journal.heartbeat import Heartbeat, is_suspended
from gateway.timing import Timing

log = logging.getLogger(__name__)


def end_process() -> None:
    """End this process at once, as a crash would."""
    os.kill(os.getpid(), signal.SIGKILL)


class CommitWatch:
    """Knows which piece of work the commit thread is at, and counts how long."""

    def __init__(self, timing: Timing, end: Callable[[], None] = end_process) -> None:
        self._timing, self._end = timing, end
        self._thread = 0  # the kernel's id of the thread that works; 0: none does
        self._pieces = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Entered by the commit thread for each piece of work."""
        self._pieces += 1
        self._thread = threading.get_native_id()
        try:
            yield
        finally:
            self._thread = 0

    async def run(self) -> None:
        """Until cancelled, or a piece of work hangs: then the process ends."""
        times = self._timing.processes
        heartbeat, seen = Heartbeat(times), 0
        while not heartbeat.hangs(ready=True):
            await self._timing.clock.sleep(times.report_seconds)
            thread = self._thread
            if not thread or seen != self._pieces:
                heartbeat.heard()
                seen = self._pieces
                continue
            heartbeat.tick(suspended=is_suspended(os.getpid(), thread))
        log.critical(
            "the commit thread has been at one piece of work for more than %g s: this process ends, and another one "
            "goes on; nothing that was not answered is lost or done twice",
            times.hung_seconds,
        )
        self._end()
