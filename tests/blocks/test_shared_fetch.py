"""Shared fetches: started once, charged once, alive while a reader waits."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

import pytest

from backends import errors as backend_errors
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from gateway import errors
from gateway.blocks.budget import Budget
from gateway.blocks.read.read_plan import plan_run
from gateway.blocks.read.reader import SMALL_PIECE_BYTES
from gateway.blocks.read.shared_fetch import SharedFetches
from gateway.blocks.write.writer import StoredRun
from gateway.crypto.sealing import FRAME_PLAIN, sealed_length
from tests.blocks.gated_backends import Gated
from tests.blocks.world import World
from tests.waiting import until_true

MIB = 1 << 20
DATA = random.Random(12).randbytes(8 * MIB)


class HeldUp(NamedTuple):
    """A cold block, and readers of it whose fetch was begun and is answered once the gate is open."""

    place: Gated
    world: World
    stored: StoredRun
    reads: list[asyncio.Task[bytes]]


async def held_up(data: bytes, readers: int, budget: int | None = None) -> HeldUp:
    place = Gated(is_open=False)
    world = World(place)
    stored = await world.put(data)
    world.reading.limit = world.reading.limit if budget is None else budget
    reads = [asyncio.create_task(world.get(stored.extents)) for _ in range(readers)]
    await until_true(lambda: place.gets)
    return HeldUp(place, world, stored, reads)


async def test_a_thousand_readers_of_one_cold_block_make_one_fetch_that_is_charged_once() -> None:
    place, world, _, reads = await held_up(DATA[:MIB], 1000)
    await asyncio.sleep(0)
    assert world.reading.used == sealed_length(MIB) + FRAME_PLAIN
    place.gate.set()
    for read in reads:
        assert await read == DATA[:MIB]
    assert place.gets == 1
    assert world.reading.used == 0


async def test_readers_of_whole_blocks_share_them_and_their_pieces_stay_within_the_budget() -> None:
    place, world, _, reads = await held_up(DATA, 40, 10 * MIB)
    place.gate.set()
    for read in reads:
        assert await read == DATA
    assert place.gets == 1
    assert world.reading.peak <= 10 * MIB
    assert world.reading.used == 0


@pytest.mark.parametrize("budget", [1, SMALL_PIECE_BYTES, 64 * MIB])
async def test_readers_without_bytes_of_the_budget_share_pieces_all_the_same(budget: int) -> None:
    place, _, _, reads = await held_up(DATA[:SMALL_PIECE_BYTES], 50, budget)
    place.gate.set()
    for read in reads:
        assert await read == DATA[:SMALL_PIECE_BYTES]
    assert place.gets == 1


@pytest.mark.parametrize("who", [0, 5])
async def test_a_reader_that_is_cancelled_does_not_affect_the_others_even_if_it_started_the_fetch(who: int) -> None:
    place, world, _, reads = await held_up(DATA[:MIB], 10)
    reads[who].cancel()
    await asyncio.wait([reads[who]])
    place.gate.set()
    for read in (each for each in reads if each is not reads[who]):
        assert await read == DATA[:MIB]
    assert (place.gets, place.cancelled) == (1, 0)
    assert world.reading.used == 0


async def test_a_fetch_is_cancelled_with_its_last_reader() -> None:
    place, world, stored, reads = await held_up(DATA[:MIB], 10)
    for read in reads:
        read.cancel()
    await asyncio.wait(reads)
    await until_true(lambda: place.cancelled)
    assert (place.gets, place.cancelled, world.reading.used) == (1, 1, 0)
    place.gate.set()
    assert await world.get(stored.extents) == DATA[:MIB]


async def test_a_failure_is_raised_to_all_waiters_and_not_to_later_readers() -> None:
    place = Gated(is_open=False)
    plan = FaultPlan()
    world = World(Faulty(place, plan))
    stored = await world.put(DATA[:MIB])
    plan.add(Fault(FaultKind.ERROR_AFTER, verb="get", error=backend_errors.Unavailable))
    reads = [asyncio.create_task(world.get(stored.extents)) for _ in range(100)]
    await until_true(lambda: place.gets)
    place.gate.set()
    found = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(each) for each in found} == {errors.Unavailable}
    assert place.gets == 2, "all that was wanted, and then the piece that would have been enough"
    plan.clear()
    assert await world.get(stored.extents) == DATA[:MIB]


async def test_a_reader_that_joins_a_finished_fetch_gets_its_bytes_without_another_one() -> None:
    place = Gated()
    world = World(place)
    stored = await world.put(DATA)
    slow = world.reader.read(plan_run(0, stored.extents, 0, stored.size))
    await anext(slow)
    assert await world.get(stored.extents) == DATA
    assert place.gets == 1
    await slow.aclose()
    assert world.reading.used == 0
    assert await world.get(stored.extents) == DATA
    assert place.gets == 2, "nothing is kept that nobody reads"


async def test_bytes_that_fail_verification_are_not_shared_with_later_readers() -> None:
    place = Gated()
    plan = FaultPlan([Fault(FaultKind.FLIP, verb="get", nth=1)])
    world = World(Faulty(place, plan))
    stored = await world.put(DATA[: 2 * MIB])
    reads = [world.get(stored.extents) for _ in range(20)]
    assert set(await asyncio.gather(*reads)) == {DATA[: 2 * MIB]}
    assert await world.get(stored.extents) == DATA[: 2 * MIB]
    assert world.reading.used == 0


@pytest.mark.parametrize("seed", range(6))
async def test_readers_that_come_fail_and_are_cancelled_at_random_leave_nothing_behind(seed: int) -> None:
    chance = random.Random(seed)
    budget = Budget(10)
    fetches: SharedFetches[int] = SharedFetches(lambda result: result > 0)

    async def fetch() -> int:
        await asyncio.sleep(chance.choice([0, 0, 0.001]))
        if chance.random() < 0.1:
            raise RuntimeError("a bug")
        return chance.choice([0, 1])

    async def reader() -> None:
        for _ in range(20):
            handle = fetches.join(chance.randrange(4), fetch, budget, 3)
            if handle is None:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(chance.choice([0, 0.0005, None])):
                    await handle.result()
                    await asyncio.sleep(0)
            except (TimeoutError, RuntimeError):
                pass
            finally:
                handle.release()
                handle.release()

    await asyncio.gather(*(reader() for _ in range(50)))
    assert len(fetches) == 0
    assert budget.used == 0
    assert budget.peak <= 10
