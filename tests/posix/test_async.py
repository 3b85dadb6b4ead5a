"""The asynchronous interface: coroutines, streamed files, several event loops."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
from pathlib import Path

import pytest

from gateway.posix.fsspec.connections import _connections
from gateway.posix.fsspec.filesystem import EntrepotFileSystem
from tests.posix.journal_view import sessions_of

MIB = 1 << 20


@pytest.fixture
async def own(reach):
    fs = EntrepotFileSystem(**reach, asynchronous=True)
    yield fs
    await fs._close()


async def test_every_verb_can_be_awaited(own, bucket, tmp_path):
    await own._pipe({f"{bucket}/d/{number}": b"%d" % number for number in range(20)})
    assert await own._cat_file(f"{bucket}/d/7") == b"7"
    assert await own._cat_ranges([f"{bucket}/d/12"] * 2, [0, 1], [1, 2]) == [b"1", b"2"]
    assert len(await own._find(bucket)) == 20
    assert await own._glob(f"{bucket}/d/1?") == [f"{bucket}/d/{number}" for number in range(10, 20)]
    await own._mv(f"{bucket}/d", f"{bucket}/e")
    await own._copy(f"{bucket}/e", f"{bucket}/f", recursive=True)
    await own._get(f"{bucket}/f", str(tmp_path / "f"), recursive=True)
    assert (tmp_path / "f" / "3").read_bytes() == b"3"
    await own._put(str(tmp_path / "f"), f"{bucket}/g", recursive=True)
    assert await own._du(f"{bucket}/g") == 30
    assert [names async for _, _, names in own._walk(f"{bucket}/e")] == [sorted(map(str, range(20)))]
    await own._rm(bucket, recursive=True)
    assert not await own._exists(bucket)


async def test_a_thousand_calls_at_once_are_answered(own, bucket):
    paths = [f"{bucket}/{number}" for number in range(1000)]
    await asyncio.gather(*[own._pipe_file(path, path.encode()) for path in paths])
    assert await asyncio.gather(*[own._cat_file(path) for path in paths]) == [path.encode() for path in paths]


async def test_a_streamed_file_is_written_and_read(own, bucket):
    data = os.urandom(20 * MIB)
    async with await own.open_async(f"{bucket}/x", "wb") as opened:
        for at in range(0, len(data), 3 * MIB):
            await opened.write(data[at : at + 3 * MIB])
        assert not await own._exists(f"{bucket}/x")
    async with await own.open_async(f"{bucket}/x") as opened:
        assert await opened.read(1000) == data[:1000]
        assert await opened.read() == data[1000:]
    async with await own.open_async(f"{bucket}/x", "ab") as opened:
        await opened.write(b"more")
    assert await own._cat_file(f"{bucket}/x", start=-10) == data[-6:] + b"more"


async def test_a_streamed_file_that_fails_is_not_published(own, bucket):
    with pytest.raises(RuntimeError):
        async with await own.open_async(f"{bucket}/x", "wb") as opened:
            await opened.write(bytes(20 * MIB))
            raise RuntimeError("the program fails")
    assert not await own._exists(f"{bucket}/x")
    await own._pipe_file(f"{bucket}/x", b"")
    with pytest.raises(FileExistsError):
        await own.open_async(f"{bucket}/x", "xb")
    with pytest.raises(IsADirectoryError):
        await own.open_async(bucket)


async def test_a_reader_is_told_of_a_change(own, bucket):
    await own._pipe_file(f"{bucket}/x", b"one")
    async with await own.open_async(f"{bucket}/x") as opened:
        await own._pipe_file(f"{bucket}/x", b"two")
        with pytest.raises(OSError) as stale:
            await opened.read()
    assert stale.value.errno == errno.ESTALE


def test_each_loop_opens_the_site_for_itself(fs, reach, bucket):
    own = EntrepotFileSystem(**reach, asynchronous=True)

    async def once(number: int) -> bytes:
        await own._pipe_file(f"{bucket}/{number}", b"%d" % number)
        found = await own._cat_file(f"{bucket}/{number}")
        await own._close()
        return found

    assert [asyncio.run(once(number)) for number in range(3)] == [b"0", b"1", b"2"]
    assert len(fs.find(bucket)) == 3


def test_a_loop_that_ends_leaves_nothing_open_though_nobody_closed_it(reach, folder, bucket, caplog):
    own = EntrepotFileSystem(**reach, asynchronous=True)

    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def once(number: int) -> None:
        await own._pipe_file(f"{bucket}/{number}", b"")

    asyncio.run(once(0))
    before, sessions = opened(), len(sessions_of(folder))
    for number in range(1, 13):
        asyncio.run(once(number))
    assert opened() < before + 6, "what each loop opened stays open"
    assert len(sessions_of(folder)) < sessions + 6, "a session is left to its lease"
    assert not [each.message for each in caplog.records if "Unclosed" in each.message]


def test_a_loop_that_was_closed_by_hand_is_let_go_of_by_the_next(reach, bucket, caplog):
    own = EntrepotFileSystem(**reach, asynchronous=True)
    for number in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(own._pipe_file(f"{bucket}/{number}", b""))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        gc.collect()
        assert len([ref for ref in _connections.keyrefs() if ref() is loop or ref() is None]) <= 1
    assert len([ref for ref in _connections.keyrefs() if (known := ref()) is not None and known.is_closed()]) == 1
    assert not [each.message for each in caplog.records if "Unclosed" in each.message]
