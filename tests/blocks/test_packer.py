"""When a pack starts, and which bodies are in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

import pytest

from gateway.blocks.digests import Digests
from gateway.blocks.types import BLOCK_BYTES, Targets
from gateway.blocks.write.block_put import BlockRef
from gateway.blocks.write.packer import PACK_START_BYTES, Packer, PackMember, StoredExtent
from gateway.blocks.write.writer import StoredRun
from gateway.journal.columns import Extent
from gateway.journal.records.bytes import NewBlock
from gateway.timing import parse_timing
from tests.blocks.test_writer import Slow, settle
from tests.blocks.world import World, chunks

BLOCK = NewBlock(b"b" * 16, 1, 100, 0, 1)
Pack = tuple[list[int], "asyncio.Future[None]", Callable[[], None]]


class Storing:
    """A packer whose packs are stored when the test says so. `left` has the sizes of each pack's members."""

    def __init__(self, packs_in_flight: int = 4, gather_seconds: float = 3600.0) -> None:
        self.packs: list[Pack] = []
        self.packer = Packer(self.store, packs_in_flight, gather_seconds)

    async def store(self, pack: Sequence[PackMember], on_decided: Callable[[], None]) -> list[StoredExtent]:
        stored = asyncio.get_running_loop().create_future()
        self.packs.append(([member.size for member in pack], stored, on_decided))
        await stored

        def ended(_: BlockRef) -> None:
            on_decided()

        block_ref = BlockRef(BLOCK, Targets(1, 1, ()), len(pack), ended)
        return [StoredExtent(Extent(BLOCK.id, 0, 0, member.size), block_ref) for member in pack]

    async def add(self, *sizes: int) -> list[asyncio.Task[StoredExtent]]:
        tasks = [asyncio.create_task(self.packer.add((b"",), size)) for size in sizes]
        await settle()
        return tasks

    async def land(self, number: int) -> None:
        self.packs[number][1].set_result(None)
        await settle()

    @property
    def left(self) -> list[list[int]]:
        return [sizes for sizes, _, _ in self.packs]


async def test_a_lone_body_is_stored_at_once_and_those_of_one_turn_together() -> None:
    storing = Storing()
    await storing.add(1)
    assert storing.left == [[1]]
    others = Storing()
    await others.add(1, 2, 3)
    assert others.left == [[1, 2, 3]]


async def test_a_pack_starts_once_as_many_bodies_wait_as_are_undecided() -> None:
    storing = Storing()
    await storing.add(1, 2, 3)
    await storing.add(4)
    await storing.add(5)
    assert storing.left == [[1, 2, 3]], "two wait, and three are undecided"
    await storing.add(6)
    assert storing.left == [[1, 2, 3], [4, 5, 6]]
    await storing.add(7, 8, 9, 10, 11)
    assert len(storing.left) == 2, "six are undecided"


async def test_a_body_is_undecided_until_its_command_is_answered() -> None:
    storing = Storing()
    first, second = await storing.add(1, 2)
    await storing.add(3)
    await storing.land(0)
    assert storing.left == [[1, 2]], "it is stored, and its command has no outcome yet"
    first.result().block_ref.mark_named()
    await settle()
    assert storing.left == [[1, 2]]
    second.result().block_ref.release_unnamed()
    await settle()
    assert storing.left == [[1, 2], [3]]


async def test_bodies_that_fill_a_pack_start_without_waiting_as_long_as_packs_may_start() -> None:
    storing = Storing(packs_in_flight=2)
    await storing.add(1, 2, 3)
    await storing.add(PACK_START_BYTES - 1)
    assert len(storing.left) == 1
    await storing.add(1)
    assert storing.left[1:] == [[PACK_START_BYTES - 1, 1]]
    await storing.add(BLOCK_BYTES, BLOCK_BYTES)
    assert len(storing.left) == 2, "two are being stored, and that many may be"
    await storing.land(0)
    assert storing.left[2:] == [[BLOCK_BYTES]], "a pack holds a block at most"
    await storing.land(1)
    assert storing.left[3:] == [[BLOCK_BYTES]]


async def test_no_body_waits_for_ever_for_others() -> None:
    storing = Storing(gather_seconds=0.02)
    await storing.add(1, 2, 3)
    await storing.add(4)
    async with asyncio.timeout(60):
        while len(storing.left) < 2:
            await asyncio.sleep(0.001)
        await storing.add(5)
        while len(storing.left) < 3:
            await asyncio.sleep(0.001)
    assert storing.left == [[1, 2, 3], [4], [5]], "although no pack before has been stored"
    others = Storing(gather_seconds=0.02)
    await others.add(1, 2, 3)
    await others.add(4)
    await others.add(5, 6)
    assert others.left[1:] == [[4, 5, 6]]
    await others.add(7)
    async with asyncio.timeout(60):
        while len(others.left) < 3:
            await asyncio.sleep(0.001)
    assert others.left[2:] == [[7]], "the gather time begins again with each pack"


async def test_bodies_whose_pack_could_not_be_stored_are_decided() -> None:
    storing = Storing()
    refused = await storing.add(1, 2)
    waiting = await storing.add(3)
    storing.packs[0][1].set_exception(OSError("no"))
    await settle()
    assert [str(task.exception()) for task in refused] == ["no", "no"]
    assert storing.left == [[1, 2], [3]]
    waiting += await storing.add(4, 5)
    await storing.add(6)
    for number in (1, 2):
        storing.packs[number][1].cancel()
    await asyncio.wait(waiting)
    await settle()
    assert storing.left == [[1, 2], [3], [4, 5], [6]]


async def test_a_cancelled_body_does_not_count() -> None:
    storing = Storing()
    await storing.add(1, 2)
    (large,) = await storing.add(PACK_START_BYTES - 1)
    large.cancel()
    await settle()
    await storing.add(2)
    assert storing.left == [[1, 2]], "neither many nor large"
    await storing.add(3)
    assert storing.left == [[1, 2], [2, 3]]


async def test_draining_starts_packs_without_waiting_for_others() -> None:
    storing = Storing()
    await storing.add(1, 2)
    await storing.add(3)
    draining = asyncio.create_task(storing.packer.drain())
    await settle()
    assert storing.left == [[1, 2], [3]]
    await storing.land(0)
    assert not draining.done()
    await storing.land(1)
    async with asyncio.timeout(60):
        await draining
    assert storing.packer.idle


@pytest.mark.parametrize("how", ["named", "given back", "left in doubt"])
async def test_a_body_is_decided_whatever_the_outcome_of_its_command(how: str) -> None:
    place = Slow()
    place.gate.set()
    world = World(place, timing=parse_timing("blocks.gather_seconds=3600"))

    async def store() -> StoredRun:
        return await world.writer.store(world.write_context(), chunks(b"x", 1), 1, Digests())

    stored = await store()
    waiting = asyncio.create_task(world.put(os.urandom(100)))
    await settle()
    assert place.puts == 2, "as many wait as are undecided"
    await waiting
    late = await asyncio.gather(store(), store(), store())
    assert place.puts == 3
    waiting = asyncio.create_task(world.put(os.urandom(100)))
    await settle()
    assert place.puts == 3, "four are undecided"
    for each in (stored, *late):
        {"named": world.name, "given back": world.writer.release_unnamed, "left in doubt": world.writer.mark_unknown}[
            how
        ](each)
    await settle()
    assert place.puts == 4
    await waiting
