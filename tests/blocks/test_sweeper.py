"""A backend whose listing fails, hangs, or does not end delays only its own blocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from backends import errors
from backends.base import Listed
from backends.testing.faulty import Fault, FaultKind
from backends.testing.memory import Memory
from gateway.blocks.digests import Digests
from gateway.blocks.maintenance import sweeper
from gateway.blocks.types import block_path, session_prefix
from gateway.placement.backend_backoff import REJECTED_BLOCKS
from gateway.timing import parse_timing
from tests.blocks.site import Client, Site
from tests.blocks.test_rewrites_held_up import BOTH, FIRST, Apart
from tests.blocks.world import chunks


class Odd(Memory):
    """A backend whose listing misbehaves as a test says."""

    how = "well"

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        """The keys that listings began after."""

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        self.asked.append(after)
        if self.how == "fails":
            raise errors.Corrupted("its listing is wrong")
        if self.how == "hangs":
            await asyncio.Event().wait()
        if self.how == "has no end":
            first = int(after.removeprefix(prefix), 16) if after else 0
            for number in range(first + 1, 1 << 128):
                await asyncio.sleep(0)
                yield Listed(f"{prefix}{number:032x}", 1)
        async for line in super().list(prefix, after):
            yield line


@pytest.fixture
def odd() -> Odd:
    return Odd()


@pytest.fixture
def site(tmp_path: Path, odd: Odd) -> Iterator[Site]:
    timing = parse_timing("sweeper.list_seconds=0.1; sweeper.retry_seconds=3600")
    made = Site(tmp_path, Memory(), odd, timing=timing)
    yield made
    made.close()


async def left_behind(site: Site) -> Client:
    """An ended session that left an unnamed block on both backends."""
    client = site.client()
    await site.new_writer(client).store(site.write_context(), chunks(b"x", 1), None, Digests())
    site.end(client)
    return client


def state(site: Site, client: Client) -> int:
    ((found,),) = site.store.query("SELECT state FROM session WHERE id = ?", (client.session,))
    return int(found)


@pytest.mark.parametrize("how", ["fails", "hangs", "has no end"])
async def test_a_listing_that_does_not_end_delays_only_its_own_backend(site: Site, odd: Odd, how: str) -> None:
    odd.how = how
    clients = [await left_behind(site) for _ in range(3)]
    await site.put(b"k", b"data")
    await site.delete(b"k")
    for _ in range(6):
        async with asyncio.timeout(10):
            await site.work()
    assert list(site.places[0]._values) == [], "swept, and the dead block is gone, too"  # type: ignore[attr-defined]
    assert [state(site, client) for client in clients] == [1, 1, 1], "each has to be listed everywhere"
    site.sweeper._list_again_at.clear()
    site.sweeper._retry_at.clear()
    odd.how = "well"
    await site.work()
    assert [state(site, client) for client in clients] == [2, 2, 2]


async def test_a_long_listing_is_continued_where_it_stopped(site: Site, odd: Odd) -> None:
    odd.how = "has no end"
    client = await left_behind(site)
    await site.work()
    site.sweeper._list_again_at.clear()
    site.sweeper._retry_at.clear()
    await site.work()
    first, second = odd.asked
    assert first == ""
    number = int(second.removeprefix(session_prefix(client.session)), 16)
    assert number >= sweeper.KEYS
    assert number % sweeper.KEYS == 0, "behind the last one that was dealt with"


async def test_a_backend_that_deletes_nothing_is_tried_less_and_less_often(tmp_path: Path) -> None:
    site = Apart(tmp_path)
    for key, count in ((b"a", BOTH), (b"b", FIRST), (b"c", BOTH)):
        site.count = count
        await site.put(key, b"data" * 100)
    site.away("delete")
    for key in (b"a", b"b"):
        await site.delete(key)
    for _ in range(3):
        await site.work()
    assert len(site.plans[1].struck) == 1
    assert site.rows("block") == 2, "what lies on the other place alone is gone"
    await site.later(site.timing.backend_backoff.first_seconds)
    await site.later(site.timing.backend_backoff.first_seconds)
    assert len(site.plans[1].struck) == 2
    site.plans[1].clear()
    await site.later(site.timing.backend_backoff.first_seconds)
    assert site.rows("block") == 1
    site.close()


async def test_a_block_that_a_backend_refuses_to_delete_delays_no_other(tmp_path: Path) -> None:
    site = Apart(tmp_path)
    for n in range(20):
        await site.put(b"%d" % n, b"data %d" % n)
    for n in range(20):
        await site.delete(b"%d" % n)
    while await site.releaser.step():
        pass
    ((refused,),) = site.store.query("SELECT id FROM block WHERE died > 0 ORDER BY died, id LIMIT 1")
    site.plans[1].add(Fault(FaultKind.ERROR, "delete", key=block_path(refused), error=errors.Denied))
    for _ in range(3):
        await site.work()
    assert site.store.query("SELECT id FROM block") == [(refused,)]
    assert len(site.plans[1].struck) == 1
    await site.later(site.timing.backend_backoff.most_seconds)
    assert len(site.plans[1].struck) == 2
    site.plans[1].clear()
    await site.later(site.timing.backend_backoff.most_seconds)
    assert site.rows("block") == 0
    site.close()


async def test_a_backend_that_refuses_to_delete_anything_is_left_alone(tmp_path: Path) -> None:
    site = Apart(tmp_path)
    for n in range(20):
        await site.put(b"%d" % n, b"data %d" % n)
        await site.delete(b"%d" % n)
    site.plans[1].add(Fault(FaultKind.ERROR, "delete", error=errors.Denied))
    for _ in range(3):
        await site.work()
    assert len(site.plans[1].struck) == REJECTED_BLOCKS
    site.plans[1].clear()
    for _ in range(2):
        await site.later(site.timing.backend_backoff.most_seconds)
    assert site.rows("block") == 0
    site.close()
