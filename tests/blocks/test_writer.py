"""Writing: what is read back is what was written, in blocks and packs, within the budget."""

from __future__ import annotations

import asyncio
import os
import random
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.base import Buffer
from backends.testing.memory import Memory
from gateway import errors
from gateway.blocks.digests import Digests
from gateway.blocks.types import BLOCK_BYTES, block_id_of, block_path, session_of
from gateway.crypto.sealing import ENCRYPTED, TAGGED
from gateway.timing import parse_timing
from tests.blocks.world import SESSION, World, chunks

MIB = 1 << 20
DATA = random.Random(3).randbytes(20 * MIB)


@pytest.mark.parametrize("mode", [ENCRYPTED, TAGGED])
@pytest.mark.parametrize(
    "size", [1, 4096, 65_536, 65_537, MIB, MIB + 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 20 * MIB]
)
@pytest.mark.parametrize("chunk", [65_536, 100_003, 20 * MIB])
async def test_what_was_stored_is_read_again(mode: int, size: int, chunk: int) -> None:
    world = World(mode=mode)
    stored = await world.put(DATA[:size], chunk)
    assert stored.size == size
    assert await world.get(stored.extents) == DATA[:size]
    assert world.budget.used == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 18 * MIB), st.integers(1, 3 * MIB), st.integers(1, 8).map(lambda n: n << 21), st.data())
