"""A committer process and its clients: what is answered and refused, back-pressure, and who takes over."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from gateway.errors import Busy, CommitterGone, EntrepotError, Misconfigured, NoSuchBucket
from gateway.journal import slots
from gateway.journal.client import Journal
from gateway.journal.paths import SOCKET_PATH_MAX, JournalPaths
from gateway.journal.server import connection as connections
from gateway.journal.server.server import hold_lock
from gateway.journal.session_commands import OpenSession
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.wire import FrameKind, frame
from gateway.namespace.commands.buckets import SetVersioning
from gateway.timing import Timing, parse_timing
from tests.journal.process import end, found, start
from tests.waiting import until_true


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
        hold_lock(JournalPaths(folder)),
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


@pytest.mark.usefixtures("committer")
async def test_more_than_a_process_may_have_waiting_is_busy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "WAITERS_MAX", 100)  # of which one user may have half
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
    for nonsense in (b"\xff" * 100, frame(FrameKind.SEND, 5), frame(99), b"\0\0\0\1\xc1", b"GET /"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(JournalPaths(folder).socket()))
            stranger.sendall(nonsense)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(10)
            assert stranger.recv(1000) == b""
    assert await journal.send(OpenSession("still here"))
    await journal.close()


async def test_commands_wait_for_a_successor_and_are_refused_when_none_comes(
    folder: Path, committer: subprocess.Popen[bytes]
) -> None:
    journal = await Journal.open(folder, "worker")
    committer.kill(), committer.wait()
    journal.timing = parse_timing("journal.answer_seconds=0.3; journal.slot_seconds=0.3; journal.beat_seconds=0.1")
    many = [asyncio.create_task(journal.send(OpenSession("nobody"))) for _ in range(slots.SLOTS + 10)]
    answers = await asyncio.gather(*many, return_exceptions=True)
    assert all(isinstance(each, CommitterGone | Busy) for each in answers)
    journal.timing = Timing()
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


async def test_a_committer_without_clients_ends_by_itself_where_it_was_told_to(folder: Path) -> None:
    process = start(folder, idle_exit=3)
    journal = await Journal.open(folder, "cli")
    await asyncio.sleep(4.5)
    assert process.poll() is None
    await journal.close()
    assert await asyncio.to_thread(process.wait, 20) == 0


@pytest.mark.usefixtures("committer")
async def test_a_command_that_is_too_long_is_refused_and_holds_no_slot(folder: Path) -> None:
    journal = await Journal.open(folder, "worker")
    for _ in range(3):
        with pytest.raises(EntrepotError, match="a command of"):
            await journal.send(OpenSession("x" * (33 << 20)))
    assert journal._pending.slots.free == slots.SLOTS
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
    await until_true(lambda: store.query("SELECT 1 FROM session WHERE kind = 'left alone'"))
    await until_true(lambda: journal._pending.slots.free == slots.SLOTS)
    await journal.close()
    store.close()


async def test_a_cancelled_caller_s_command_goes_to_the_successor(folder: Path) -> None:
    process = start(folder)
    journal = await Journal.open(folder, "worker")
    process.kill()
    process.wait()
    await until_true(lambda: not journal.connected)
    sending = asyncio.create_task(journal.send(OpenSession("left alone")))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    process = start(folder)
    store = ReadStore(JournalPaths(folder).database)
    await until_true(lambda: store.query("SELECT 1 FROM session WHERE kind = 'left alone'"))
    await until_true(lambda: journal._pending.slots.free == slots.SLOTS)
    await journal.close()
    store.close()
    end(process)
