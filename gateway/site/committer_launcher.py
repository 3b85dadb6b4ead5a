"""Starts a committer process for a client that finds none running. The client never holds the journal's lock itself.

The committer reads from a pipe that the client holds open. It ends once that pipe is closed and nobody else needs it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from gateway.errors import CommitterGone, Misconfigured
from gateway.journal.client import Journal
from gateway.journal.heartbeat import work_done
from gateway.journal.lock import check_folder
from gateway.journal.paths import JournalPaths
from gateway.site.hung_committer import end_if_hung, watch_for_hang
from gateway.site.paths import python_path
from gateway.site.serve_lock import read_serving
from gateway.timing import Timing

LOG_NAME = "committer.log"
LOG_BYTES = 1 << 20
"""A log that is larger is renamed when the next committer is started."""

_log = logging.getLogger(__name__)


class LaunchedCommitter:
    """The committer process that this client started, if it started one."""

    def __init__(self, process: subprocess.Popen[bytes] | None, timing: Timing) -> None:
        """*process*: None if another process runs the committer."""
        self._process = process
        self._timing = timing

    @classmethod
    async def ensure(cls, folder: Path, journal: Path, timing: Timing) -> LaunchedCommitter:
        """Start a committer of the *journal* folder of the site in *folder*, unless one listens already, and wait until
        one listens.

        A new committer may have a large journal to recover. While it works, this waits, and logs a warning now and
        then.

        Raises `CommitterGone` if the new process fails (with the last line that it printed), if it neither listens nor
        works for `hung_starting_seconds`, and if a process holds the journal's lock and does not listen. Raises
        `Misconfigured` if there is no folder for the journal."""
        check_folder(JournalPaths(journal))
        if await _answers(journal):
            return cls(None, timing)
        log, clock, times = journal / LOG_NAME, timing.clock, timing.committers
        log_size, process = _size(log), _start(folder, log)
        began = clock.monotonic()
        held_until = began + times.held_most_seconds
        starting_most = timing.processes.hung_starting_seconds
        give_up_at, warn_at = began + starting_most, began + times.recovering_seconds
        last_work = work_done(process.pid)
        while not await _answers(journal):
            status = process.poll()
            if status is not None and not await _answers(journal):
                if status:
                    raise CommitterGone(
                        _last_line(log, log_size) or f"the committer of {journal} ended at once: {status}"
                    )
                if clock.monotonic() > held_until:  # it ended well, as one does that finds the lock held
                    raise CommitterGone(f"another process holds the lock of {journal}, and does not answer")
                await clock.sleep(times.held_seconds)
                log_size, process = _size(log), _start(folder, log)
            now, work = clock.monotonic(), work_done(process.pid)
            if work != last_work:
                last_work, give_up_at = work, now + starting_most
            if now >= warn_at:
                warn_at = now + times.recovering_seconds
                _log.warning(
                    "the committer of %s (process %d) was started %d s ago and does not listen yet: it may recover a"
                    " large journal", journal, process.pid, now - began
                )  # fmt: skip
            if now > give_up_at:
                raise CommitterGone(
                    f"the committer that was started for {journal} (process {process.pid}) does not listen after"
                    f" {starting_most:g} s: see whether the disk of that folder answers"
                )
            await clock.sleep(times.try_seconds)
        return cls(process, timing)

    async def keep_running(self, folder: Path, journal_folder: Path, journal: Journal) -> None:
        """Call `ensure` whenever *journal* has lost its committer. Runs until cancelled. If a supervisor serves the
        site, its own committer gets a few seconds to come back first. A committer without a supervisor that hangs is
        killed, so that *journal* loses it."""
        watching = asyncio.create_task(watch_for_hang(folder, journal_folder, self._timing), name="committer")
        try:
            await self._keep_running(folder, journal_folder, journal)
        finally:
            watching.cancel()

    async def _keep_running(self, folder: Path, journal_folder: Path, journal: Journal) -> None:
        lost_since: float | None = None
        warned = False
        clock, times = self._timing.clock, self._timing.committers
        while True:
            if journal.connected:
                lost_since, warned = None, False
                await journal.wait_until_lost()
            await clock.sleep(times.failed_seconds if warned else times.tend_seconds)
            if journal.connected:
                continue
            now = clock.monotonic()
            lost_since = lost_since or now
            if now - lost_since < times.supervised_seconds and read_serving(folder) is not None:
                continue
            try:
                self._replace_with(await LaunchedCommitter.ensure(folder, journal_folder, self._timing))
            except (CommitterGone, Misconfigured, OSError) as error:
                if not warned:
                    _log.warning("no committer runs for %s, and none can be started: %s", journal_folder, error)
                warned = True

    def _replace_with(self, other: LaunchedCommitter) -> None:
        """Take over the process that *other* started, if it did, in place of one that is gone."""
        if other._process is not None:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
                self._process.poll()
            self._process = other._process

    async def release(self) -> None:
        """Let the process end, if this client started it, and wait for that for a moment. It goes on if others need
        it."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        process, self._process = self._process, None
        clock, times = self._timing.clock, self._timing.committers
        deadline = clock.monotonic() + times.end_seconds
        while process.poll() is None and clock.monotonic() < deadline:
            await clock.sleep(times.try_seconds)


