"""A committer process and its clients: sessions, leases, floors, back-pressure, who comes and who goes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import Busy, CommitterGone, EntrepotError, Misconfigured, NoSuchBucket, SessionOver
from gateway.journal import client as clients
from gateway.journal import committing as commits
from gateway.journal import connection as connections
from gateway.journal import slots
from gateway.journal.client import Journal
from gateway.journal.leases import Leases
from gateway.journal.paths import SOCKET_PATH_MAX, JournalPaths
from gateway.journal.server import CommitterSettings, Server, held_lock
from gateway.journal.session_commands import OpenSession
from gateway.journal.sqlite.reading import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import Batch
from gateway.journal.wire import Kind, frame
from gateway.namespace.buckets import SetVersioning
from tests.journal.process import EVERY, end, found, start


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found(tmp_path)
    return tmp_path


@pytest.fixture
def committer(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = start(folder)
    yield process
    end(process)


async def until(true: Any, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(0.02)


@pytest.mark.usefixtures("committer")
async def test_what_was_answered_is_there_for_every_reader(folder: Path) -> None:
    journal = await Journal.open(folder, "worker")
    store = ReadStore(JournalPaths(folder).database)
    drawn = await asyncio.gather(*(journal.send(OpenSession(f"test {each}")) for each in range(500)))
    assert len(set(drawn)) == 500
    kinds = {row[0] for row in store.query("SELECT kind FROM session WHERE kind LIKE 'test %'")}
    assert kinds == {f"test {each}" for each in range(500)}
    await journal.close()
    store.close()


@pytest.mark.usefixtures("committer")
async def test_a_refusal_is_raised_as_what_it_is(folder: Path) -> None:
    journal = await Journal.open(folder, "worker")
    with pytest.raises(NoSuchBucket, match="nowhere"):
        await journal.send(SetVersioning("nowhere", 1, True, 1))
    await journal.close()


async def test_only_one_process_commits(folder: Path, committer: subprocess.Popen[bytes]) -> None:
    with (
        pytest.raises(Misconfigured, match=f"process {committer.pid} commits to .* already"),
        held_lock(JournalPaths(folder)),
    ):
        pass


@pytest.mark.usefixtures("committer")
def test_the_socket_is_its_user_s_alone(folder: Path) -> None:
    assert stat.S_IMODE(JournalPaths(folder).socket().stat().st_mode) == 0o600
    assert stat.S_IMODE(JournalPaths(folder).database.stat().st_mode) == 0o600


async def test_a_folder_with_a_long_path_has_a_short_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    found(folder)
    assert len(os.fsencode(JournalPaths(folder).socket())) <= SOCKET_PATH_MAX
    process = start(folder)
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for known_as in (folder, Path(folder.name), tmp_path / "link"):
        journal = await Journal.open(known_as, "cli")
        await journal.close()
    end(process)


async def test_a_session_that_says_goodbye_is_over_at_once(folder: Path, committer: subprocess.Popen[bytes]) -> None:
    first, second = await Journal.open(folder, "worker"), await Journal.open(folder, "worker")
    gone = first.session
    await first.close()
    store = ReadStore(JournalPaths(folder).database)
    assert store.one("SELECT state FROM session WHERE id = ?", (gone,))[0] == 1
    assert store.one("SELECT state FROM session WHERE id = ?", (second.session,))[0] == 0
    await second.close()
    store.close()


async def test_a_client_that_is_silent_for_a_lease_loses_its_session(folder: Path) -> None:
    process = start(folder, lease_seconds=1.0)
    journal = await Journal.open(folder, "worker")
    first, lost = journal.session, []
    journal.on_session_lost.append(lost.append)
    await journal.send(OpenSession("before"))
    time.sleep(2.5)  # the whole process stands still
    await until(lambda: lost == [first] and journal.session not in (0, first))
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
    assert await stays.floors() == 0, "what the other one reads is not known"
    await until(lambda: goes._transport is None)
    store = ReadStore(JournalPaths(folder).database)
    assert store.one("SELECT state FROM session WHERE id = ?", (gone,))[0] == 0
    await until(lambda: store.one("SELECT state FROM session WHERE id = ?", (gone,))[0] == 1)
    head = store.head()
    for _ in range(1000):
        if await stays.floors() >= head:
            break
        await asyncio.sleep(0.02)
    assert await stays.floors() >= head
    await stays.close()
    store.close()
    end(process)


@pytest.mark.usefixtures("committer")
async def test_a_read_in_flight_holds_the_floor_and_a_backup_s_pin_does(folder: Path) -> None:
    reader, other = await Journal.open(folder, "worker"), await Journal.open(folder, "worker")

    async def rises_to(number: int) -> bool:
        for _ in range(150):
            if await other.floors() >= number:
                return True
            await asyncio.sleep(0.02)
        return False

    store = ReadStore(JournalPaths(folder).database)
    assert await rises_to(store.head())
    with reader.reading():
        before = store.head()
        await other.send(OpenSession("later"))
        assert not await rises_to(store.head())
        assert await other.floors() <= before
    assert await rises_to(store.head())
    await other.pin("backup", 2, time.time_ns() + 3600 * 10**9)
    assert await other.floors() == 2
    assert await other.floors(pins=False) >= store.head()
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


async def test_a_session_keeps_its_floor_until_its_end_is_durable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it sent before its end is committed before it, and may name what died behind its floor."""
    monkeypatch.setattr(commits, "HERE_SECONDS", -1.0)  # this disk is a slow one
    paths = JournalPaths(folder)
    store, stop = Slow(paths.database), asyncio.Event()
    server = Server(store, EVERY, paths, CommitterSettings())
    running = asyncio.create_task(server.run(stop))
    goes, stays = await Journal.open(folder, "worker"), await Journal.open(folder, "worker")
    with goes.reading():
        held = store.head().number
        await stays.send(OpenSession("later"))
        assert server.committing.durable > held
        store.may_go_on.clear()
        late = asyncio.create_task(goes.send(OpenSession("the last that it sends")))
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(goes.close())
        await until(lambda: not server.leases.knows(goes.session))
        server.leases.beat(stays.session, time.monotonic(), 1 << 40)  # nobody else holds anything up
        assert server.floor() <= held
        store.may_go_on.set()
        assert await late
        await closing
    await until(lambda: server.floor() > held)
    await stays.close()
    stop.set()
    await running
    store.close()


