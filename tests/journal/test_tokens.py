"""Each start of a committer draws a fencing token; a start that may be a copy's takes no session for its own that the
original may go on with."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.journal.client import Journal
from gateway.journal.columns import unpack
from gateway.journal.paths import JournalPaths
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.server.server import CommitterSettings, Server, hold_lock
from gateway.journal.session_commands import COUNTER_BITS, SKIP_MAX, DrawToken, FoundSite, OpenSession
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.tables import SESSION, TOKEN, Token
from gateway.journal.whereabouts import whereabouts
from tests.journal.histories import EVERY
from tests.journal.memory_store import MemoryStore
from tests.journal.process import found
from tests.waiting import until_true


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "journal"
    made.mkdir()
    found(made)
    return made


class Bench(InlineCommitter):
    """A site in memory."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        super().__init__(self.store, EVERY)
        self.run(FoundSite("ab" * 16, "here"))

    def token(self) -> Token:
        return self.store.load(TOKEN, [(0,)])[(0,)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@asynccontextmanager
async def committing(folder: Path, **settings: Any) -> AsyncIterator[Server]:
    """A committer in this process. It leaves the sessions of clients that never say goodbye, as one that is killed."""
    paths = JournalPaths(folder)
    with hold_lock(paths):
        store, stop = SqliteStore(paths.database), asyncio.Event()
        server = Server(store, EVERY, paths, CommitterSettings(**settings))
        running = asyncio.create_task(server.run(stop))
        await until_true(lambda: running.done() or paths.socket().exists())
        try:
            yield server
        finally:
            stop.set()
            await running
            store.close()


async def leave_a_session(folder: Path) -> int:
    """A session whose process is killed together with its committer."""
    async with committing(folder):
        journal = await Journal.open(folder, "worker")
        session = journal.session
    await until_true(lambda: not journal.connected)  # so that no goodbye is said
    await journal.close()
    return session


def ended(server: Server, session: int) -> tuple[int, int]:
    """(state, seen) of a session."""
    row = server.store.load(SESSION, [(session,)])[(session,)]
    return row.state, row.seen


async def test_each_start_draws_another_token_with_a_higher_counter(folder: Path) -> None:
    tokens = []
    for _ in range(3):
        async with committing(folder) as server:
            tokens.append(server.store.token())
    assert [token.counter for token in tokens if token] == [1, 2, 3]
    assert len({token.nonce for token in tokens if token}) == 3
    assert tokens[2] is not None
    assert [(counter, nonce) for counter, nonce, _ in unpack(tokens[2].lineage)] == [
        (token.counter, token.nonce) for token in tokens if token
    ]


async def test_a_journal_without_a_site_has_no_token(tmp_path: Path) -> None:
    async with committing(tmp_path) as server:
        assert server.store.token() is None


async def test_two_copies_of_a_journal_draw_other_ids(folder: Path, tmp_path: Path) -> None:
    await leave_a_session(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock")))
    drawn = []
    for each in (folder, copy):
        async with committing(each):
            journal = await Journal.open(each, "worker")
            drawn.append({journal.session, await journal.send(OpenSession("another"))})
            await journal.close()
    assert not drawn[0] & drawn[1]


async def test_the_sessions_of_a_killed_predecessor_in_the_same_place_are_known_to_be_over(folder: Path) -> None:
    session = await leave_a_session(folder)
    async with committing(folder, lease_seconds=0.1) as server:
        await until_true(lambda: ended(server, session)[0] == 1)
        assert ended(server, session) == (1, 1)
        assert server.store.pins(time.time_ns()) == []


async def test_a_copy_ends_the_sessions_of_the_original_as_unseen_and_keeps_what_they_may_name(
    folder: Path, tmp_path: Path
) -> None:
    session = await leave_a_session(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock")))
    for _ in range(2):  # killed before the lease ran out, the next start knows no more
        async with committing(copy) as server:
            head = server.store.head().number
            assert max(server.store.pins(time.time_ns())) <= head
            assert server.committer.horizon() <= min(server.store.pins(time.time_ns()))
    async with committing(copy, lease_seconds=0.1) as server:
        await until_true(lambda: ended(server, session)[0] == 1)
        assert ended(server, session) == (1, 0)
    async with committing(copy, fork_grace_seconds=0) as server:
        assert len(server.store.pins(time.time_ns())) == 3, "that start found no session of the original any more"


async def test_a_session_that_comes_back_is_known_to_belong_here(folder: Path, tmp_path: Path) -> None:
    """As when a folder was moved while a client of it waited for a committer."""
    async with committing(folder):
        journal = await Journal.open(folder, "worker")
    session = journal.session
    (folder / "lock").rename(folder / "another")
    async with committing(folder) as server:  # under whereabouts that nobody knows
        assert server.store.pins(time.time_ns())
        await until_true(lambda: journal.connected and journal.session == session)
        await journal.close()
        assert ended(server, session) == (1, 1)


def test_whereabouts_tell_a_copy_and_another_boot(folder: Path, tmp_path: Path) -> None:
    paths, boot = JournalPaths(folder), tmp_path / "boot"
    boot.write_text("one\n")
    here = whereabouts(paths, boot)
    assert here
    assert whereabouts(paths, boot) == here
    copy = JournalPaths(Path(shutil.copytree(folder, tmp_path / "copy")))
    assert whereabouts(copy, boot) != here
    boot.write_text("two\n")
    assert whereabouts(paths, boot) != here
    assert whereabouts(paths, tmp_path / "absent") == ""


def test_ids_are_passed_over_at_random_and_never_run_out(bench: Bench) -> None:
    bench.run(DrawToken("aa", (1 << 63) - 1, ""))
    first = bench.run(OpenSession("x"))
    assert first - (1 << COUNTER_BITS) <= SKIP_MAX
    for _ in range(2_000):
        bench.run(DrawToken("aa", (1 << 63) - 1, ""))
    assert bench.run(OpenSession("x")) >> COUNTER_BITS == first >> COUNTER_BITS


def test_unknown_whereabouts_are_never_the_same_again(bench: Bench) -> None:
    bench.run(DrawToken("aa", 0, ""))
    session = bench.run(OpenSession("x"))
    bench.run(DrawToken("bb", 0, ""))
    assert session < bench.token().first_id


def test_a_token_is_above_every_other(bench: Bench) -> None:
    assert bench.run(DrawToken("aa", 0, "here")) == 1
    assert bench.run(DrawToken("bb", 0, "here", 41, ("cc",))) == 42
    assert bench.run(DrawToken("dd", 0, "here", 7)) == 43
    assert (bench.token().counter, unpack(bench.token().over)) == (43, ("cc",))
