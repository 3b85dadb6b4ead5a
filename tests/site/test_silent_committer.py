"""A committer that is silent and cannot be ended: clients wait for a bounded time, and their error says what to do."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config import load
from gateway.errors import CommitterGone
from gateway.journal.paths import JournalPaths
from gateway.site import committer_launcher, hung_committer
from gateway.site.committer_launcher import LaunchedCommitter, open_journal
from gateway.site.hung_committer import end_if_hung, watch_for_hang
from gateway.site.paths import journal_folder
from gateway.timing import Timing
from tests.clocks import manual_timing
from tests.new_sites import new_site

SILENT = """
import os, signal, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(int(sys.argv[2]))
print("listening", flush=True)
os.kill(os.getpid(), int(sys.argv[3])) if int(sys.argv[3]) else signal.pause()
"""
"""A process in the place of a committer: it listens, and answers nothing."""


class Silent:
    """A site's folder, its journal's, and a process that listens there, which has stopped itself unless it pauses."""

    def __init__(self, folder: Path, *, stopped: bool, backlog: int = 8) -> None:
        self.folder, self.journal = folder, journal_folder(folder, load(folder))
        stop = signal.SIGSTOP if stopped else 0
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                SILENT,
                str(JournalPaths(self.journal).socket()),
                str(backlog),
                str(int(stop)),
            ],
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"listening\n"
        if stopped:
            os.waitpid(self.process.pid, os.WUNTRACED)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Silent]:
    silent = Silent(new_site(tmp_path / "site"), stopped=True)
    yield silent
    silent.end()


@pytest.fixture
def pausing(tmp_path: Path) -> Iterator[Silent]:
    silent = Silent(new_site(tmp_path / "site"), stopped=False)
    yield silent
    silent.end()


async def test_who_opens_a_site_beside_a_stopped_committer_is_told_what_to_do(stopped: Silent) -> None:
    timing, clock = manual_timing("journal.answer_seconds=0.2")
    with pytest.raises(CommitterGone, match=rf"kill -CONT {stopped.process.pid}"):
        await open_journal(stopped.folder, stopped.journal, "cli", timing)
    assert clock.now >= 2 * timing.processes.hung_seconds
    assert stopped.process.poll() is None, "it is left alone"


async def test_who_opens_a_site_beside_a_stopped_committer_that_accepts_nobody_is_refused(tmp_path: Path) -> None:
    silent = Silent(new_site(tmp_path / "site"), stopped=True, backlog=0)
    first = await asyncio.open_unix_connection(str(JournalPaths(silent.journal).socket()))
    timing, _ = manual_timing("journal.answer_seconds=0.2; committers.held_most_seconds=0")
    with pytest.raises(CommitterGone):
        await open_journal(silent.folder, silent.journal, "cli", timing)
    first[1].close()
    silent.end()


async def test_a_committer_that_waits_for_a_dead_disk_is_waited_for_no_longer(
    pausing: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hung_committer, "scheduler_state", lambda pid: "D")
    timing, _ = manual_timing()
    with pytest.raises(CommitterGone, match="waits for a disk or a network file system: try again once that answers"):
        await end_if_hung(pausing.folder, pausing.journal, timing)
    assert pausing.process.poll() is None


async def test_a_committer_that_does_not_end_although_it_was_killed_is_waited_for_no_longer(
    pausing: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of it waits for a disk."""
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda process, number: None)
    timing, _ = manual_timing()
    with pytest.raises(CommitterGone, match=r"was killed after .* but is not gone yet"):
        await end_if_hung(pausing.folder, pausing.journal, timing)


async def test_a_committer_that_another_client_kills_at_the_same_time_is_gone(
    pausing: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(process: int, number: int) -> None:
        pausing.process.kill()
        pausing.process.wait()
        raise ProcessLookupError

    monkeypatch.setattr(signal, "pidfd_send_signal", too_late)
    timing, _ = manual_timing("processes.report_seconds=20")
    assert await end_if_hung(pausing.folder, pausing.journal, timing)


async def test_a_check_of_a_committer_that_is_cancelled_leaves_no_task(pausing: Silent) -> None:
    checking = asyncio.create_task(end_if_hung(pausing.folder, pausing.journal, Timing()))
    before = asyncio.all_tasks()
    while len(asyncio.all_tasks() - before) < 2:  # it waits for an answer, and for the next tick
        await asyncio.sleep(0)
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    assert asyncio.all_tasks() <= before


async def test_the_watch_goes_on_beside_a_committer_of_another_user_and_says_so_once(
    pausing: Silent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []
    enough = asyncio.Event()

    def refused(process: int, number: int) -> None:
        tries.append(number)
        if len(tries) == 3:
            enough.set()
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", refused)
    timing, _ = manual_timing()
    watching = asyncio.create_task(watch_for_hang(pausing.folder, pausing.journal, timing))
    with caplog.at_level(logging.WARNING):
        await asyncio.wait((watching, asyncio.create_task(enough.wait())), return_when=asyncio.FIRST_COMPLETED)
    assert not watching.done()
    watching.cancel()
    told = [each.message for each in caplog.records if "end it as the user that it belongs to" in each.message]
    assert len(told) == 1
    assert f"kill -KILL {pausing.process.pid}" in told[0]


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """The process that is started in the place of a committer. It never listens."""
    process = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)
    monkeypatch.setattr(committer_launcher, "_start", lambda folder, log: process)
    yield process
    process.kill()
    process.wait()


async def test_a_committer_that_was_started_and_never_listens_is_waited_for_no_longer(
    tmp_path: Path, sleeping: subprocess.Popen[bytes]
) -> None:
    """It waits for a dead disk, for example."""
    folder = new_site(tmp_path / "site")
    timing, _ = manual_timing("committers.try_seconds=10")
    with pytest.raises(CommitterGone, match=rf"\(process {sleeping.pid}\) does not listen after 300 s"):
        await LaunchedCommitter.ensure(folder, journal_folder(folder, load(folder)), timing)


async def test_a_committer_that_was_started_and_works_is_waited_for_until_it_stops_working(
    tmp_path: Path,
    sleeping: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It recovers a large journal."""
    folder = new_site(tmp_path / "site")
    works = iter(range(100))
    monkeypatch.setattr(committer_launcher, "work_done", lambda pid: (str(next(works, "nothing more")),))
    timing, clock = manual_timing("committers.try_seconds=10; committers.recovering_seconds=60")
    with pytest.raises(CommitterGone, match="does not listen"):
        await LaunchedCommitter.ensure(folder, journal_folder(folder, load(folder)), timing)
    assert 1_290 <= clock.now <= 1_320
    told = [each.message for each in caplog.records if "does not listen yet" in each.message]
    assert 20 <= len(told) <= 22