async def test_an_end_that_could_not_be_made_durable_comes_again() -> None:
    leases = Leases(10)
    leases.open(1, 5, now=0)
    leases.end(1)
    assert (leases.knows(1), leases.floor(9, [])) == (False, 5)
    leases.revive(1, now=20)
    assert (leases.knows(1), leases.floor(9, []), leases.expired(31)) == (True, 5, [1])
    leases.end(1)
    leases.ended(1)
    assert leases.floor(9, []) == 9


@pytest.mark.usefixtures("committer")
async def test_more_than_a_process_may_have_waiting_is_busy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "WAITERS_MAX", 50)
    journal = await Journal.open(folder, "worker")
    sending = [journal.send(OpenSession("many")) for _ in range(slots.SLOTS + 100)]
    answers = await asyncio.gather(*sending, return_exceptions=True)
    refused = [each for each in answers if isinstance(each, Busy)]
    assert len(refused) == 50
    assert len({each for each in answers if isinstance(each, int)}) == slots.SLOTS + 50
    assert await journal.send(OpenSession("one more"))
    await journal.close()


@pytest.mark.usefixtures("committer")
async def test_a_client_that_sends_without_end_is_answered_busy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SLOTS", 3000)
    journal = await Journal.open(folder, "worker")
    answers = await asyncio.gather(*(journal.send(OpenSession("x")) for _ in range(3000)), return_exceptions=True)
    refused = [each for each in answers if isinstance(each, Busy)]
    assert refused
    assert len(answers) - len(refused) >= connections.COMMANDS_MAX
    await journal.close()


@pytest.mark.usefixtures("committer")
async def test_bytes_that_are_no_frame_end_that_connection_alone(folder: Path) -> None:
    journal = await Journal.open(folder, "worker")
    for nonsense in (b"\xff" * 100, frame(Kind.SEND, 5), frame(99), b"\0\0\0\1\xc1", b"GET /"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(JournalPaths(folder).socket()))
            stranger.sendall(nonsense)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(10)
            assert stranger.recv(1000) == b""
    assert await journal.send(OpenSession("still here"))
    await journal.close()


