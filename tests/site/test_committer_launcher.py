"""A client that finds nobody committing, beside others who come and go at the same moment."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.config import load
from gateway.errors import CommitterGone
from gateway.journal.lock import hold_lock
from gateway.journal.paths import JournalPaths
from gateway.site import committer_launcher
from gateway.site.committer_launcher import LaunchedCommitter
from gateway.site.paths import journal_folder
from gateway.timing import Timing, parse_timing
from tests.new_sites import new_site


@pytest.fixture
async def site(tmp_path: Path) -> tuple[Path, Path]:
    """A site's folder that nobody commits to, and its journal's."""
    folder = new_site(tmp_path / "site")
    return folder, journal_folder(folder, load(folder))


async def test_a_client_that_comes_while_the_last_committer_ends_starts_the_next(
    site: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends listens no more, and holds the lock a little longer; so does one that begins, and not yet."""
    folder, journal = site
    starts: list[subprocess.Popen[bytes]] = []
    start = committer_launcher._start
    with ExitStack() as ending:
        ending.enter_context(hold_lock(JournalPaths(journal)))

        def counted(folder: Path, log: Path) -> subprocess.Popen[bytes]:
            if starts:
                ending.close()
            starts.append(start(folder, log))
            return starts[-1]

        monkeypatch.setattr(committer_launcher, "_start", counted)
        committer = await LaunchedCommitter.ensure(folder, journal, Timing())
    await committer.release()
    assert [process.wait(60) for process in starts] == [0, 0]


async def test_who_holds_the_lock_and_never_answers_is_not_waited_for_without_end(site: tuple[Path, Path]) -> None:
    folder, journal = site
    with hold_lock(JournalPaths(journal)), pytest.raises(CommitterGone, match="does not answer"):
        await LaunchedCommitter.ensure(folder, journal, parse_timing("committers.held_most_seconds=0"))


async def test_who_comes_too_late_to_commit_cuts_nothing_off_the_log_of_who_does(site: tuple[Path, Path]) -> None:
    folder, journal = site
    log = journal / committer_launcher.LOG_NAME
    log.write_text("what the one that commits has said\n")
    with hold_lock(JournalPaths(journal)):
        loser = committer_launcher._start(folder, log)
        assert await asyncio.to_thread(loser.wait, 60) == 0
    assert log.read_text().startswith("what the one that commits has said\n")


async def test_a_committer_that_ends_without_a_word_is_not_given_those_of_one_before_it(
    site: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, journal = site
    log = journal / committer_launcher.LOG_NAME
    log.write_text("an old complaint\n")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CommitterGone, match="ended at once: 1"):
        await LaunchedCommitter.ensure(folder, journal, Timing())


async def test_a_log_that_has_grown_large_is_put_aside(site: tuple[Path, Path]) -> None:
    folder, journal = site
    log = journal / committer_launcher.LOG_NAME
    log.write_bytes(b"x" * (committer_launcher.LOG_BYTES + 1))
    await (await LaunchedCommitter.ensure(folder, journal, Timing())).release()
    assert log.stat().st_size <= committer_launcher.LOG_BYTES
    assert (journal / "committer.log.old").stat().st_size == committer_launcher.LOG_BYTES + 1
