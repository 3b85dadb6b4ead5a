"""The local driver after kill -9 and after a power cut: every acknowledged value is there, and none is torn."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backends import base, errors
from backends.local.backend import Local
from backends.local.wal import LOG_BYTES_MIN
from tests.backends.contract import key, listed, put
from tests.backends.mounts import mounted
from tests.backends.putter import value_of

pytestmark = pytest.mark.slow


async def open_warm(folder: Path) -> Local:
    backend = await Local.open(str(folder), wal_bytes=LOG_BYTES_MIN)
    await backend.warm()
    return backend


def start_putter(folder: Path, session: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.backends.putter", str(folder), str(session)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])


def kill_after(process: subprocess.Popen[bytes], lines: int) -> tuple[set[str], set[str]]:
    """Kill *process* after so many lines. Answers the keys that must be there, and those that must be gone."""
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    told += process.stdout.read().split(b"\n")
    process.wait()
    words = {line.strip().decode() for line in told if line.strip()}
    gone = {word[1:] for word in words if word.startswith("-")}
    going = {word[1:] for word in words if word.startswith("?")}
    return {word for word in words if word[0] not in "-?"} - going, gone


async def check_whole(backend: Local, acknowledged: set[str]) -> set[str]:
    """All *acknowledged* are there, nothing is torn; answers all keys."""
    keys = {line.key for line in await listed(backend.list())}
    assert acknowledged <= keys
    for each in keys:
        assert bytes(await backend.get(each)) == value_of(each), each
    return keys


async def test_killed_again_and_again_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    folder, acknowledged, deleted = tmp_path / "blocks", set[str](), set[str]()
    chance = random.Random(4)
    for session in range(6):
        put_now, gone = kill_after(start_putter(folder, session), chance.randrange(1, 400))
        acknowledged |= put_now
        deleted |= gone
    backend = await Local.open(str(folder))
    keys = await check_whole(backend, acknowledged)
    assert not keys & deleted
    await backend.close()
    desks = [name for name in os.listdir(folder / ".entrepot") if name.startswith("desk-")]
    assert len(desks) <= 2
    assert all(not name.startswith("new-") for desk in desks for name in os.listdir(folder / ".entrepot" / desk))


async def test_two_are_killed_while_a_third_lists_and_deletes(tmp_path: Path) -> None:
    folder = tmp_path / "blocks"
    processes = [start_putter(folder, session) for session in (1, 2)]
    backend = await open_warm(folder)
    await put(backend, "0003/1", value_of("0003/1"))
    outcomes = await asyncio.gather(*(asyncio.to_thread(kill_after, each, 300) for each in processes))
    acknowledged = outcomes[0][0] | outcomes[1][0]
    keys = await check_whole(backend, acknowledged | {"0003/1"})
    for each in keys:
        await backend.delete(each)
    assert await listed(backend.list()) == []
    await backend.close()
    backend = await Local.open(str(folder))
    assert await listed(backend.list()) == []
    await backend.close()


def cut_power(folder: Path, chance: random.Random, to: Path) -> None:
    """Copy *folder* as a disk may look after a power cut: the logs were synced, of the files nothing was."""
    shutil.copytree(folder, to)
    for path in sorted(to.rglob("*")):
        if ".entrepot" in path.parts or not path.is_file():
            continue
        match chance.randrange(5):
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(b"")
            case 2:
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            case 3:
                path.write_bytes(bytes(path.stat().st_size))
    for path in to.iterdir():
        if path.name != ".entrepot" and chance.randrange(3) == 0:
            shutil.rmtree(path)


@pytest.mark.parametrize("seed", range(5))
async def test_after_a_power_cut_small_values_come_back_from_the_log(tmp_path: Path, seed: int) -> None:
    folder, chance = tmp_path / "blocks", random.Random(seed)
    backend = await open_warm(folder)
    keys = [key(number, session=number % 4) for number in range(120)]
    values = {each: chance.randbytes(chance.choice([0, 10, 4_096, 9_000])) for each in keys}
    await asyncio.gather(*(put(backend, each, value) for each, value in values.items()))
    gone = keys[::10]
    await asyncio.gather(*(backend.delete(each) for each in gone))
    cut_power(folder, chance, tmp_path / "after")
    await backend.close()
    for _ in range(2):  # restoring twice is restoring once
        restored = await Local.open(str(tmp_path / "after"))
        assert [line.key for line in await listed(restored.list())] == sorted(set(keys) - set(gone))
        for each in set(keys) - set(gone):
            assert bytes(await restored.get(each)) == values[each]
        await restored.close()


async def test_on_a_full_disk_an_empty_log_makes_room_for_restoring(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=64m", "tmpfs"):
        folder = tmp_path / "disk" / "blocks"
        backend = await open_warm(folder)
        for number in range(20):
            await put(backend, key(number), bytes([number]) * 200_000)
        shutil.copytree(folder, tmp_path / "copy")
        await backend.close()
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / "copy" / key(0)[:16])
        shutil.copytree(tmp_path / "copy", folder)
        with contextlib.suppress(OSError), (tmp_path / "disk" / "filler").open("wb") as filler:
            filler.write(bytes(64 << 20))
        restored = await Local.open(str(folder))
        for number in range(20):
            assert bytes(await restored.get(key(number))) == bytes([number]) * 200_000
        await restored.delete(key(0))
        await restored.close()


async def test_a_record_that_was_torn_is_not_restored_and_those_before_it_are(tmp_path: Path) -> None:
    folder = tmp_path / "blocks"
    backend = await open_warm(folder)
    for number in range(3):
        await put(backend, key(number), bytes([number]) * 5_000)
    shutil.copytree(folder, tmp_path / "after")
    await backend.close()
    (log,) = (path for path in (tmp_path / "after").rglob("*.log") if b"\2" * 5_000 in path.read_bytes())
    raw = bytearray(log.read_bytes())
    raw[raw.index(b"\2" * 5_000) + 4_096] ^= 1
    log.write_bytes(raw)
    shutil.rmtree(tmp_path / "after" / key(0)[:16])
    restored = await Local.open(str(tmp_path / "after"))
    assert [line.key for line in await listed(restored.list())] == [key(0), key(1)]
    await restored.close()


async def test_values_of_a_log_that_was_reset_are_not_restored(tmp_path: Path) -> None:
    """A stale record would bring back what another process has deleted since."""
    folder = tmp_path / "blocks"
    backend = await open_warm(folder)
    await asyncio.gather(*(put(backend, key(number), b"old") for number in range(20)))
    await backend.close()
    backend = await open_warm(folder)
    await put(backend, key(77), b"new")
    for number in range(20):
        os.unlink(folder / key(number))
    shutil.copytree(folder, tmp_path / "after")
    await backend.close()
    restored = await Local.open(str(tmp_path / "after"))
    assert [line.key for line in await listed(restored.list())] == [key(77)]
    await restored.close()


async def test_the_logs_take_turns_and_nothing_is_lost_when_they_are_outrun(tmp_path: Path) -> None:
    """More than both logs hold, at once: some values take the plain way, and all are there after a power cut."""
    folder = tmp_path / "blocks"
    backend = await open_warm(folder)
    value = os.urandom(200_000)
    for session in range(3):
        await asyncio.gather(*(put(backend, key(number, session), value) for number in range(60)))
    shutil.copytree(folder, tmp_path / "after")
    await backend.close()
    restored = await Local.open(str(tmp_path / "after"))
    for session in range(3):
        for number in range(60):
            assert bytes(await restored.get(key(number, session))) == value
    await restored.close()


async def test_a_failed_sync_keeps_the_log_and_the_files_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = await open_warm(tmp_path / "blocks")
    values = {key(number): os.urandom(3_000) for number in range(10)}
    for each, value in values.items():
        await put(backend, each, value)
    await backend.delete(key(9))
    wal = backend._wal
    assert wal is not None

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(backend._root, "sync_values", fail)
        wal._rotate()
        while not any(segment.suspect for segment in wal._segments):
            await asyncio.sleep(0.001)
    before = {each: os.stat(tmp_path / "blocks" / each).st_ino for each in values if each != key(9)}
    await put(backend, key(50), b"on the other log")
    wal._rotate()
    while any(segment.suspect for segment in wal._segments):
        await asyncio.sleep(0.001)
    for each, inode in before.items():
        assert os.stat(tmp_path / "blocks" / each).st_ino != inode
        assert bytes(await backend.get(each)) == values[each]
    with pytest.raises(errors.NotFound):
        await backend.get(key(9))
    await backend.close()


async def test_a_failed_sync_of_the_log_fails_the_puts_and_the_next_ones_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = await open_warm(tmp_path / "blocks")

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail)
        outcomes = await asyncio.gather(*(put(backend, key(n), b"lost") for n in range(4)), return_exceptions=True)
        assert all(isinstance(outcome, errors.Unavailable) for outcome in outcomes)
    assert await listed(backend.list()) == []
    await put(backend, key(1), b"x")
    shutil.copytree(tmp_path / "blocks", tmp_path / "after")
    await backend.close()
    restored = await Local.open(str(tmp_path / "after"))
    assert bytes(await restored.get(key(1))) == b"x"
    assert base.check_key(key(1))
    await restored.close()