async def test_any_size_in_any_chunks_within_any_budget_reads_back_in_any_range(
    size: int, chunk: int, budget: int, data: st.DataObject
) -> None:
    world = World(budget_bytes=budget)
    stored = await world.put(DATA[:size], max(chunk, size // 500))
    assert await world.get(stored.extents) == DATA[:size]
    assert world.budget.peak <= budget
    assert world.budget.used == 0
    for _ in range(3):
        start = data.draw(st.integers(0, size))
        length = data.draw(st.integers(0, size - start))
        assert await world.get(stored.extents, start, length) == DATA[start : start + length]


async def test_a_large_body_is_split_at_eight_mebibytes_and_its_small_end_goes_into_a_pack() -> None:
    world = World()
    stored, small = await asyncio.gather(world.put(DATA[: 16 * MIB + 5]), world.put(b"small"))
    assert [extent.length for extent in stored.extents] == [BLOCK_BYTES, BLOCK_BYTES, 5]
    assert len(stored.blocks) == 3
    assert await world.get(small.extents) == b"small"


async def test_an_empty_body_stores_nothing() -> None:
    world = World()
    stored = await world.put(b"")
    assert (stored.extents, stored.blocks, stored.size) == ((), (), 0)
    assert await world.keys_stored() == []


async def test_a_blocks_key_begins_with_the_session_and_sorts_as_its_id() -> None:
    world = World()
    stored = await world.put(b"x")
    (key,) = await world.keys_stored()
    assert block_path(stored.blocks[0].id) == key
    assert block_id_of(key) == stored.blocks[0].id
    assert session_of(stored.blocks[0].id) == SESSION
    assert key.startswith(f"{SESSION:016x}/")
    assert block_id_of("0000/zz") is None
    assert block_id_of(key.upper()) is None


class Slow(Memory):
    """Puts wait until the gate is open, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.under_way = 0
        self.most = 0
        self.puts = 0

    async def put(self, key: str, value: object, crc32c: int) -> None:
        self.puts += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.gate.wait()
        self.under_way -= 1
        await super().put(key, value, crc32c)  # type: ignore[arg-type]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_arrives_while_packs_are_stored_is_stored_together() -> None:
    place = Slow()
    world = World(place, packs_in_flight=2)
    first = [asyncio.create_task(world.put(os.urandom(100))) for _ in range(2)]
    await settle()
    assert place.puts == 1, "what arrived in one turn of the loop is one pack"
    second = [asyncio.create_task(world.put(os.urandom(100))) for _ in range(2)]
    await settle()
    assert place.puts == 2, "as many as are under way may leave"
    more = [asyncio.create_task(world.put(os.urandom(100))) for _ in range(50)]
    await settle()
    assert place.puts == 2, "no third: they wait"
    place.gate.set()
    stored = await asyncio.gather(*first, *second, *more)
    assert place.puts == 3, "all that waited is one pack"
    assert len({each.extents[0].block for each in stored}) == 3
    assert world.tokens == 0


async def test_a_pack_has_at_most_the_size_of_a_block_and_one_write_context() -> None:
    world = World(pack_bytes=BLOCK_BYTES)
    from gateway.crypto.ring import new_ring_key

    world.keys[6] = new_ring_key(6)
    bodies = [DATA[at * MIB : at * MIB + 3 * MIB] for at in range(6)]

    async def put(number: int) -> tuple[int, object]:
        write_context = world.write_context(key=5 + number % 2)
        stored = await world.writer.store(write_context, chunks(bodies[number], MIB), None, Digests())
        world.name(stored)
        assert await world.get(stored.extents) == bodies[number]
        return write_context.key.id, stored.extents[0].block

    found = await asyncio.gather(*map(put, range(6)))
    by_block: dict[object, list[int]] = {}
    for key, block in found:
        by_block.setdefault(block, []).append(key)
    assert all(len(keys) <= 2 and len(set(keys)) == 1 for keys in by_block.values())


async def test_a_block_is_stored_while_the_next_one_comes_in_but_no_more_than_allowed() -> None:
    place = Slow()
    world = World(place, blocks_in_flight=2)
    taken = 0

    async def body() -> AsyncIterator[Buffer]:
        nonlocal taken
        for at in range(0, 20 * MIB, MIB):
            taken = at + MIB
            yield DATA[at : at + MIB]
        for at in range(0, 20 * MIB, MIB):
            taken += MIB
            yield DATA[at : at + MIB]

    task = asyncio.create_task(world.writer.store(world.write_context(), body(), None, Digests()))
    for _ in range(60):
        await asyncio.sleep(0.01)
    assert place.most >= 2
    assert taken <= 25 * MIB
    place.gate.set()
    stored = await task
    world.name(stored)
    assert await world.get(stored.extents) == DATA + DATA


async def test_clients_that_stall_under_pressure_do_not_lock_the_others_out() -> None:
    """Sixteen bodies share a budget of three MiB; some of them stop for good in the middle."""
    world = World(budget_bytes=3 * MIB)
    never = asyncio.Event()

    async def stalls() -> AsyncIterator[Buffer]:
        yield DATA[:70_000]
        await never.wait()

    stalled = [
        asyncio.create_task(world.writer.store(world.write_context(), stalls(), 5 * MIB, Digests())) for _ in range(8)
    ]
    await settle()
    stored = await asyncio.gather(*(world.put(DATA[: 5 * MIB]) for _ in range(8)))
    for each in stored:
        assert await world.get(each.extents) == DATA[: 5 * MIB]
    for task in stalled:
        task.cancel()
    await asyncio.gather(*stalled, return_exceptions=True)
    await world.writer.close()
    assert world.budget.used == 0
    assert world.budget.peak <= 3 * MIB


async def test_memory_is_reclaimed_from_clients_that_hold_all_of_it_and_stall() -> None:
    """Eight bodies hold all of the budget and stop; what they held is in blocks by the time they go on."""
    world = World(budget_bytes=8 * MIB, timing=parse_timing("blocks.fill_seconds=0.05"))
    go_on = asyncio.Event()

    async def stalls() -> AsyncIterator[Buffer]:
        yield DATA[:MIB]
        await go_on.wait()
        yield DATA[MIB : 2 * MIB]

    stalled = [
        asyncio.create_task(world.writer.store(world.write_context(), stalls(), 2 * MIB, Digests())) for _ in range(8)
    ]
    await settle()
    assert world.budget.used == world.budget.limit
    async with asyncio.timeout(60):
        stored = await asyncio.gather(*(world.put(DATA[: 5 * MIB]) for _ in range(4)))
    assert not any(task.done() for task in stalled)
    go_on.set()
    late = await asyncio.gather(*stalled)
    for each in late:
        world.name(each)
    for each in [*stored, *late]:
        assert await world.get(each.extents) == DATA[: each.size]
    assert {each.size for each in late} == {2 * MIB}
    assert world.budget.used == 0
    assert world.budget.peak <= world.budget.limit


async def test_a_body_that_waits_too_long_for_bytes_is_refused_and_holds_none() -> None:
    world = World(budget_bytes=8 * MIB, wait_seconds=0.01)
    await world.budget.acquire(8 * MIB)
    with pytest.raises(errors.Busy, match="bytes in flight"):
        await world.put(DATA[:1000])
    world.budget.release(8 * MIB)
    stored = await world.put(DATA[: 8 * MIB])
    assert await world.get(stored.extents) == DATA[: 8 * MIB]
    await world.writer.close()
    assert world.budget.used == 0


async def test_nothing_is_reclaimed_from_a_slow_client_while_nobody_waits() -> None:
    world = World(timing=parse_timing("blocks.fill_seconds=0"))

    async def slow() -> AsyncIterator[Buffer]:
        for at in range(0, 4 * MIB, MIB):
            yield DATA[at : at + MIB]
            await asyncio.sleep(0.01)

    stored = await world.writer.store(world.write_context(), slow(), 4 * MIB, Digests())
    assert len(stored.extents) == 1
    world.writer.mark_named(stored)


async def test_a_stream_of_a_gibibyte_stays_within_its_memory() -> None:
    class Drops(Memory):
        async def put(self, key: str, value: object, crc32c: int) -> None:
            await asyncio.sleep(0)

    world = World(Drops(), budget_bytes=32 * MIB)

    async def body() -> AsyncIterator[Buffer]:
        for _ in range(1024):
            yield bytes(MIB)

    tracemalloc.start()
    try:
        stored = await world.writer.store(world.write_context(), body(), 1 << 30, Digests())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stored.size == 1 << 30
    assert world.budget.peak <= 32 * MIB
    assert peak < 48 * MIB


# --- settling --------------------------------------------------------------------------------------------------------


async def test_the_blocks_of_a_refused_command_are_deleted() -> None:
    world = World()
    with pytest.raises(errors.PreconditionFailed):
        async with world.writer.storing(world.write_context(), chunks(DATA, MIB), None, Digests()):
            raise errors.PreconditionFailed("If-Match")
    await world.writer.close()
    assert await world.keys_stored() == []
    assert world.tokens == 0


async def test_after_an_unknown_outcome_the_blocks_stay() -> None:
    world = World()
    with pytest.raises(errors.CommitterGone):
        async with world.writer.storing(world.write_context(), chunks(DATA, MIB), None, Digests()):
            raise errors.CommitterGone("no answer")
    await world.writer.close()
    assert len(await world.keys_stored()) == 3


async def test_a_pack_whose_outcome_is_unknown_keeps_its_token() -> None:
    world = World()
    with pytest.raises(errors.CommitterGone):
        async with world.writer.storing(world.write_context(), chunks(b"x", MIB), None, Digests()):
            raise errors.CommitterGone("no answer")
    assert world.tokens == 1, "its command may still stand in the committer's queue"


async def test_a_pack_is_deleted_only_when_the_commands_of_all_its_bodies_were_refused() -> None:
    world = World()
    async with world.writer.storing(world.write_context(), chunks(b"one", 3), None, Digests()):
        pass
    await world.writer.close()
    (kept,) = await world.keys_stored()
    one, two = await asyncio.gather(
        *(world.writer.store(world.write_context(), chunks(b"x", 1), 1, Digests()) for _ in "ab")
    )
    assert one.extents[0].block == two.extents[0].block
    world.writer.release_unnamed(one)
    await world.writer.close()
    assert len(await world.keys_stored()) == 2
    assert world.tokens == 1, "the pack's token is held until both have settled"
    world.writer.release_unnamed(two)
    await world.writer.close()
    assert await world.keys_stored() == [kept]
    assert world.tokens == 0


async def test_a_client_that_disconnects_leaves_nothing() -> None:
    world = World()

    async def body() -> AsyncIterator[Buffer]:
        yield DATA[: 9 * MIB]
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        await world.writer.store(world.write_context(), body(), 20 * MIB, Digests())
    await world.writer.close()
    await settle()
    await world.writer.close()
    assert await world.keys_stored() == []
    assert world.budget.used == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 3 * MIB), min_size=1, max_size=8), st.integers(0, 40), st.randoms())
async def test_cancelled_at_any_moment_nothing_stays_behind(
    sizes: list[int], turns: int, chance: random.Random
) -> None:
    world = World(budget_bytes=4 * MIB, pack_bytes=MIB)
    tasks = [
        asyncio.create_task(world.writer.store(world.write_context(), chunks(DATA[:size], 300_000), size, Digests()))
        for size in sizes
    ]
    for _ in range(turns):
        await asyncio.sleep(0)
    doomed = set(chance.sample(range(len(tasks)), chance.randint(0, len(tasks))))
    for number in doomed:
        tasks[number].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if not isinstance(outcome, BaseException):
            world.writer.release_unnamed(outcome)
        else:
            assert isinstance(outcome, asyncio.CancelledError)
    await settle()
    await world.writer.close()
    assert await world.keys_stored() == []
    assert world.budget.used == 0
    assert world.tokens == 0