async def test_commands_wait_for_a_successor_and_are_refused_when_none_comes(
    folder: Path, committer: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await Journal.open(folder, "worker")
    committer.kill(), committer.wait()
    monkeypatch.setattr(clients, "GONE_SECONDS", 0.8)
    monkeypatch.setattr(slots, "WAIT_SECONDS", 0.8)
    many = [asyncio.create_task(journal.send(OpenSession("nobody"))) for _ in range(slots.SLOTS + 10)]
    answers = await asyncio.gather(*many, return_exceptions=True)
    assert all(isinstance(each, CommitterGone | Busy) for each in answers)
    monkeypatch.setattr(clients, "GONE_SECONDS", 10.0)
    monkeypatch.setattr(slots, "WAIT_SECONDS", 10.0)
    process = start(folder)
    found_again = await asyncio.gather(*(journal.send(OpenSession("somebody")) for _ in range(slots.SLOTS + 10)))
    assert len(set(found_again)) == slots.SLOTS + 10, "no slot was lost"
    store = ReadStore(JournalPaths(folder).database)
    assert not store.query("SELECT 1 FROM session WHERE kind = 'nobody'"), "what was given up is not sent again"
    await journal.close()
    store.close()
    end(process)


async def test_a_stop_answers_what_was_taken(folder: Path, committer: subprocess.Popen[bytes]) -> None:
    journal = await Journal.open(folder, "worker")
    sending = [asyncio.create_task(journal.send(OpenSession("taken"))) for _ in range(200)]
    await sending[0]
    committer.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(committer.wait, 20) == 0
    process = start(folder)
    assert len(set(await asyncio.gather(*sending))) == 200
    await journal.close()
    end(process)


async def test_the_slots_of_sessions_that_ended_are_forgotten(folder: Path, committer: subprocess.Popen[bytes]) -> None:
    first, second = await Journal.open(folder, "worker"), await Journal.open(folder, "worker")
    await asyncio.gather(*(first.send(OpenSession("x")) for _ in range(100)))
    await second.send(OpenSession("x"))
    store = ReadStore(JournalPaths(folder).database)
    gone = first.session
    await first.close()
    await until(lambda: not store.query("SELECT 1 FROM slot WHERE session = ?", (gone,)))
    assert store.query("SELECT 1 FROM slot WHERE session = ?", (second.session,))
    await second.close()
    store.close()


async def test_a_committer_without_clients_ends_by_itself_where_it_was_told_to(folder: Path) -> None:
    process = start(folder, idle_exit=3)
    journal = await Journal.open(folder, "cli")
    await asyncio.sleep(4.5)
    assert process.poll() is None
    await journal.close()
    assert await asyncio.to_thread(process.wait, 20) == 0


@pytest.mark.usefixtures("committer")
async def test_a_beat_behind_the_goodbye_opens_no_new_session(folder: Path) -> None:
    journal = await Journal.open(folder, "worker")
    assert journal._transport is not None
    journal._closing = True
    goodbye = asyncio.create_task(journal._ask(Kind.GOODBYE))
    await asyncio.sleep(0)
    journal._transport.write(frame(Kind.BEAT, 0) * 3)
    await goodbye
    await asyncio.sleep(0.2)
    with contextlib.closing(sqlite3.connect(JournalPaths(folder).database)) as store:
        assert store.execute("SELECT id FROM session WHERE state = 0").fetchall() == []
    await journal.close()


@pytest.mark.usefixtures("committer")
async def test_a_command_that_is_too_long_is_refused_and_holds_no_slot(folder: Path) -> None:
    journal = await Journal.open(folder, "worker")
    for _ in range(3):
        with pytest.raises(EntrepotError, match="a command of"):
            await journal.send(OpenSession("x" * (33 << 20)))
    assert journal._slots.free == slots.SLOTS
    await journal.close()


@pytest.mark.usefixtures("committer")
async def test_a_forked_child_is_told_to_open_a_connection_of_its_own(folder: Path) -> None:
    journal = await Journal.open(folder, "worker")
    store = ReadStore(JournalPaths(folder).database)
    before = store.head()
    reading, writing = os.pipe()
    with store.snapshot():
        store.head()
        child = os.fork()
        if child == 0:
            try:
                assert store.head() >= before
                with store.snapshot():
                    assert store.head() >= before
                try:
                    journal.send(OpenSession("child")).send(None)
                except CommitterGone:
                    os.write(writing, b"told")
            finally:
                os._exit(0)
    os.close(writing)
    assert os.read(reading, 10) == b"told"
    os.waitpid(child, 0)
    assert await journal.send(OpenSession("parent"))
    assert store.head() > before
    await journal.close()
    store.close()


async def test_a_cancelled_caller_leaves_its_command_on_its_way(
    folder: Path, committer: subprocess.Popen[bytes]
) -> None:
    journal = await Journal.open(folder, "worker")
    sending = asyncio.create_task(journal.send(OpenSession("left alone")))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    store = ReadStore(JournalPaths(folder).database)
    await until(lambda: store.query("SELECT 1 FROM session WHERE kind = 'left alone'"))
    await until(lambda: journal._slots.free == slots.SLOTS)
    await journal.close()
    store.close()


async def test_a_cancelled_caller_s_command_goes_to_the_successor(folder: Path) -> None:
    process = start(folder)
    journal = await Journal.open(folder, "worker")
    process.kill()
    process.wait()
    await until(lambda: not journal.connected)
    sending = asyncio.create_task(journal.send(OpenSession("left alone")))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    process = start(folder)
    store = ReadStore(JournalPaths(folder).database)
    await until(lambda: store.query("SELECT 1 FROM session WHERE kind = 'left alone'"))
    await until(lambda: journal._slots.free == slots.SLOTS)
    await journal.close()
    store.close()
    end(process)


async def test_a_session_ended_behind_a_client_s_back_is_found_out_by_its_next_command(folder: Path) -> None:
    process = start(folder)
    journal = await Journal.open(folder, "worker")
    from gateway.journal.session_commands import EndSession

    first = journal.session
    await journal.send(EndSession(first))
    with pytest.raises(SessionOver):
        await journal.send(OpenSession("x"))
    await journal.close()
    end(process)
