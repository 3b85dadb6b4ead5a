"""A client that finds nobody committing starts a committer process: it never holds the journal's lock itself."""

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
"""A log that is larger is put aside when the next committer is started."""

_log = logging.getLogger(__name__)


class LaunchedCommitter:
    """The committer that this client started, or nobody, where somebody commits already."""

    def __init__(self, process: subprocess.Popen[bytes] | None, timing: Timing) -> None:
        self._process = process
        self._timing = timing

    @classmethod
    async def ensure(cls, folder: Path, journal: Path, timing: Timing) -> LaunchedCommitter:
        """Make sure that somebody commits to the *journal* folder of the site in *folder*.

        A process that is started may have a large journal to recover. While it works, it is waited for, and a warning
        now and then says so.

        Raises `CommitterGone` if the process that is started fails (with what it said) or neither listens nor works for
        `hung_starting_seconds`, and if a process holds the journal's lock and does not listen; `Misconfigured` if there
        is no folder for the journal."""
        check_folder(JournalPaths(journal))
        if await _answers(journal):
            return cls(None, timing)
        log, clock, times = journal / LOG_NAME, timing.clock, timing.committers
        said_before, process = _size(log), _start(folder, log)
        deadline = clock.monotonic() + times.held_most_seconds
        starting_most = timing.processes.hung_starting_seconds
        began = clock.monotonic()
        give_up_at, warn_at = began + starting_most, began + times.recovering_seconds
        work_seen = work_done(process.pid)
        while not await _answers(journal):
            ended = process.poll()
            if ended is not None and not await _answers(journal):
                if ended:
                    said = log.read_bytes()[said_before:].decode(errors="replace").strip().splitlines()
                    raise CommitterGone(said[-1] if said else f"the committer of {journal} ended at once: {ended}")
                if clock.monotonic() > deadline:
                    raise CommitterGone(f"somebody holds the lock of {journal}, and does not answer")
                await clock.sleep(times.held_seconds)
                said_before, process = _size(log), _start(folder, log)
            now, work = clock.monotonic(), work_done(process.pid)
            if work != work_seen:
                work_seen, give_up_at = work, now + starting_most
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
        """As `ensure`, whenever *journal* has lost who commits: until cancelled. Where a supervisor serves the site,
        its own committer comes back first. A committer without one that hangs is ended, so that it is lost."""
        watching = asyncio.create_task(watch_for_hang(folder, journal_folder, self._timing), name="committer")
        try:
            await self._keep_running(folder, journal_folder, journal)
        finally:
            watching.cancel()

    async def _keep_running(self, folder: Path, journal_folder: Path, journal: Journal) -> None:
        alone_since: float | None = None
        told = False
        clock, times = self._timing.clock, self._timing.committers
        while True:
            if journal.connected:
                alone_since, told = None, False
                await journal.wait_until_lost()
            await clock.sleep(times.failed_seconds if told else times.tend_seconds)
            if journal.connected:
                continue
            now = clock.monotonic()
            alone_since = alone_since or now
            if now - alone_since < times.supervised_seconds and read_serving(folder) is not None:
                continue
            try:
                self._replace_with(await LaunchedCommitter.ensure(folder, journal_folder, self._timing))
            except (CommitterGone, Misconfigured, OSError) as error:
                if not told:
                    _log.warning("nobody commits to %s, and no committer can be started: %s", journal_folder, error)
                told = True

    def _replace_with(self, other: LaunchedCommitter) -> None:
        """Hold the committer that *other* started, if it did, instead of one that is gone."""
        if other._process is not None:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
                self._process.poll()
            self._process = other._process

    async def release(self) -> None:
        """This client is done: the process ends when nobody else needs it. Waits for that a moment, if it is ours."""
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
    """How much a log holds before the next committer writes to it; one that is too large is put aside first."""
    with suppress(FileNotFoundError):
        size = log.stat().st_size
        if size <= LOG_BYTES:
            return size
        log.replace(log.with_suffix(".log.old"))
    return 0


def _start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a committer. It adds to the log: of several that are started at once all but one end, and what that one
    has written already is not theirs to cut off."""
    with log.open("ab") as told:
        process = subprocess.Popen(  # noqa: S603 (our own module)
            [sys.executable, "-P", "-m", "gateway.site.processes.committer", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=told,
            env={**os.environ, "PYTHONPATH": python_path()},
            start_new_session=True,
        )
    _started.add(process)
    return process


_started: WeakSet[subprocess.Popen[bytes]] = WeakSet()


def _close_pipes_in_child() -> None:
    """A forked child holds its parent's end of the pipe as well, and the committer would wait for that, too. The
    descriptor stays taken, by the null device, for an object that the child inherited will close it some day."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for process in list(_started):
        if process.stdin is not None and not process.stdin.closed:
            os.dup2(null, process.stdin.fileno(), inheritable=False)
    os.close(null)


os.register_at_fork(after_in_child=_close_pipes_in_child)


async def _answers(journal: Path) -> bool:
    """Whether somebody listens at the journal's socket."""
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
