"""Sessions at a committer: who says goodbye, who is silent for a lease, and what the horizon waits for."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import pytest

from gateway.errors import SessionExpired
from gateway.journal.client import Journal
from gateway.journal.paths import JournalPaths
from gateway.journal.server.leases import Leases
from gateway.journal.server.server import CommitterSettings, Server
from gateway.journal.session_commands import EndSession, OpenSession
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import Batch
from gateway.journal.wire import FrameKind, frame
from gateway.timing import Timing
from gateway.timing.durations import JournalTiming
from tests.journal.process import EVERY, end, start
from tests.waiting import until_true


async def test_a_session_that_says_goodbye_is_over_at_once(folder: Path, committer: subprocess.Popen[bytes]) -> None:
    first, second = await Journal.open(folder, "worker"), await Journal.open(folder, "worker")
    gone = first.session
    await first.close()
    store = ReadStore(JournalPaths(folder).database)
    assert store.query_one("SELECT state FROM session WHERE id = ?", (gone,))[0] == 1
    assert store.query_one("SELECT state FROM session WHERE id = ?", (second.session,))[0] == 0
    await second.close()
    store.close()


async def test_a_client_that_is_silent_for_a_lease_loses_its_session(folder: Path) -> None:
    process = start(folder, lease_seconds=1.0)
    journal = await Journal.open(folder, "worker")
    first, lost = journal.session, []
    journal.on_session_lost.append(lost.append)
    await journal.send(OpenSession("before"))
    time.sleep(2.5)  # the whole process stands still
    await until_true(lambda: lost == [first] and journal.session not in (0, first))
    assert await journal.send(OpenSession("behind"))
    await journal.close()
    end(process)


async def test_a_committer_that_stood_still_does_not_end_its_clients_sessions(folder: Path) -> None:
    process = start(folder, lease_seconds=1.0)
    journal = await Journal.open(folder, "worker")
    first = journal.session
    process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(3)
    process.send_signal(signal.SIGCONT)
    await journal.send(OpenSession("behind"))
    await asyncio.sleep(1.5)
    assert journal.session == first
    await journal.close()
    end(process)


async def test_a_successor_gives_the_sessions_that_it_finds_a_whole_lease(folder: Path) -> None:
    process = start(folder, lease_seconds=2.0)
    stays, goes = await Journal.open(folder, "worker"), await Journal.open(folder, "worker")
    gone = goes.session
    goes._closing = True
    for task in goes._tasks:
        task.cancel()
    process.kill(), process.wait()
    process = start(folder, lease_seconds=2.0)
    await stays.send(OpenSession("it is back"))
    assert await stays.horizons() == 0, "what the other one reads is not known"
    await until_true(lambda: goes._transport is None)
    store = ReadStore(JournalPaths(folder).database)
    assert store.query_one("SELECT state FROM session WHERE id = ?", (gone,))[0] == 0
    await until_true(lambda: store.query_one("SELECT state FROM session WHERE id = ?", (gone,))[0] == 1)
    head = store.head()
    for _ in range(1000):
        if await stays.horizons() >= head:
            break
        await asyncio.sleep(0.02)
    assert await stays.horizons() >= head
    await stays.close()
    store.close()
    end(process)


@pytest.mark.usefixtures("committer")
async def test_a_read_in_flight_holds_the_floor_and_a_backup_s_pin_does(folder: Path) -> None:
    reader, other = await Journal.open(folder, "worker"), await Journal.open(folder, "worker")

    async def rises_to(number: int) -> bool:
        for _ in range(150):
            if await other.horizons() >= number:
                return True
            await asyncio.sleep(0.02)
        return False

    store = ReadStore(JournalPaths(folder).database)
    assert await rises_to(store.head())
    with reader.reading():
        before = store.head()
        await other.send(OpenSession("later"))
        assert not await rises_to(store.head())
        assert await other.horizons() <= before
    assert await rises_to(store.head())
    await other.pin("backup", 2, time.time_ns() + 3600 * 10**9)
    assert await other.horizons() == 2
    assert await other.horizons(pins=False) >= store.head()
    await other.pin("backup", 2, time.time_ns() - 1)
    assert await rises_to(store.head())
    await reader.close(), await other.close()
    store.close()


class Slow(SqliteStore):
    """A disk that takes its time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def write(self, batch: Batch) -> None:
        self.may_go_on.wait(60)
        super().write(batch)


