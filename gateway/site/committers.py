"""A client that finds nobody committing starts a committer process: it never holds the journal's lock itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from gateway.errors import CommitterGone
from gateway.journal.client import Journal
from gateway.journal.paths import JournalPaths
from gateway.site.processes import python_path

LOG_NAME = "committer.log"
END_SECONDS = 1.0
TRY_SECONDS = 0.02


class Committer:
    """The committer that this client started, or nobody, where somebody commits already."""

    def __init__(self, process: subprocess.Popen[bytes] | None) -> None:
        self._process = process

    @classmethod
    async def ensure(cls, folder: Path, journal: Path) -> Committer:
        """Make sure that somebody commits to the *journal* folder of the site in *folder*.

        Raises `CommitterGone`, with what the process said, if that is in vain."""
        if await _answers(journal):
            return cls(None)
        log = journal / LOG_NAME
        process = _start(folder, log)
        while not await _answers(journal):
            if process.poll() is not None and not await _answers(journal):
                said = log.read_text(errors="replace").strip().splitlines()
                raise CommitterGone(said[-1] if said else f"the committer of {journal} ended at once")
            await asyncio.sleep(TRY_SECONDS)
        return cls(process)

    async def let_go(self) -> None:
        """This client is done: the process ends when nobody else needs it. Waits for that a moment, if it is ours."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        process, self._process = self._process, None
        deadline = asyncio.get_running_loop().time() + END_SECONDS
        while process.poll() is None and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(TRY_SECONDS)


def _start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as told:
        return subprocess.Popen(  # noqa: S603 (our own module)
            [sys.executable, "-P", "-m", "gateway.site.committing", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=told,
            env={**os.environ, "PYTHONPATH": python_path()},
            start_new_session=True,
        )


async def _answers(journal: Path) -> bool:
    """Whether somebody listens at the journal's socket."""
    try:
        _, writer = await asyncio.open_unix_connection(str(JournalPaths(journal).socket()))
    except OSError:
        return False
    writer.close()
    return True


async def open_journal(folder: Path, journal: Path, kind: str) -> tuple[Journal, Committer]:
    """A session with whoever commits, and the committer if it had to be started for it."""
    committer = await Committer.ensure(folder, journal)
    try:
        return await Journal.open(journal, kind), committer
    except BaseException:
        await committer.let_go()
        raise
