"""A local backend's logs of small values: synced before they are used, and given back while nobody needs them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.local import files, wal, wal_format, workdir
from backends.local.backend import Local
from backends.local.wal_format import DELETED, PUT
from backends.timing import DriverTiming
from tests.backends.contract import key, put
from tests.backends.opening import opened
from tests.backends.recorded_disk import Recorder


async def test_logs_that_another_made_are_synced_before_they_are_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their maker may have died before it synced their names."""
    async with opened(folder):
        pass
    recorder = Recorder()
    recorder.adopt(folder)
    begun = len(recorder.events)
    with recorder.standing_in(monkeypatch, [workdir, wal_format, files]):
        async with opened(folder):
            synced = {event.path for event in recorder.events[begun:] if event.what == "sync names"}
    assert any(path.startswith(".entrepot/desk-") for path in synced)
    assert {"", ".entrepot"} <= synced


def logs(folder: Path) -> list[Path]:
    return [*folder.glob(".entrepot/*/*.log")]


async def until_no_logs(folder: Path) -> None:
    while logs(folder):
        await asyncio.sleep(0.01)


async def put_logs_away(backend: Local) -> None:
    """Let the turns of the logs come until *backend* begins to give them back, which goes on beside what follows."""
    while (own := backend._wal) is not None:
        own._tick()
        await asyncio.sleep(0.001)  # the checkpoint that it may have begun runs in a thread


async def make_logs(backend: Local) -> None:
    """Let *backend* finish giving its logs back, and make new ones."""
    while backend._wal is None:
        await backend.warm()


async def test_idle_logs_give_their_room_back_until_the_next_small_put(folder: Path) -> None:
    async with opened(folder, timing=DriverTiming(log_turn_seconds=0)) as backend:
        for round_ in range(3):
            assert len(logs(folder)) == 2
            await asyncio.gather(*(put(backend, key(round_ * 10 + n), bytes([n]) * 100) for n in range(10)))
            await until_no_logs(folder)
            assert not [*folder.glob(".entrepot/*/new-*")], "files made ahead go, too"
            await put(backend, key(100 + round_), b"without a log")
            await backend.delete(key(round_ * 10))
            await backend.warm()
        assert len([line async for line in backend.list()]) == 3 * 9 + 3
    async with opened(folder, warm=False) as backend:
        assert bytes(await backend.get(key(11))) == bytes([1]) * 100


async def test_puts_lose_nothing_while_logs_come_and_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = 0
    discard = workdir.WorkDir.discard_logs

    def counted(self: workdir.WorkDir) -> None:
        nonlocal gone
        gone += 1
        discard(self)

    monkeypatch.setattr(workdir.WorkDir, "discard_logs", counted)
    async with opened(folder) as backend:
        for n in range(200):
            await asyncio.gather(*(put(backend, key(4 * n + each), b"%d" % n) for each in range(4)))
            if n % 10 == 5:
                await make_logs(backend)
            elif n % 10 == 0:
                await put_logs_away(backend)
        await make_logs(backend)
        assert gone == 20
        for n in range(200):
            for each in range(4):
                assert bytes(await backend.get(key(4 * n + each))) == b"%d" % n


async def test_logs_are_not_given_back_while_a_group_is_on_its_way_into_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits no more, and is not among the keys yet. Without the log its deletion would not be logged, and a crash
    before the log is reset would bring the value back."""
    begun, go_on = threading.Event(), threading.Event()
    append = wal_format.WalFile.append

    def held_up(self: wal_format.WalFile, entries: Sequence[wal_format.WalEntry]) -> None:
        begun.set()
        assert go_on.wait(60)
        append(self, entries)

    async with opened(folder) as backend:
        monkeypatch.setattr(wal_format.WalFile, "append", held_up)
        putting = asyncio.create_task(put(backend, key(1), b"on its way"))
        await asyncio.to_thread(begun.wait, 60)
        own = backend._wal
        assert own is not None
        own._tick()
        assert backend._wal is own, "taken for idle"
        go_on.set()
        await putting
        await backend.delete(key(1))
        assert [found.kind for log in own._workdir.logs for found in log.records()] == [PUT, DELETED]
        own._tick()
        assert backend._wal is own, "there are records to be superseded"


async def test_a_log_whose_sync_fails_is_not_given_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    async with opened(folder) as backend:
        await put(backend, key(1), b"acknowledged")
        monkeypatch.setattr(files.Root, "sync_values", fails)
        monkeypatch.setattr(wal, "restore", fails)
        backend._retire_wal()
        assert backend._preparing is not None
        await backend._preparing
        assert len(logs(folder)) == 2
        await put(backend, key(2), b"the plain way")
        assert backend._wal is None
        monkeypatch.undo()
    (folder / key(1)).write_bytes(b"torn")
    async with opened(folder, warm=False) as backend:
        assert bytes(await backend.get(key(1))) == b"acknowledged"
