"""Reads that go on with another copy in the middle of an object: on errors, absence, damage and slowness."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import Backend
from backends.local.backend import Local
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.blocks.read import bad_copies
from gateway.blocks.read.copy_reader import CopyReader
from gateway.blocks.read.read_plan import plan_run
from gateway.blocks.read.reader import Reader
from gateway.blocks.types import ABSENT, DAMAGED, block_path
from gateway.blocks.write.writer import StoredRun
from gateway.crypto.sealing import BlockKeys
from gateway.placement.breaker import CircuitState
from gateway.placement.policy import PlacedBackend
from gateway.placement.routes import HEDGED_BURST, Routes
from gateway.timing import Timing
from tests.blocks.gated_backends import Gated
from tests.blocks.site import Site
from tests.blocks.world import World
from tests.clocks import ManualClock
from tests.waiting import until_true

MIB = 1 << 20
DATA = random.Random(21).randbytes(20 * MIB)


class Watched(World):
    """Two backends, the first one near. Records the reports. The clock stands still unless the test sets it."""

    def __init__(self, near: Backend, far: Backend) -> None:
        super().__init__(near, far)
        self.clock = ManualClock()
        self.reported: list[tuple[bytes, int, str]] = []
        self.routes = Routes([PlacedBackend(1, "near", "a"), PlacedBackend(2, "far", "b")], "a", {}, random.Random(1))
        self.copies = CopyReader(
            self.facts.get,
            lambda _: self.order,
            BlockKeys(lambda key_id: (self.keys[key_id].key, self.keys[key_id].mode)),
            self.extent_at,
            routes=self.routes,
            report=lambda *reported: self.reported.append(reported),
            timing=Timing(clock=self.clock),
        )
        self.reader = Reader(self.copies, self.reading)

    def state(self, name: str) -> CircuitState:
        return self.routes.health_by_name(self.clock.monotonic())[name].state


async def drained(world: World, stored: StoredRun, then: object) -> bytes:
    """Read all bytes; call *then* after the first piece."""
    reading = world.reader.read(plan_run(0, stored.extents, 0, stored.size))
    found = [bytes(await anext(reading))]
    then()  # type: ignore[operator]
    found += [bytes(piece) async for piece in reading]
    assert world.reading.used == 0
    return b"".join(found)


async def test_if_a_backend_stops_answering_within_an_object_another_one_is_read() -> None:
    near, far = Gated("near"), Gated("far")
    world = Watched(near, far)
    stored = await world.put(DATA)
    reading = world.reader.read(plan_run(0, stored.extents, 0, stored.size))
    near.gate.clear()
    assert b"".join([bytes(piece) async for piece in reading]) == DATA
    await until_true(lambda: near.cancelled == near.gets)
    assert world.reading.used == 0
    assert world.reported == [], "a slow copy is a good one"


async def test_a_silent_backend_is_tried_last_after_a_few_reads_and_first_again_once_it_answers() -> None:
    near, far = Gated("near", is_open=False), Gated("far")
    world = Watched(near, far)
    stored = await world.put(DATA[:100])
    for _ in range(5):
        assert await world.get(stored.extents) == DATA[:100]
    assert world.state("near") is CircuitState.OPEN
    assert near.gets == 5
    for _ in range(20):
        assert await world.get(stored.extents) == DATA[:100]
    assert near.gets == 5
    near.gate.set()
    world.clock.now = 3.0
    assert world.state("near") is CircuitState.HALF_OPEN
    assert await world.get(stored.extents) == DATA[:100]
    assert near.gets == 6
    assert world.state("near") is CircuitState.CLOSED


async def test_a_hundred_reads_of_a_silent_backend_succeed_although_few_of_them_may_hedge() -> None:
    near, far = Gated("near", is_open=False), Gated("far")
    world = Watched(near, far)
    stored = [await world.put(DATA[at : at + 100]) for at in range(100)]
    reads = [asyncio.create_task(world.get(each.extents)) for each in stored]
    await until_true(lambda: near.gets == 100)
    found = await asyncio.gather(*reads)
    assert found == [DATA[at : at + 100] for at in range(100)]
    assert world.state("near") is CircuitState.OPEN
    assert (near.gets, far.gets) == (100, 100)


async def test_while_a_slow_backend_is_not_broken_only_few_reads_are_hedged() -> None:
    near, far = Gated("near", is_open=False), Gated("far", is_open=False)
    world = Watched(near, far)
    stored = [await world.put(DATA[at : at + 100]) for at in range(40)]
    reads = [asyncio.create_task(world.get(each.extents)) for each in stored]
    await until_true(lambda: near.gets == 40)
    await until_true(lambda: far.gets >= HEDGED_BURST)
    await asyncio.sleep(0.6)
    assert far.gets == HEDGED_BURST
    near.gate.set()
    assert await asyncio.gather(*reads) == [DATA[at : at + 100] for at in range(40)]
    await until_true(lambda: far.cancelled == far.gets)
    assert world.state("near") is CircuitState.CLOSED


async def test_if_a_backend_fails_within_an_object_another_one_is_read_and_it_is_broken_after_a_few_errors() -> None:
    plan = FaultPlan()
    world = Watched(Faulty(Gated("near"), plan), Gated("far"))
    stored = await world.put(DATA)
    down = Fault(FaultKind.ERROR, verb="get")
    assert await drained(world, stored, lambda: plan.add(down)) == DATA
    for _ in range(5):
        assert await world.get(stored.extents, 0, 100) == DATA[:100]
    assert world.state("near") is CircuitState.OPEN
    assert world.reported == [], "a backend that is down may have good copies"
    plan.clear()
    world.clock.now = 2.0
    assert await world.get(stored.extents) == DATA
    assert world.state("near") is CircuitState.CLOSED


@pytest.mark.parametrize("how", [ABSENT, DAMAGED])
async def test_absent_and_damaged_copies_are_replaced_by_others_and_reported_once(tmp_path: Path, how: str) -> None:
    near, far = [await Local.open(str(tmp_path / name), name=name) for name in ("near", "far")]
    world = Watched(near, far)
    stored = await world.put(DATA)

    for block in stored.blocks:
        (path,) = (tmp_path / "near").rglob(block_path(block.id).split("/")[1])
        if how == ABSENT:
            path.unlink()
        else:
            path.write_bytes(bytes(path.stat().st_size))
    for _ in range(3):
        assert await world.get(stored.extents) == DATA
    assert sorted(world.reported) == sorted((block.id, 1, how) for block in stored.blocks), "each of them once"
    assert world.state("near") is CircuitState.CLOSED, "as a whole it works"
    await near.close()
    await far.close()


async def test_a_damaged_copy_at_hand_is_reported_although_another_one_is_faster(disk_path: Path) -> None:
    first, second = [await Local.open(str(disk_path / name), name=name) for name in ("near", "far")]
    world = Watched(first, second)
    world.routes.set_topology([PlacedBackend(1, "near", "a"), PlacedBackend(2, "far", "a")], "a", {})
    stored = await world.put(DATA[:100])
    for _ in range(50):
        world.routes.record_response(1, MIB, 1.0, 0.0)
        world.routes.record_response(2, MIB, 0.001, 0.0)
    (block,) = stored.blocks
    (path,) = (disk_path / "near").rglob(block_path(block.id).split("/")[1])
    path.write_bytes(bytes(path.stat().st_size))
    assert await world.get(stored.extents) == DATA[:100]
    assert world.reported == [(block.id, 1, DAMAGED)]
    await first.close()
    await second.close()


async def test_a_folder_that_is_deleted_in_the_middle_of_an_object_is_not_noticed(tmp_path: Path) -> None:
    import shutil

    near, far = [await Local.open(str(tmp_path / name), name=name) for name in ("near", "far")]
    world = Watched(near, far)
    stored = await world.put(DATA)
    assert await drained(world, stored, lambda: shutil.rmtree(tmp_path / "near", ignore_errors=True)) == DATA
    await near.close()
    await far.close()


async def test_a_copy_is_reported_once_a_minute_and_only_so_many_copies_a_second() -> None:
    clock = ManualClock()
    reported: list[tuple[bytes, int, str]] = []
    reporter = bad_copies.BadCopyReporter(lambda *each: reported.append(each), Timing(clock=clock))
    for _ in range(3):
        reporter.report(b"one", 1, DAMAGED)
    assert reported == [(b"one", 1, DAMAGED)]
    clock.advance(61)
    reporter.report(b"one", 1, ABSENT)
    assert len(reported) == 2
    for number in range(1000):
        reporter.report(b"%d" % number, 1, ABSENT)
    assert len(reported) <= 2 + bad_copies.REPORTS_PER_SECOND


async def test_a_report_that_fails_does_not_fail_the_read() -> None:
    def report(*_: object) -> None:
        raise RuntimeError("a bug")

    reporter = bad_copies.BadCopyReporter(report, Timing())
    reporter.report(b"one", 1, DAMAGED)


async def test_a_copy_that_the_journal_no_longer_names_is_not_reported() -> None:
    world = Watched(Gated("near"), Gated("far"))
    old = await world.put(DATA[:MIB])
    wanted = list(plan_run(9, old.extents, 0, old.size))
    new = await world.put(DATA[:MIB])
    reading = world.reader.read(wanted)
    world.runs[9] = list(new.extents)
    for place in world.places:
        await place.delete(block_path(old.blocks[0].id))
    del world.facts[old.blocks[0].id]
    assert b"".join([bytes(piece) async for piece in reading]) == DATA[:MIB]
    assert world.reported == []


async def test_what_is_read_from_any_copy_is_not_swept_while_the_read_goes_on(tmp_path: Path) -> None:
    plan = FaultPlan()
    site = Site(tmp_path, Faulty(Memory("one"), plan), Gated("two"))
    await site.put(b"k", DATA)
    reader = site.client()
    with reader.reading():
        reading = site.open(b"k")
        found = [bytes(await anext(reading))]
        await site.delete(b"k")
        await site.work()
        assert await site.stored(0), "somebody reads"
        plan.add(Fault(FaultKind.ERROR, verb="get"))
        found += [bytes(piece) async for piece in reading]
    assert b"".join(found) == DATA
    plan.clear()
    await site.work()
    assert await site.stored(0) == await site.stored(1) == {}
    site.close()


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("nfb"),
            st.sampled_from([FaultKind.ERROR, FaultKind.FLIP, FaultKind.GONE, FaultKind.SHORT]),
        ),
        min_size=3,
        max_size=3,
    ),
    st.integers(0, 9),
)
async def test_each_block_may_be_bad_on_another_backend_and_the_object_is_whole(
    bad: list[tuple[str, FaultKind]], seed: int
) -> None:
    plans = FaultPlan(seed=seed), FaultPlan(seed=seed)
    world = Watched(Faulty(Memory("near"), plans[0]), Faulty(Gated("far"), plans[1]))
    stored = await world.put(DATA)
    for block, (where, kind) in zip(stored.blocks, bad, strict=True):
        if where != "b":
            plans["nf".index(where)].add(Fault(kind, verb="get", key=block_path(block.id)))
    assert await world.get(stored.extents) == DATA
    assert world.reading.used == 0
