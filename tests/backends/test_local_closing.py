"""A local backend closes: what is under way ends first, nothing is left behind, and what comes later is refused."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends import errors
from backends.base import Marker
from backends.local import files, values
from backends.local.backend import Local
from backends.local.wal import LOG_BYTES_MIN
from tests.backends.contract import SITE, key, listed, put
from tests.backends.opening import opened


async def test_closing_leaves_nothing_half_made_behind(folder: Path) -> None:
    async with opened(folder) as backend:
        await asyncio.gather(*(put(backend, key(number), b"x") for number in range(100)))
    assert list(folder.rglob("new-*")) == []


async def test_a_closed_one_says_so(folder: Path) -> None:
    async with opened(folder) as backend:
        pass
    with pytest.raises(errors.Misconfigured, match="closed"):
        await backend.get(key(1))


async def test_a_deletion_under_way_is_made_durable_before_it_closes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, remove = threading.Event(), values.remove

    def held_up(root: files.Root, name: str) -> None:
        assert go_on.wait(60)
        remove(root, name)

    monkeypatch.setattr(values, "remove", held_up)
    backend = await Local.open(str(folder), wal_bytes=0)
    await put(backend, key(1), b"x")
    deleting = asyncio.create_task(backend.delete(key(1)))
    await asyncio.sleep(0)
    closing = asyncio.create_task(backend.close())
    await asyncio.sleep(0.05)
    go_on.set()
    await closing
    await deleting
    assert not (folder / key(1)).exists()


async def test_calls_under_way_come_to_their_end_before_it_closes(folder: Path) -> None:
    backend = await Local.open(str(folder), wal_bytes=LOG_BYTES_MIN)
    await asyncio.gather(*(put(backend, key(n), bytes(300_000 * (n % 2))) for n in range(8)))
    calls = [backend.delete(key(n)) for n in range(8)]
    calls += [put(backend, key(10 + n), bytes(300_000 * (n % 2) + 1)) for n in range(8)]
    calls += [backend.claim(Marker(SITE, 1, 1))]
    running = [asyncio.create_task(each) for each in calls]
    await asyncio.sleep(0)
    await backend.close()
    assert all(task.done() and task.exception() is None for task in running)
    async with opened(folder, warm=False) as again:
        assert sorted(line.key for line in await listed(again.list())) == [key(10 + n) for n in range(8)]
        assert await again.marker() == Marker(SITE, 1, 1)


async def test_closing_a_second_time_waits_for_the_first_and_goes_on_if_that_is_cancelled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    backend = await Local.open(str(folder), wal_bytes=LOG_BYTES_MIN)
    await put(backend, key(1), b"x")
    go_on, sync_values = threading.Event(), files.Root.sync_values

    def held_up(self: files.Root, keys: Sequence[str]) -> None:
        assert go_on.wait(60)
        sync_values(self, keys)

    monkeypatch.setattr(files.Root, "sync_values", held_up)
    await backend.warm()
    await put(backend, key(2), b"in a log")
    first = asyncio.create_task(backend.close())
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second, third = (asyncio.create_task(backend.close()) for _ in range(2))
    await asyncio.sleep(0.01)
    go_on.set()
    await second
    await third
    assert len(os.listdir("/proc/self/fd")) <= before
    await backend.close()


async def test_a_step_of_closing_that_fails_keeps_none_of_the_others_from_being_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> None:
        raise OSError("broken")

    before = len(os.listdir("/proc/self/fd"))
    backend = await Local.open(str(folder))
    await put(backend, key(1), bytes(300_000))
    monkeypatch.setattr(backend._dir_sync, "close", fails)
    with pytest.raises(OSError, match="broken"):
        await backend.close()
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_what_is_asked_of_a_closed_one_is_refused_whatever_it_is(folder: Path) -> None:
    async with opened(folder) as backend:
        await put(backend, key(1), b"x")
        lines = backend.list()
        await anext(lines)
    for call in (backend.marker(), backend.claim(Marker(SITE, 1, 1)), backend.delete(key(1)), anext(lines)):
        with pytest.raises(errors.Misconfigured, match="closed"):
            await call
