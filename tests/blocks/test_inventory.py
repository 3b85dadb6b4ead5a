"""Inventories of backends whose listings do not end: `fsck` and `gc` end, and check the other backends."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import pytest

from backends.base import Listed, crc32c_of
from backends.errors import Corrupted
from backends.s3.listing import list_values
from backends.testing.memory import Memory
from gateway.blocks.fsck.findings import Severity
from gateway.blocks.fsck.fsck import check_site
from gateway.blocks.maintenance.gc import collect, survey
from gateway.blocks.maintenance.inventory import BlockState, ListingLimits, UnusableListing, take_inventory
from tests.blocks.site import TIMING, Site
from tests.clocks import ManualClock

CLOCK = ManualClock()
LIMITS = ListingLimits(unnamed_most=50, timing=replace(TIMING, clock=CLOCK))
ORPHAN = "ff00000000000000/"


class Odd(Memory):
    """A backend whose listing goes on after its last key, as a test says."""

    tail = "nothing"
    taken = 0
    """How many keys were listed."""

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        async for line in super().list(prefix, after):
            self.taken += 1
            yield line
        number = 0
        while self.tail != "nothing":
            number += 1
            self.taken += 1
            if self.tail == "slow":
                CLOCK.advance(3.0)
            if self.tail == "wrong":
                raise Corrupted("its listing is wrong", backend=self.name)
            if self.tail == "silent":
                await asyncio.Event().wait()
            key = {"strange": f"zz/{number:09}", "repeating": "zz/the-same"}.get(self.tail, f"{ORPHAN}{number:032x}")
            yield Listed(key, 1)


@pytest.fixture
def odd() -> Odd:
    return Odd("odd")


@pytest.fixture
async def site(tmp_path: Path, odd: Odd) -> AsyncIterator[Site]:
    """Some objects on both backends, and an orphan on the second, good one."""
    made = Site(tmp_path, odd, Memory("good"))
    connection = sqlite3.connect(made.path, isolation_level=None)
    connection.execute("INSERT INTO ring_key VALUES (5, 1, x'', '', 0)")
    connection.close()
    for n in range(1, 6):
        await made.put(b"k%d" % n, b"data" * n)
    await made.places[1].put(ORPHAN + "ab" * 16, [b"?"], crc32c_of([b"?"]))
    yield made
    made.close()


ENDLESS = {
    "orphans": "more than 50 keys",
    "strange": "more than 50 keys",
    "repeating": "after",
    "slow": "took",
    "wrong": "its listing is wrong",
}


@pytest.mark.parametrize(("tail", "why"), ENDLESS.items())
@pytest.mark.parametrize("read", [False, True])
async def test_fsck_gives_up_an_endless_listing_and_checks_everything_else(
    site: Site, odd: Odd, tail: str, why: str, read: bool
) -> None:
    odd.tail = tail
    report = await check_site(
        site.path, site.store, site.backends, read=site.block_keys if read else None, limits=LIMITS
    )
    [finding] = [each for each in report.findings if each.kind == "listing-unusable"]
    assert why in finding.what
    assert report.worst is Severity.UNCHECKED
    assert report.kinds["block-orphan"] >= 1, "the other backend was looked at"
    assert odd.taken < 200
    assert (report.counted["frames"] > 0) == read


async def test_a_listing_that_shows_no_further_key_is_given_up(site: Site, odd: Odd) -> None:
    """A listing as of a store that sends page after page of foreign keys."""
    odd.tail = "silent"
    timing = replace(LIMITS.timing, inventory=replace(LIMITS.timing.inventory, thousand_keys_seconds=0.05))
    report = await check_site(site.path, site.store, site.backends, limits=replace(LIMITS, timing=timing))
    [finding] = [each for each in report.findings if each.kind == "listing-unusable"]
    assert "its listing was given up after" in finding.what
    assert report.kinds["block-orphan"] >= 1, "the other backend was looked at"


class Shared(Odd):
    """A backend with foreign names, which a bucket's listing skips; then the server hangs."""

    hangs = asyncio.Event()

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        pages = 0

        async def fetch(after: str, token: str) -> bytes:
            nonlocal pages
            pages += 1
            if pages > 3:
                self.hangs.set()
                await asyncio.Event().wait()
            lines = "".join(
                f"<Contents><Key>p/Photo-{pages}-{line:03}</Key><Size>1</Size></Contents>" for line in range(500)
            )
            more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
            return f"<ListBucketResult>{lines}{more}</ListBucketResult>".encode()

        async for line in list_values(fetch, "p/", prefix, after, self.name):
            yield line


async def test_a_slow_listing_of_foreign_keys_is_given_up_with_their_number_and_an_example(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared("shared")
    limit = asyncio.timeout

    class AtOnceWhenItHangs:
        """Replaces `asyncio.timeout`: it ends once the server hangs, and not by a clock."""

        def __init__(self, seconds: float) -> None:
            self._limit = limit(None)

        async def __aenter__(self) -> None:
            await self._limit.__aenter__()
            self._ending = asyncio.create_task(self._end())

        async def _end(self) -> None:
            await shared.hangs.wait()
            self._limit.reschedule(0)

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> bool | None:
            self._ending.cancel()
            return await self._limit.__aexit__(kind, error, trace)

    monkeypatch.setattr(asyncio, "timeout", AtOnceWhenItHangs)
    with pytest.raises(UnusableListing, match=r"1,500 names so far that are no keys .*, such as 'p/Photo-3-499'"):
        async for _ in take_inventory(site.store, 99, shared, LIMITS):
            pass


@pytest.mark.parametrize(("tail", "why"), ENDLESS.items())
async def test_gc_gives_up_an_endless_listing_and_collects_on_the_other_backends(
    site: Site, odd: Odd, tail: str, why: str
) -> None:
    odd.tail = tail
    steps: list[int] = []
    waste = await survey(site.store, site.backends, limits=LIMITS)
    assert why in waste.unchecked[odd.name]
    assert waste.blocks[BlockState.ORPHAN] >= 1, "the other backend was looked at"
    left = await collect(
        site.store, site.worker_journal, site.backends, site.workers, LIMITS.timing, lambda *_: steps.append(1),
        limits=LIMITS,
    )  # fmt: skip
    assert list(left.unchecked) == [odd.name]
    assert left.blocks == {}, "the orphan of the other backend is gone"
    assert odd.taken < 500


async def test_blocks_after_the_point_where_a_listing_was_given_up_are_counted_as_unchecked(
    site: Site, odd: Odd
) -> None:
    for number in range(60):
        key = f"{0:016x}/{number:032x}"  # before all others
        await odd.put(key, [b"?"], crc32c_of([b"?"]))
    report = await check_site(site.path, site.store, site.backends, limits=LIMITS)
    ((named,),) = site.store.query("SELECT count(*) FROM block WHERE died = 0")
    assert report.unchecked == named
    assert (
        await check_site(site.path, site.store, site.backends, limits=replace(LIMITS, unnamed_most=60))
    ).unchecked == 0


async def test_blocks_after_that_point_are_read_all_the_same(site: Site, odd: Odd) -> None:
    [first, *_] = await site.stored()
    odd._values[first] = bytes(len(odd._values[first]))
    odd.tail = "orphans"
    report = await check_site(site.path, site.store, site.backends, read=site.block_keys, limits=LIMITS)
    assert report.kinds["block-damaged"] == 1
