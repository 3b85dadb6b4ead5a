"""Faulty backends, and everything at once: what was acknowledged can be read, and no garbage stays."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends import errors as backend_errors
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway import errors
from gateway.blocks.fsck.findings import Severity
from gateway.blocks.fsck.fsck import check_site
from tests.blocks.site import Site
from tests.blocks.test_fsck import tamper
from tests.blocks.world import World

MIB = 1 << 20
DATA = random.Random(10).randbytes(18 * MIB)
LIES = [FaultKind.ERROR, FaultKind.SHORT, FaultKind.FLIP, FaultKind.STALE, FaultKind.GONE, FaultKind.DELAY]

faults = st.lists(
    st.builds(
        Fault,
        st.sampled_from(LIES),
        verb=st.just("get"),
        share=st.sampled_from([0.2, 0.6, 1.0]),
        seconds=st.just(0.0),
        error=st.sampled_from([backend_errors.Unavailable, backend_errors.Corrupted, backend_errors.Denied]),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=40)
@given(faults, st.integers(0, 18 * MIB), st.integers(0, 18 * MIB), st.integers(0, 99))
async def test_whatever_one_copy_does_a_read_is_right_while_another_is_whole(
    planned: list[Fault], start: int, length: int, seed: int
) -> None:
    plan = FaultPlan(seed=seed)
    world = World(Faulty(Memory("bad"), plan), Memory("good"))
    stored = await world.put(DATA, MIB)
    for fault in planned:
        plan.add(fault)
    length = min(length, len(DATA) - start)
    assert await world.get(stored.extents, start, length) == DATA[start : start + length]
    assert world.reading.used == 0


@settings(max_examples=40)
@given(faults, st.integers(0, 99))
async def test_a_single_copy_answers_right_or_not_at_all(planned: list[Fault], seed: int) -> None:
    plan = FaultPlan(seed=seed)
    world = World(Faulty(Memory(), plan))
    stored = await world.put(DATA[: 9 * MIB], MIB)
    for fault in planned:
        plan.add(fault)
    got = b""
    with contextlib.suppress(errors.Corrupted, errors.Unavailable):
        got = await world.get(stored.extents)
    assert got in (b"", DATA[: 9 * MIB])
    assert world.reading.used == 0


@pytest.mark.parametrize("kind", [FaultKind.DROP, FaultKind.HALF])
async def test_a_backend_that_loses_a_confirmed_put_is_found(tmp_path: Path, kind: FaultKind) -> None:
    plan = FaultPlan()
    site = Site(tmp_path, Faulty(Memory(), plan))
    tamper(site, "INSERT INTO ring_key VALUES (5, 1, x'', '', 0)")
    plan.add(Fault(kind, verb="put"))
    await site.put(b"k", DATA[: 2 * MIB])
    with pytest.raises(errors.Corrupted):
        await site.get(b"k")
    report = await check_site(site.path, site.store, site.backends)
    assert set(report.kinds) == {"block-missing" if kind is FaultKind.DROP else "block-size"}
    site.close()


async def test_a_full_backend_takes_no_puts_and_all_deletes(tmp_path: Path) -> None:
    plan = FaultPlan()
    site = Site(tmp_path, Faulty(Memory(), plan))
    await site.put(b"k", DATA[: 2 * MIB])
    plan.add(Fault(FaultKind.ERROR, verb="put", error=backend_errors.Full))
    with pytest.raises(errors.DiskFull):
        await site.put(b"more", b"x")
    assert await site.get(b"k") == DATA[: 2 * MIB]
    await site.delete(b"k")
    await site.work()
    assert await site.stored() == {}
    site.close()


@pytest.mark.parametrize("seed", range(4))
async def test_puts_deletes_copies_reads_and_workers_all_at_once(tmp_path: Path, seed: int) -> None:
    """Each name belongs to one client, which knows what it must read. The backends fail now and then."""
    plan = FaultPlan(
        [
            Fault(FaultKind.ERROR, verb="put", share=0.05),
            Fault(FaultKind.ERROR_AFTER, verb="put", share=0.05),
            Fault(FaultKind.ERROR, verb="delete", share=0.1),
        ],
        seed,
    )
    site = Site(tmp_path, Faulty(Memory("one"), plan), Memory("two"))
    tamper(site, "INSERT INTO ring_key VALUES (5, 1, x'', '', 0)")
    working = [asyncio.create_task(_work(site, worker)) for worker in site.workers]
    known = await asyncio.gather(*(_client(site, number, seed) for number in range(6)))
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    plan.clear()
    for objects in known:
        for key, data in objects.items():
            assert await site.get(key) == data
    await site.work()
    for client in (site.journal, site.worker_journal):
        site.end(client)
    site.worker_journal.session = site.client().session
    for _ in range(100):  # a backend that failed a moment ago is left alone for a while
        await site.work()
        report = await check_site(site.path, site.store, site.backends, read=site.block_keys)
        assert [finding for finding in report.findings if finding.severity is Severity.WRONG] == []
        if not report.findings:
            break
        await asyncio.sleep(0.05)
    assert report.findings == []
    lives = sum(len(data) for objects in known for data in objects.values())
    assert sum((await site.stored(1)).values()) <= 1.3 * lives + 1000
    site.close()


async def _work(site: Site, worker: object) -> None:
    while True:
        with contextlib.suppress(errors.EntrepotError, backend_errors.BackendError):
            await worker.step()  # type: ignore[attr-defined]
        await asyncio.sleep(0.001)


async def _client(site: Site, number: int, seed: int) -> dict[bytes, bytes]:
    chance = random.Random(seed * 100 + number)
    known: dict[bytes, bytes] = {}
    reader = site.client()
    for _ in range(60):
        key = b"%d/%d" % (number, chance.randint(0, 5))
        match chance.choice("ppppdcg"):
            case "p":
                start = chance.randint(0, MIB)
                data = DATA[start : start + chance.choice([1, 5000, 5000, 300_000, 2 * MIB])]
                with contextlib.suppress(errors.Unavailable):
                    await site.put(key, data)
                    known[key] = data
            case "d":
                if known.pop(key, None) is not None:
                    await site.delete(key)
            case "c":
                if key in known:
                    other = b"%d/copy" % number
                    await site.copy(key, other)
                    known[other] = known[key]
            case "g":
                if key in known:
                    with reader.reading():
                        reading = site.open(key)
                        await asyncio.sleep(chance.choice([0, 0.01]))
                        assert b"".join([bytes(piece) async for piece in reading]) == known[key]
        await asyncio.sleep(0)
    return known
