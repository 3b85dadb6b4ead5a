"""The power is cut anywhere in a recorded life of a local backend: what was acknowledged is there, nothing is torn."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from backends import base
from backends.base import Marker
from backends.local import direct_io, file_pool, files, listing, values, wal_format, workdir
from backends.local import marker as local_marker
from backends.local.backend import Local
from backends.local.wal import LOG_BYTES_MIN
from tests.backends.contract import SITE, listed
from tests.backends.recorded_disk import Disk, Recorder

pytestmark = pytest.mark.slow

MODULES = [workdir, direct_io, wal_format, files, listing, local_marker, values, file_pool]
SIZES = [0, 100, 4_096, 5_000, 20_000, 300_000]


def value_of(key: str) -> bytes:
    return random.Random(key).randbytes(random.Random(key + "s").choice(SIZES))


async def live(folder: Path, recorder: Recorder) -> None:
    """A life with everything in it: small and large puts, deletes, logs that turn over, an end and a second life."""
    for life in range(2):
        backend = await Local.open(str(folder), wal_bytes=LOG_BYTES_MIN)
        await backend.claim(Marker(SITE, 1, life))
        recorder.note("claimed", str(life))
        await backend.warm()
        wal = backend._wal
        assert wal is not None

        async def work(task: int, backend: Local = backend, life: int = life) -> None:
            for number in range(12):
                key = f"{life * 3 + task % 2:016x}/{task}{number:04x}"
                value = value_of(key)
                await backend.put(key, [value], base.crc32c_of([value]))
                recorder.note("put", key)
                if number % 4 == 3:
                    recorder.note("delete", key)
                    await backend.delete(key)
                    recorder.note("deleted", key)

        for half in range(2):
            await asyncio.gather(*(work(half * 3 + task) for task in range(3)))
            wal._rotate()
        await backend.close()


def promised(recorder: Recorder, count: int) -> tuple[set[str], set[str], set[str], int]:
    """(keys that must be there, keys that may, keys that must not, the incarnation that claimed) after so many
    events."""
    must, may, gone, life = set[str](), set[str](), set[str](), -1
    for event in recorder.events[:count]:
        match event.what:
            case "put":
                must.add(event.path)
            case "delete":
                must.discard(event.path)
                may.add(event.path)
            case "deleted":
                gone.add(event.path)
            case "claimed":
                life = int(event.path)
    return must, may, gone, life


@pytest.fixture(autouse=True)
def _sync_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder does not see a syncfs."""
    monkeypatch.setattr(files, "SYNC_ALL_FROM", 1 << 30)


SEEDS = [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)]


@pytest.mark.parametrize("seed", SEEDS)
async def test_power_cut_anywhere_leaves_every_promise_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    recorder, chance = Recorder(), random.Random(seed)
    with recorder.standing_in(monkeypatch, MODULES):
        await live(tmp_path / "blocks", recorder)
    for count in [*chance.sample(range(len(recorder.events)), 40), len(recorder.events)]:
        after = tmp_path / f"after-{count}"
        Disk(recorder.events, count, chance).write_to(after)
        await check(after, *promised(recorder, count))
        shutil.rmtree(after)


@pytest.mark.parametrize("seed", SEEDS)
async def test_power_cut_again_while_restoring_loses_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    first, chance = Recorder(), random.Random(seed)
    with first.standing_in(monkeypatch, MODULES):
        await live(tmp_path / "blocks", first)
    for count in chance.sample(range(len(first.events)), 5):
        once = tmp_path / f"once-{count}"
        Disk(first.events, count, chance).write_to(once)
        second = Recorder()
        second.adopt(once)
        begun = len(second.events)
        with second.standing_in(monkeypatch, MODULES):
            await (await Local.open(str(once), wal_bytes=0)).close()
        for again in {*chance.choices(range(begun, len(second.events) + 1), k=5), len(second.events)}:
            twice = tmp_path / f"twice-{count}-{again}"
            Disk(second.events, again, chance).write_to(twice)
            await check(twice, *promised(first, count))
            shutil.rmtree(twice)


async def check(after: Path, must: set[str], may: set[str], gone: set[str], life: int) -> None:
    restored = await Local.open(str(after))
    marker = await restored.marker()
    assert (marker.incarnation if marker is not None else -1) >= life
    there = {line.key for line in await listed(restored.list())}
    assert must <= there, f"lost: {sorted(must - there)}"
    assert not gone & there, f"deleted, and back: {sorted(gone & there)}"
    for key in must:
        assert bytes(await restored.get(key)) == value_of(key), f"torn: {key}"
    for key in there - must - may:
        assert bytes(await restored.get(key)) == value_of(key), f"torn, though nobody was told of it: {key}"
    await restored.close()
