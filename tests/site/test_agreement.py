"""One store that says that the site goes on elsewhere does not end it; its folders, or most of its places, do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends import errors
from backends.base import Backend, Fence, Marker, crc32c_of
from backends.testing.memory import Memory
from gateway.blocks.types import block_path
from gateway.crypto.sealing import new_block_id
from gateway.errors import Misconfigured
from gateway.site.storage import backend_pool, checked_opening
from gateway.site.storage.agreement import (
    INCARNATION_STEPS,
    HistoriesDiverged,
    credible_incarnation,
    is_active_elsewhere,
)
from gateway.site.storage.backend_pool import BackendPool
from gateway.site.storage.fencing import Fencing
from gateway.timing import SystemClock, parse_timing
from gateway.topology import BackendPlace, Policy, S3Place, Topology
from tests.site.test_stamping import SITE, History
from tests.waiting import until_true

QUICK = parse_timing("markers.local_seconds=0.01; markers.distant_seconds=0.01; backends.reopen_seconds=0.01")
IDS = {"disk": 1, "one": 2, "two": 3, "three": 4}
HUGE = (1 << 63) - 1


def place(name: str) -> BackendPlace:
    """A folder where that is what it is called, else a bucket."""
    if name == "disk":
        return BackendPlace(name, "local", "here", 8, 60.0, False, "/disk")
    return BackendPlace(name, "s3", "here", 8, 60.0, False, s3=S3Place("bucket"))


@pytest.mark.parametrize(
    ("places", "say_so", "agreed"),
    [
        ("one", "one", True),
        ("disk", "disk", True),
        ("disk one", "one", False),
        ("disk one", "disk", True),
        ("one two", "one", False),
        ("one two", "one two", True),
        ("disk one two", "one two", True),
        ("disk one two three", "one two", False),
        ("disk one two three", "one two three", True),
        ("one two", "one gone", False),
        ("one", "", False),
    ],
)
def test_a_folder_or_more_than_half_of_all_places_decide(places: str, say_so: str, agreed: bool) -> None:
    assert is_active_elsewhere({name: place(name) for name in places.split()}, say_so.split()) is agreed


@pytest.mark.parametrize(
    ("heard", "known", "expected"),
    [
        ({}, 1, 0),
        ({"disk": 1, "one": 1, "two": 1}, 1, 1),
        ({"disk": 1, "one": 2, "two": 1}, 1, 2),
        ({"disk": 1, "one": HUGE, "two": 1}, 1, 1),
        ({"disk": 1, "one": HUGE, "two": HUGE}, 1, HUGE),
        ({"disk": 500, "one": 1, "two": 1}, 1, 500),
        ({"disk": 500, "one": 500 + INCARNATION_STEPS, "two": 1}, 1, 500 + INCARNATION_STEPS),
        ({"disk": 500, "one": 501 + INCARNATION_STEPS, "two": 1}, 1, 500),
        ({"one": HUGE, "two": HUGE - 1}, 1, HUGE),
        ({"disk": 1, "one": HUGE}, HUGE, HUGE),
    ],
)
def test_a_restore_believes_one_place_about_its_incarnation_for_a_few_steps_alone(
    heard: dict[str, int], known: int, expected: int
) -> None:
    assert credible_incarnation({name: place(name) for name in ("disk", "one", "two")}, heard, known) == expected


class Rows:
    """Of a journal, with the ids of the backends."""

    def __init__(self, history: History) -> None:
        self._history = history

    def query(self, statement: str, values: Any = ()) -> list[Any]:
        if "SELECT id FROM backend" in statement:
            return [(IDS[values[0]],)]
        return [] if "FROM backend" in statement else self._history.rows.query(statement, values)

    def catalog_version(self) -> int:
        return 1


class Stores:
    """The backends of a site, whose markers a test sets."""

    def __init__(self, names: Collection[str]) -> None:
        self.all = {name: Memory(name) for name in names}
        self.away = set[str]()
        """Those that cannot be opened."""
        self.mark(names, 1)
        policies = {"default": Policy("default", ("disk",), ("disk",))}
        self.topology = Topology("here", {}, {}, {name: place(name) for name in names}, policies)

    def mark(self, names: Collection[str], incarnation: int, fence: Fence | None = None) -> None:
        for name in names:
            self.all[name]._marker = Marker(SITE, IDS[name], incarnation, fence)

    async def open(self, place: BackendPlace, **how: object) -> Backend:
        if place.name in self.away:
            raise errors.Unavailable("no answer", backend=place.name)
        return self.all[place.name]


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Stores:
    made = Stores(["disk", "one", "two"])
    monkeypatch.setattr(checked_opening, "open_backend", made.open)
    return made


@pytest.fixture
def histories(tmp_path: Path) -> Iterator[list[History]]:
    """One journal, whose committer has started; more of them are closed behind the test."""
    made = [History(tmp_path / "journal.db")]
    made[0].start()
    yield made
    for each in made:
        each.close()


SayElsewhere = Callable[[Collection[str]], None]


def elsewhere(kind: str, stores: Stores, histories: list[History]) -> SayElsewhere:
    """A function that has stores say that the site goes on elsewhere."""
    if kind == "restored":
        return lambda names: stores.mark(names, 9)
    histories.append(other := histories[0].copy("other.db"))
    other.start()
    other.grow()
    stamped = other.fencing.with_fence(Marker(SITE, 1, 1))
    assert stamped is not None
    return lambda names: stores.mark(names, 1, stamped.fence)


def stands(history: History) -> BackendPool:
    """The backends of a process that stamps them for this journal."""
    rows = Rows(history)
    return BackendPool(
        rows, timing=QUICK, writes_much=False, fencing=Fencing(rows, lambda: 7, SystemClock(), stamps=True)
    )


KINDS = pytest.mark.parametrize(
    ("kind", "said", "raised"),
    [
        ("restored", "incarnation 9", Misconfigured),
        ("stamped", "another copy of this site's folder", HistoriesDiverged),
    ],
)


@KINDS
async def test_a_site_goes_on_while_one_cloud_says_that_it_goes_on_elsewhere_and_ends_when_two_do(
    kind: str, said: str, raised: type[Exception], stores: Stores, histories: list[History]
) -> None:
    found, say_so = stands(histories[0]), elsewhere(kind, stores, histories)
    await found.open(stores.topology, strict=True)
    watching = asyncio.create_task(found.watch())
    say_so(["one"])
    await until_true(found.refusing)
    await asyncio.sleep(0.05)
    assert not watching.done()
    assert list(found.refusing()) == ["one"]
    assert said in found.refusing()["one"]
    found.count()
    gauges = {"restored": backend_pool.ELSEWHERE.values, "stamped": backend_pool.STAMPED.values}
    assert gauges.pop(kind) == {("disk",): 0, ("one",): 1, ("two",): 0}
    assert all(set(values.values()) == {0} for values in gauges.values())
    await found.backends[IDS["two"]].put("new", [b"new"], crc32c_of([b"new"]))
    for call in (found.backends[IDS["one"]].put("new", [b"new"], crc32c_of([b"new"])), delete(found, "one")):
        with pytest.raises(errors.Unavailable, match="it takes nothing"):
            await call
    stores.mark(["one"], 1)
    await until_true(lambda: not found.refusing())
    say_so(["one", "two"])
    with pytest.raises(raised, match=said):
        await asyncio.wait_for(watching, 10)
    assert set(found.refusing()) == {"disk", "one", "two"}
    await found.close()


@KINDS
async def test_a_site_starts_where_one_cloud_says_that_it_goes_on_elsewhere_and_not_where_two_do(
    kind: str, said: str, raised: type[Exception], stores: Stores, histories: list[History]
) -> None:
    found, say_so = stands(histories[0]), elsewhere(kind, stores, histories)
    say_so(["one"])
    await found.open(stores.topology, strict=True)
    assert said in found.pending()["one"]
    watching = asyncio.create_task(found.watch())
    stores.mark(["one"], 1)
    await until_true(lambda: not found.pending())
    assert not watching.done()
    watching.cancel()
    await found.close()
    say_so(["one", "two"])
    again = stands(histories[0])
    with pytest.raises(raised, match=said):
        await again.open(stores.topology, strict=True)
    await again.close()


async def delete(found: BackendPool, name: str, session: int = 8) -> None:
    """A block that another process wrote."""
    await found.backends[IDS[name]].delete(block_path(new_block_id(session)))


async def test_of_two_copies_that_each_reach_some_places_neither_deletes_where_the_other_stamped(
    stores: Stores, histories: list[History]
) -> None:
    """The copy reaches one of three clouds; both go on. Once it reaches the others, most places end it."""
    stores.all["three"] = Memory("three")
    stores.mark(["three"], 1)
    backends = {name: place(name) for name in ("one", "two", "three")}
    topology = Topology("here", {}, {}, backends, {"default": Policy("default", ("two",), ("two",))})
    original = stands(histories[0])
    await original.open(topology, strict=True)
    histories.append(younger := histories[0].copy("younger.db"))
    younger.start()
    stores.away = {"two", "three"}
    copied = stands(younger)
    await copied.open(topology, strict=False)
    watching, copy_watching = asyncio.create_task(original.watch()), asyncio.create_task(copied.watch())
    await until_true(original.refusing)
    histories[0].grow()
    await original.stamp()
    assert list(original.refusing()) == ["one"]
    assert not watching.done()
    await delete(copied, "one")
    await delete(original, "two")
    await delete(original, "three")
    for found, name in ((original, "one"), (copied, "two"), (copied, "three")):
        with pytest.raises(errors.Unavailable):
            await delete(found, name)
    stores.away = set()
    with pytest.raises(HistoriesDiverged):
        await asyncio.wait_for(copy_watching, 10)
    assert not watching.done()
    watching.cancel()
    await copied.close()
    await original.close()


async def test_a_place_whose_opening_fails_in_a_way_that_nobody_thought_of_keeps_no_other_from_opening(
    stores: Stores, histories: list[History], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def opened(place: BackendPlace, **how: object) -> Backend:
        if place.name == "one":
            raise RecursionError("maximum recursion depth exceeded")
        return stores.all[place.name]

    monkeypatch.setattr(checked_opening, "open_backend", opened)
    found = stands(histories[0])
    await found.open(stores.topology, strict=True)
    assert "RecursionError" in found.pending()["one"]
    await found.close()