async def test_a_session_keeps_its_floor_until_its_end_is_durable(folder: Path) -> None:
    """What it sent before its end is committed before it, and may name what died behind its horizon."""
    slow_disk = Timing(journal=JournalTiming(loop_commit_seconds=-1.0))  # nothing is committed on the loop
    paths = JournalPaths(folder)
    store, stop = Slow(paths.database), asyncio.Event()
    server = Server(store, EVERY, paths, CommitterSettings(timing=slow_disk))
    running = asyncio.create_task(server.run(stop))
    goes, stays = await Journal.open(folder, "worker"), await Journal.open(folder, "worker")
    with goes.reading():
        held = store.head().number
        await stays.send(OpenSession("later"))
        assert server.committer.durable > held
        store.may_go_on.clear()
        late = asyncio.create_task(goes.send(OpenSession("the last that it sends")))
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(goes.close())
        await until_true(lambda: not server.leases.knows(goes.session))
        server.leases.renew(stays.session, time.monotonic(), 1 << 40)  # nobody else holds anything up
        assert server.committer.horizon() <= held
        store.may_go_on.set()
        assert await late
        await closing
    await until_true(lambda: server.committer.horizon() > held)
    await stays.close()
    stop.set()
    await running
    store.close()


async def test_an_end_that_could_not_be_made_durable_comes_again() -> None:
    leases = Leases(10)
    leases.open(1, 5, now=0)
    leases.end(1)
    assert (leases.knows(1), leases.horizon(9, [])) == (False, 5)
    leases.revive(1, now=20)
    assert (leases.knows(1), leases.horizon(9, []), leases.expired(31)) == (True, 5, [1])
    leases.end(1)
    leases.ended(1)
    assert leases.horizon(9, []) == 9


async def test_the_slots_of_sessions_that_ended_are_forgotten(folder: Path, committer: subprocess.Popen[bytes]) -> None:
    first, second = await Journal.open(folder, "worker"), await Journal.open(folder, "worker")
    await asyncio.gather(*(first.send(OpenSession("x")) for _ in range(100)))
    await second.send(OpenSession("x"))
    store = ReadStore(JournalPaths(folder).database)
    gone = first.session
    await first.close()
    await until_true(lambda: not store.query("SELECT 1 FROM slot WHERE session = ?", (gone,)))
    assert store.query("SELECT 1 FROM slot WHERE session = ?", (second.session,))
    await second.close()
    store.close()


@pytest.mark.usefixtures("committer")
async def test_a_beat_behind_the_goodbye_opens_no_new_session(folder: Path) -> None:
    journal = await Journal.open(folder, "worker")
    assert journal._transport is not None
    journal._closing = True
    goodbye = asyncio.create_task(journal._request(FrameKind.GOODBYE))
    await asyncio.sleep(0)
    journal._transport.write(frame(FrameKind.BEAT, 0) * 3)
    await goodbye
    await asyncio.sleep(0.2)
    with contextlib.closing(sqlite3.connect(JournalPaths(folder).database)) as store:
        assert store.execute("SELECT id FROM session WHERE state = 0").fetchall() == []
    await journal.close()


async def test_a_session_ended_behind_a_client_s_back_is_found_out_by_its_next_command(folder: Path) -> None:
    process = start(folder)
    journal = await Journal.open(folder, "worker")
    first = journal.session
    await journal.send(EndSession(first))
    with pytest.raises(SessionExpired):
        await journal.send(OpenSession("x"))
    await journal.close()
    end(process)
