"""Reading: only the frames that are needed, from whichever copy is good, with read-ahead, within the budget."""

from __future__ import annotations

import random

import pytest

from backends import errors as backend_errors
from backends.base import Buffer
from backends.testing.memory import Memory
from gateway import errors
from gateway.blocks.read.read_plan import plan_read, plan_run
from gateway.blocks.types import BlockFacts, block_path
from gateway.crypto.sealing import FRAME_SEALED, HEADER_BYTES
from gateway.journal.columns import Extent
from gateway.journal.tables import Shape
from tests.blocks.world import SET, World

MIB = 1 << 20
DATA = random.Random(4).randbytes(20 * MIB)


class Watched(Memory):
    """Counts what is read; may be cold, so that nothing is at hand."""

    def __init__(self, name: str = "watched", cold: bool = False) -> None:
        super().__init__(name)
        self.cold = cold
        self.ranges: list[tuple[int, int | None]] = []
        self.under_way = 0

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        if self.cold:
            return None
        self.ranges.append((start, length))
        return super().get_now(key, start, length)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        self.ranges.append((start, length))
        return await super().get(key, start, length)

    def flip(self, key: str, at: int) -> None:
        value = bytearray(self._values[key])
        value[at] ^= 1
        self._values[key] = bytes(value)

    def truncate(self, key: str, size: int) -> None:
        self._values[key] = self._values[key][:size]

    def swap(self, one: str, two: str) -> None:
        self._values[one], self._values[two] = self._values[two], self._values[one]


@pytest.mark.parametrize("cold", [False, True])
async def test_a_range_read_opens_only_the_frames_that_it_needs(cold: bool) -> None:
    place = Watched(cold=cold)
    world = World(place)
    stored = await world.put(DATA[: 8 * MIB])
    assert await world.get(stored.extents, 65_536 * 3 + 10, 65_536) == DATA[65_536 * 3 + 10 : 65_536 * 4 + 10]
    assert place.ranges == [(HEADER_BYTES + 3 * FRAME_SEALED, 2 * FRAME_SEALED)]


async def test_a_cached_range_is_at_hand_and_a_cold_one_is_not() -> None:
    place = Watched()
    world = World(place)
    stored = await world.put(b"hello")
    (want,) = plan_run(0, stored.extents, 1, 3)
    assert bytes(world.reader.read_now([want]) or b"") == b"ell"
    place.cold = True
    assert world.reader.read_now([want]) is None


@pytest.mark.parametrize("budget", [1, 10 * MIB, 64 * MIB])
async def test_a_cold_read_is_whole_and_stays_within_the_budget(budget: int) -> None:
    place = Watched(cold=True)
    world = World(place)
    stored = await world.put(DATA)
    world.reading.limit = budget
    assert await world.get(stored.extents) == DATA
    assert world.reading.used == 0
    assert world.reading.peak <= budget


async def test_the_next_blocks_are_fetched_ahead_and_released_when_the_client_leaves() -> None:
    place = Watched(cold=True)
    world = World(place)
    stored = await world.put(DATA)
    reading = world.reader.read(plan_run(0, stored.extents, 0, stored.size))
    await reading.__anext__()
    import asyncio

    await asyncio.sleep(0.01)
    assert len(place.ranges) == 3, "this block and the two behind it"
    assert world.reading.used > 16 * MIB
    await reading.aclose()
    assert world.reading.used == 0


def damage(place: Watched, key: str, other: str, how: str) -> None:
    match how:
        case "flipped":
            place.flip(key, 1000)
        case "truncated":
            place.truncate(key, 3 * MIB)
        case "swapped":
            place.swap(key, other)
        case "gone":
            del place._values[key]


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("how", ["flipped", "truncated", "swapped", "gone"])
async def test_a_damaged_copy_is_noticed_and_another_one_read(how: str, cold: bool) -> None:
    first, second = Watched("first", cold), Watched("second", cold)
    world = World(first, second)
    stored = await world.put(DATA)
    one, two, _ = (block_path(block.id) for block in stored.blocks)
    damage(first, one, two, how)
    assert await world.get(stored.extents) == DATA
    damage(second, one, two, how)
    with pytest.raises(errors.Corrupted):
        await world.get(stored.extents)
    assert world.reading.used == 0


async def test_a_copy_that_may_come_back_makes_a_read_unavailable_and_not_damaged() -> None:
    class Down(Watched):
        async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
            raise backend_errors.Unavailable("down")

    world = World(Down(cold=True))
    stored = await world.put(DATA[:100])
    with pytest.raises(errors.Unavailable):
        await world.get(stored.extents)


async def test_a_copy_that_fails_in_the_middle_of_an_object_is_not_noticed() -> None:
    class Tires(Watched):
        left = 2

        async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
            self.left -= 1
            if self.left < 0:
                raise backend_errors.Unavailable("tired")
            return await super().get(key, start, length)

    world = World(Tires("first", cold=True), Watched("second", cold=True))
    stored = await world.put(DATA)
    assert await world.get(stored.extents) == DATA


async def test_an_extent_that_moved_meanwhile_is_looked_up_once_more() -> None:
    world = World()
    old = await world.put(DATA[: 2 * MIB])
    wanted = list(plan_run(9, old.extents, 0, old.size))
    new = await world.put(DATA[: 2 * MIB])
    world.runs[9] = list(new.extents)
    await world.places[0].delete(block_path(old.blocks[0].id))
    del world.facts[old.blocks[0].id]
    assert b"".join([bytes(piece) async for piece in world.reader.read(wanted)]) == DATA[: 2 * MIB]


async def test_a_block_that_the_journal_says_has_another_key_is_refused() -> None:
    world = World()
    from gateway.crypto.ring import new_ring_key

    world.keys[6] = new_ring_key(6)
    stored = await world.put(b"secret")
    world.facts[stored.blocks[0].id] = BlockFacts(6, stored.blocks[0].size, SET)
    with pytest.raises(errors.Corrupted):
        await world.get(stored.extents)


def test_a_range_of_a_body_is_looked_up_run_by_run() -> None:
    runs = {1: [Extent(b"a", 0, 0, 10), Extent(b"b", 0, 0, 10)], 2: [Extent(b"c", 0, 0, 5)]}
    looked_up: list[int] = []

    def extents_of(run: int) -> list[Extent]:
        looked_up.append(run)
        return runs[run]

    body = [(1, 0, 20), (2, 1, 4), (1, 5, 10)]
    found = list(plan_read(Shape.BODY, 3, 18, 10, extents_of, lambda _: body))
    assert [(want.extent.block, want.start, want.length, want.run, want.nth) for want in found] == [
        (b"b", 8, 2, 1, 1),
        (b"c", 1, 4, 2, 0),
        (b"a", 5, 4, 1, 0),
    ]
    lazily = plan_read(Shape.BODY, 3, 0, 34, extents_of, lambda _: body)
    looked_up.clear()
    next(lazily)
    assert looked_up == [1]
    with pytest.raises(errors.Corrupted):
        list(plan_read(Shape.RUN, 2, 0, 6, extents_of, lambda _: body))
    assert list(plan_read(Shape.NONE, 0, 0, 0, extents_of, lambda _: body)) == []