def _size(log: Path) -> int:
    """Return the size of *log* before the next committer writes to it. Rename the log first if it is too large."""
    with suppress(FileNotFoundError):
        size = log.stat().st_size
        if size <= LOG_BYTES:
            return size
        log.replace(log.with_suffix(".log.old"))
    return 0


def _last_line(log: Path, offset: int) -> str:
    """Return the last line that was written to *log* after *offset*; empty if there is none."""
    lines = log.read_bytes()[offset:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a committer, which appends to *log*: if several are started at once, all but one end, and must not truncate
    what that one has written already."""
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 (our own module)
            [sys.executable, "-P", "-m", "gateway.site.processes.committer", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=output,
            env={**os.environ, "PYTHONPATH": python_path()},
            start_new_session=True,
        )
    _started.add(process)
    return process


_started: WeakSet[subprocess.Popen[bytes]] = WeakSet()


def _close_pipes_in_child() -> None:
    """Close the pipes of committers in a forked child, or a committer would wait for the child as well as for its
    parent. The null device takes the place of each pipe's descriptor, since an object in the child will close that
    number."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for process in list(_started):
        if process.stdin is not None and not process.stdin.closed:
            os.dup2(null, process.stdin.fileno(), inheritable=False)
    os.close(null)


os.register_at_fork(after_in_child=_close_pipes_in_child)


async def _answers(journal: Path) -> bool:
    """Whether a process listens at the journal's socket."""
    try:
        _, writer = await asyncio.open_unix_connection(str(JournalPaths(journal).socket()))
    except OSError:
        return False
    writer.close()
    return True


async def open_journal(folder: Path, journal: Path, kind: str, timing: Timing) -> tuple[Journal, LaunchedCommitter]:
    """Open a session with the committer, and start the committer first if there is none. If a committer without a
    supervisor does not answer, it is watched until it answers or hangs; one that hangs is replaced.

    Raises `Misconfigured`, and `CommitterGone` if no committer answers and none can be started: after a bounded time
    (`hung_committer.py`), unless the one that was started goes on working."""
    try:
        return await _open_journal(folder, journal, kind, timing)
    except CommitterGone:
        if not await end_if_hung(folder, journal, timing):
            raise
    return await _open_journal(folder, journal, kind, timing)


async def _open_journal(folder: Path, journal: Path, kind: str, timing: Timing) -> tuple[Journal, LaunchedCommitter]:
    committer = await LaunchedCommitter.ensure(folder, journal, timing)
    try:
        return await Journal.open(journal, kind, timing), committer
    except BaseException:
        await committer.release()
        raise
