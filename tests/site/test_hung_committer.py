"""A committer that a library client started and that hangs is ended, and another one goes on where it stopped."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from gateway.config import load
from gateway.failpoints import FROM_VARIABLE, VARIABLE
from gateway.identity.users import AddTenant
from gateway.site.committer_launcher import LOG_NAME, open_journal
from gateway.site.hung_committer import end_if_hung
from gateway.site.paths import journal_folder
from gateway.timing import VARIABLE as TIMING
from gateway.timing import Timing, parse_timing
from tests.new_sites import new_site

QUICK = "processes.report_seconds=0.1; processes.silence_seconds=0.5; processes.hung_seconds=3"
COMMITTERS = f"{QUICK}; journal.loop_commit_seconds=0"
"""Each commit but the first is made by the thread."""
PATIENT = parse_timing(f"{QUICK}; journal.answer_seconds=120")


class Armed:
    """A failpoint at which committers that start from now on hang, once armed."""

    def __init__(self, folder: Path, file: Path) -> None:
        self.folder, self.file = folder, file
        self.journal = journal_folder(folder, load(folder))

    def log(self) -> str:
        return (self.journal / LOG_NAME).read_text()

    async def hung(self) -> None:
        """Return once the committer has come there; the next one does not."""
        while ": hang" not in self.log():
            await asyncio.sleep(0.02)
        self.file.unlink()


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Armed:
    monkeypatch.setenv(VARIABLE, f"{request.param}=hang")
    monkeypatch.setenv(FROM_VARIABLE, str(tmp_path / "armed"))
    monkeypatch.setenv(TIMING, COMMITTERS)
    return Armed(new_site(tmp_path / "site"), tmp_path / "armed")


@pytest.mark.parametrize("armed", ["batch-prepared", "batch-answered"], indirect=True, ids=["thread", "loop"])
async def test_a_command_of_a_client_whose_committer_hangs_is_answered_by_the_next(
    armed: Armed, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    journal, committer = await open_journal(armed.folder, armed.journal, "client", PATIENT)
    tending = asyncio.create_task(committer.keep_running(armed.folder, armed.journal, journal))
    try:
        first = await journal.send(AddTenant("first"))
        session = journal.session
        armed.file.touch()
        sending = asyncio.create_task(journal.send(AddTenant("second")))
        await armed.hung()
        assert await sending > first
        assert await journal.send(AddTenant("third")) > await sending, "once, and not twice"
        assert journal.session == session
    finally:
        tending.cancel()
        await journal.close()
        await committer.release()
    if request.node.callspec.id == "thread":
        assert "the commit thread has been at one piece of work" in armed.log()
    else:
        assert "has not answered for more than 3 s" in caplog.text


@pytest.mark.parametrize("armed", ["batch-answered"], indirect=True)
async def test_a_client_that_comes_to_a_committer_that_hangs_starts_another(
    armed: Armed, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody else is there who would."""
    journal, committer = await open_journal(armed.folder, armed.journal, "client", PATIENT)
    await journal.send(AddTenant("first"))
    armed.file.touch()
    unanswered = asyncio.create_task(journal.send(AddTenant("second")))
    await armed.hung()
    hasty = parse_timing(f"{QUICK}; journal.answer_seconds=10")
    other, started = await open_journal(armed.folder, armed.journal, "cli", hasty)
    assert "has not answered for more than 3 s" in caplog.text
    await unanswered
    for each, process in ((journal, committer), (other, started)):
        await each.close()
        await process.release()


@pytest.mark.parametrize("armed", ["batch-answered"], indirect=True)
async def test_a_committer_that_answers_is_left_alone(armed: Armed, caplog: pytest.LogCaptureFixture) -> None:
    journal, committer = await open_journal(armed.folder, armed.journal, "client", PATIENT)
    with caplog.at_level(logging.WARNING):
        assert not await end_if_hung(armed.folder, armed.journal, Timing())
    assert journal.connected
    await journal.close()
    await committer.release()
    assert not await end_if_hung(armed.folder, armed.journal, Timing()), "nobody is there"
