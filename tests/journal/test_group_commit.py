"""Where a batch is committed: a small one on the loop while the disk is quick, everything else in the thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.journal import session_commands
from gateway.journal.server import group_commit as commits
from gateway.journal.server.batch import CommandResult
from gateway.journal.server.group_commit import GroupCommitter
from gateway.journal.server.reserve import Reserve
from gateway.journal.session_commands import OpenSession
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import Batch
from gateway.timing import parse_timing


class Watched(SqliteStore):
    """Remembers which thread wrote each batch."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.threads: list[str] = []
        self.fails: Exception | None = None

    def write(self, batch: Batch) -> None:
        self.threads.append(threading.current_thread().name)
        if self.fails is not None:
            raise self.fails
        super().write(batch)


LOOP = threading.main_thread().name
THREAD = "commit_0"
QUICK_DISK = parse_timing("journal.loop_commit_seconds=1e9")
SLOW_DISK = parse_timing("journal.loop_commit_seconds=0")
"""As the committer takes this machine's disk, however quick it is."""


class Bench:
    def __init__(self, folder: Path) -> None:
        self.store = Watched(folder / "journal.db")
        reserve = Reserve(folder / "reserve", 1 << 20)
        self.committer = GroupCommitter(
            self.store, session_commands.COMMANDS, reserve, self._answered, timing=QUICK_DISK
        )
        self.running = asyncio.create_task(self.committer.run())

    def _answered(self, answers: list[CommandResult]) -> None:
        for answer in answers:
            answer.job.waiter(answer)

    def begin(self, kind: str = "test") -> asyncio.Future[CommandResult]:
        answer: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        self.committer.add_internal(OpenSession(kind), answer.set_result)
        return answer


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.committer.stop()
    await asyncio.gather(bench.running, return_exceptions=True)
    bench.store.close()


async def test_a_lone_command_is_committed_where_it_stands(bench: Bench) -> None:
    for _ in range(3):
        assert (await bench.begin()).error is None
    assert bench.store.threads == [LOOP] * 3
    assert bench.committer.durable == bench.store.head().number == 3


async def test_a_long_batch_is_committed_in_the_thread(bench: Bench) -> None:
    answers = [bench.begin() for _ in range(commits.LOOP_COMMIT_ROWS + 1)]
    assert not any(answer.error for answer in await asyncio.gather(*answers))
    assert bench.store.threads == [THREAD]


async def test_a_batch_of_long_records_is_committed_in_the_thread(bench: Bench) -> None:
    await bench.begin("k" * (commits.LOOP_COMMIT_BYTES + 1))
    assert bench.store.threads == [THREAD]


async def test_on_a_slow_disk_nothing_is_committed_on_the_loop(bench: Bench) -> None:
    bench.committer.timing = SLOW_DISK
    await bench.begin()
    for _ in range(3):
        await bench.begin()
    assert bench.store.threads == [LOOP, THREAD, THREAD, THREAD]
    bench.committer.timing = QUICK_DISK
    await bench.begin()
    assert bench.store.threads[-1] == LOOP


async def test_one_that_meets_other_work_with_the_connection_waits_for_it_in_the_thread(bench: Bench) -> None:
    begun, let_go = threading.Event(), threading.Event()
    other = asyncio.create_task(bench.committer.in_thread(lambda: (begun.set(), let_go.wait())))
    await asyncio.to_thread(begun.wait)
    answer = bench.begin()
    await asyncio.sleep(0.02)
    assert not answer.done()
    assert bench.store.threads == []
    let_go.set()
    await other
    assert (await answer).error is None
    assert bench.store.threads == [THREAD]


async def test_a_checkpoint_is_never_made_on_the_loop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.store, "checkpoint_due", lambda longest: True)
    await bench.begin()
    assert bench.store.threads == [THREAD]


async def test_a_commit_on_the_loop_that_fails_is_answered_to_nobody(bench: Bench) -> None:
    bench.store.fails = sqlite3.OperationalError("disk I/O error")
    answer = bench.begin()
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        await bench.running
    assert not answer.done()


async def test_a_stop_behind_a_commit_on_the_loop_ends_at_once(bench: Bench) -> None:
    answer = bench.begin()
    bench.committer.stop()
    await bench.running
    assert (await answer).error is None
