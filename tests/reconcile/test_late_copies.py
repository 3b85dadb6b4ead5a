"""Copies that land behind an answer are found and not made twice, and none is forgotten where the block dies first."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from backends import errors
from backends.base import Buffer, Stat, crc32c_of
from backends.testing.memory import Memory
from gateway.blocks.types import Target, Targets, WriteContext
from gateway.placement.commands import NameBackendSet
from tests.reconcile.shores import Shores

DATA = random.Random(5).randbytes(700_000)


class Second(Memory):
    """Puts nothing before it may, and counts what it is asked."""

    def __init__(self) -> None:
        super().__init__("b1")
        self.may = asyncio.Event()
        self.puts = self.gets = 0
        self.lost = False
        self.stats: Callable[[Stat], Stat] = lambda found: found

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        self.puts += 1
        await self.may.wait()
        if self.lost:
            raise errors.Unavailable("its answer was lost")
        await super().put(key, value, crc32c)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        self.gets += 1
        return await super().get(key, start, length)

    async def stat(self, key: str) -> Stat:
        return self.stats(await super().stat(key))


@pytest.fixture
def second() -> Second:
    return Second()


@pytest.fixture
def site(tmp_path: Path, second: Second) -> Iterator[Shores]:
    """Writes go to two backends, and one of them is enough."""
    made = Shores(tmp_path, Memory("b0"), second)
    one, two = made.ids
    both = made.committer.run(NameBackendSet((one, two)))
    some = {frozenset({one}): made.first, frozenset({two}): made.committer.run(NameBackendSet((two,)))}
    copies = (Target(made.backends[one], one), Target(made.backends[two], two))
    targets = Targets(made.policy, both, copies, True, 1, some)
    made.write_context = lambda policy=0: WriteContext(made.keys[made.active], targets)  # type: ignore[method-assign]
    made.keep("b0", "b1")
    yield made
    made.close()


async def landed(site: Shores, second: Second) -> None:
    second.may.set()
    await site.writer.close()


async def test_what_is_being_put_behind_an_answer_is_not_put_by_somebody_else_meanwhile(
    site: Shores, second: Second
) -> None:
    before_ns = time.time_ns()
    await site.put(b"a", DATA)
    ((due_ns,),) = site.work_rows("due_ns")
    assert due_ns >= before_ns + site.timing.blocks.landing_seconds * 1e9
    assert site.held() == [(0,)]
    await landed(site, second)


async def test_a_copy_that_landed_is_found_and_counts_once_it_was_read(site: Shores, second: Second) -> None:
    await site.put(b"a", DATA)
    await landed(site, second)
    await site.due_now()
    await site.move()
    assert (second.puts, second.gets, site.mover.copy_maker.already_present, site.mover.copy_maker.new) == (1, 1, 1, 0)
    assert site.held() == [(0, 1)]
    assert site.work_rows() == []


async def test_where_the_place_tells_an_md5_nothing_is_read(site: Shores, second: Second) -> None:
    import hashlib

    second.stats = lambda found: found._replace(md5=hashlib.md5(bytes(next(iter(second._values.values())))).hexdigest())
    await site.put(b"a", DATA)
    await landed(site, second)
    await site.due_now()
    await site.move()
    assert (second.puts, second.gets, site.mover.copy_maker.already_present) == (1, 0, 1)
    assert site.held() == [(0, 1)]


@pytest.mark.parametrize("what", ["absent", "other bytes", "shorter", "another md5"])
async def test_what_is_not_the_copy_is_put(site: Shores, second: Second, what: str) -> None:
    second.lost = what == "absent"
    await site.put(b"a", DATA)
    await landed(site, second)
    second.lost = False
    if what != "absent":
        ((key, value),) = second._values.items()
        other = value[:-1] if what == "shorter" else bytes(value[:-1]) + bytes([value[-1] ^ 1])
        if what == "another md5":
            second.stats = lambda found: found._replace(md5="0" * 32)
        else:
            await Memory.delete(second, key)
            await Memory.put(second, key, [other], crc32c_of([other]))
    await site.due_now()
    await site.move()
    assert (second.puts, site.mover.copy_maker.already_present, site.mover.copy_maker.new) == (2, 0, 1)
    assert site.held() == [(0, 1)]
    first, other_place = await site.copies()
    assert first == other_place
    site.backends.pop(site.ids[0])
    assert await site.get(b"a") == DATA


async def test_a_block_that_dies_before_its_late_copy_was_found_leaves_nothing(site: Shores, second: Second) -> None:
    await site.put(b"a", DATA)
    await site.delete(b"a")
    await site.work()
    assert (await site.copies())[0], "a put is under way, and would land behind the deletion"
    await landed(site, second)
    assert (await site.copies())[1]
    await site.work()
    assert await site.copies() == [set(), set()]
    assert site.store.query("SELECT 1 FROM block") == []


async def test_a_put_whose_answer_was_lost_leaves_nothing_either(site: Shores, second: Second) -> None:
    await site.put(b"a", DATA)
    key = next(iter((await site.copies())[0]))
    await Memory.put(second, key, [b"landed"], crc32c_of([b"landed"]))
    second.lost = True
    await landed(site, second)
    await site.delete(b"a")
    await site.work()
    assert await site.copies() == [set(), set()]
