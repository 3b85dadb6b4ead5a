"""Writes that are answered before all copies are made: what the row says, and which puts go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from backends import errors as backend_errors
from backends.base import Buffer
from backends.testing.memory import Memory
from gateway.blocks.digests import Digests
from gateway.blocks.types import Target, Targets, WriteContext
from gateway.blocks.write.writer import StoredRun
from gateway.errors import Unavailable
from tests.blocks.world import World, chunks
from tests.waiting import until_true

SETS = {frozenset({1}): 10, frozenset({2}): 20}


class Slow(Memory):
    """Puts wait until the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.error: Exception | None = None
        self.asked = self.cancelled = 0

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        self.asked += 1
        try:
            await self.may.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        await super().put(key, value, crc32c)


def write_context(world: World, *, is_final: bool = True, needed: int = 1) -> WriteContext:
    copies = tuple(Target(place, number) for number, place in enumerate(world.places, 1))
    return WriteContext(world.keys[5], Targets(1, 3, copies, is_final, needed, SETS))


async def store(world: World, data: bytes, at: WriteContext) -> StoredRun:
    return await world.writer.store(at, chunks(data, 65_536), len(data), Digests())


async def test_one_put_of_two_is_enough_and_the_other_goes_on_after_the_answer() -> None:
    slow = Slow()
    world = World(Memory(), slow)
    stored = await store(world, b"x" * 1000, write_context(world))
    (block,) = stored.blocks
    assert block.backends == SETS[frozenset({1})]
    assert block.due_ns > 0
    world.writer.mark_named(stored)
    assert len(await world.keys_stored(0)) == 1
    assert await world.keys_stored(1) == []
    slow.may.set()
    await world.writer.close()
    assert await world.keys_stored(1) == await world.keys_stored(0)


async def test_whichever_put_ends_first_counts() -> None:
    slow = Slow()
    world = World(slow, Memory())
    stored = await store(world, b"x" * (3 << 20), write_context(world))
    assert {block.backends for block in stored.blocks} == {SETS[frozenset({2})]}
    slow.may.set()


async def test_a_block_on_all_of_its_targets_is_due_only_if_more_copies_are_wanted() -> None:
    world = World(Memory(), Memory())
    (settled,) = (await store(world, b"x", write_context(world, needed=2))).blocks
    assert (settled.backends, settled.due_ns) == (3, 0)
    (unsettled,) = (await store(world, b"x", write_context(world, is_final=False, needed=2))).blocks
    assert unsettled.backends == 3
    assert unsettled.due_ns > 0


@pytest.fixture
def half_gone() -> World:
    """Two backends, of which the first is unavailable."""
    gone = Slow()
    gone.error = backend_errors.Unavailable("gone")
    gone.may.set()
    return World(gone, Memory())


async def test_a_put_that_fails_is_made_up_for_by_the_other(half_gone: World) -> None:
    (block,) = (await store(half_gone, b"x", write_context(half_gone))).blocks
    assert block.backends == SETS[frozenset({2})]
    assert block.due_ns > 0


async def test_if_too_many_puts_fail_nothing_is_left_behind(half_gone: World) -> None:
    with pytest.raises(Unavailable, match="gone"):
        await store(half_gone, b"x", write_context(half_gone, needed=2))
    assert await half_gone.keys_stored(1) == []


async def test_an_unnamed_block_is_deleted_only_once_its_last_put_has_ended() -> None:
    slow = Slow()
    world = World(Memory(), slow)
    stored = await store(world, b"x", write_context(world))
    world.writer.release_unnamed(stored)
    await asyncio.sleep(0)
    assert len(await world.keys_stored(0)) == 1
    slow.may.set()
    await world.writer.close()
    assert await world.keys_stored(0) == []
    assert await world.keys_stored(1) == []


async def test_puts_that_no_write_waits_for_hold_a_bounded_share_of_memory() -> None:
    slow = Slow()
    world = World(Memory(), slow, budget_bytes=32 << 20)
    for _ in range(4):
        world.writer.mark_named(await store(world, b"x" * (4 << 20), write_context(world)))
    await asyncio.sleep(0)
    assert slow.cancelled == 3, "a quarter of 32 MiB holds one block of 4 MiB and its seal, not two"
    slow.may.set()
    await world.writer.close()
    assert len(await world.keys_stored(1)) == 1


async def test_a_cancelled_write_cancels_its_puts() -> None:
    slow, other = Slow(), Slow()
    world = World(slow, other)
    task = asyncio.create_task(store(world, b"x" * (9 << 20), write_context(world)))
    await until_true(lambda: slow.asked and other.asked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    slow.may.set(), other.may.set()
    await world.writer.close()
    assert await world.keys_stored(0) == []
    assert await world.keys_stored(1) == []
