"""Ends a committer whose commit thread hangs while its event loop goes on.

Such a committer still renews leases but answers no command. It still reports to its supervisor and to its clients, so
they regard it as healthy.

Why ending the process is safe: no command of the batch that the hung thread works on has been answered. So the kill is
the same as a crash between two answers, which `group_commit.py` allows for. Either the transaction is durable, and
clients that send the same commands again get its answers, or the transaction left nothing behind.

The process ends by SIGKILL, since a hung thread cannot be stopped, and since a thread that resumes must not write
beside a successor. The kernel releases the journal's lock only once all threads of the process have ended, so
no successor starts earlier.
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
    """Measures how long the commit thread has been busy with its current piece of work."""

    def __init__(self, timing: Timing, end: Callable[[], None] = end_process) -> None:
        self._timing, self._end = timing, end
        self._thread = 0  # the kernel's id of the working thread; 0 while it is idle
        self._pieces = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Mark one piece of work. The commit thread enters this context around each of them."""
        self._pieces += 1
        self._thread = threading.get_native_id()
        try:
            yield
        finally:
            self._thread = 0

    async def run(self) -> None:
        """Watch the commit thread until cancelled. Ends the process when a piece of work hangs."""
        times = self._timing.processes
        heartbeat, counted = Heartbeat(times), 0
        while not heartbeat.is_hung(ready=True):
            await self._timing.clock.sleep(times.report_seconds)
            thread = self._thread
            if not thread or counted != self._pieces:
                heartbeat.record_report()
                counted = self._pieces
                continue
            heartbeat.tick(suspended=is_suspended(os.getpid(), thread))
        log.critical(
            "the commit thread has been at one piece of work for more than %g s: this process ends, and its successor "
            "continues; no command is lost or run twice",
            times.hung_seconds,
        )
        self._end()
