"""One store that says that the site was restored elsewhere does not end it; its folders, or most of its places, do."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from backends.base import Backend, Marker
from backends.memory import Memory
from gateway.errors import Misconfigured
from gateway.site import standing
from gateway.site.agreement import was_restored_elsewhere
from gateway.site.standing import Standing
from gateway.timing import parse_timing
from gateway.topology import BackendPlace, Policy, S3Place, Topology
from tests.waiting import until_true

SITE = "ab" * 16
QUICK = parse_timing("markers.local_seconds=0.01; markers.distant_seconds=0.01; backends.reopen_seconds=0.01")
IDS = {"disk": 1, "one": 2, "two": 3, "three": 4}


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
    assert was_restored_elsewhere({name: place(name) for name in places.split()}, say_so.split()) is agreed


class Rows:
    """Of a site in its first incarnation."""

    def query(self, statement: str, values: Any = ()) -> list[Any]:
        if "SELECT id FROM backend" in statement:
            return [(IDS[values[0]],)]
        return [] if "FROM backend" in statement else [(SITE, 1)]

    def data_version(self) -> int:
        return 1


class Stores:
    """The backends of a site, whose markers a test sets."""

    def __init__(self, names: Collection[str]) -> None:
        self.all = {name: Memory(name) for name in names}
        self.mark(names, 1)
        policies = {"default": Policy("default", ("disk",), ("disk",))}
        self.topology = Topology("here", {}, {}, {name: place(name) for name in names}, policies)

    def mark(self, names: Collection[str], incarnation: int) -> None:
        for name in names:
            self.all[name]._marker = Marker(SITE, IDS[name], incarnation)

    async def open(self, place: BackendPlace, **how: object) -> Backend:
        return self.all[place.name]


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Stores:
    made = Stores(["disk", "one", "two"])
    monkeypatch.setattr(standing, "open_backend", made.open)
    return made


async def test_a_site_goes_on_while_one_cloud_says_that_it_was_restored_and_ends_when_two_do(stores: Stores) -> None:
    found = Standing(Rows(), timing=QUICK, writes_much=False)
    await found.open(stores.topology, strict=True)
    watching = asyncio.create_task(found.watch())
    stores.mark(["one"], 9)
    await until_true(found.refusing)
    await asyncio.sleep(0.05)
    assert not watching.done()
    assert list(found.refusing()) == ["one"]
    found.count()
    assert standing.ELSEWHERE.values == {("disk",): 0, ("one",): 1, ("two",): 0}
    stores.mark(["one"], 1)
    await until_true(lambda: not found.refusing())
    stores.mark(["one", "two"], 9)
    with pytest.raises(Misconfigured, match="incarnation 9"):
        await asyncio.wait_for(watching, 10)
    assert set(found.refusing()) == {"disk", "one", "two"}
    await found.close()


async def test_a_site_starts_where_one_cloud_says_that_it_was_restored_and_not_where_two_do(stores: Stores) -> None:
    stores.mark(["one"], 9)
    found = Standing(Rows(), timing=QUICK, writes_much=False)
    await found.open(stores.topology, strict=True)
    assert "incarnation 9" in found.absent()["one"]
    watching = asyncio.create_task(found.watch())
    stores.mark(["one"], 1)
    await until_true(lambda: not found.absent())
    assert not watching.done()
    watching.cancel()
    await found.close()
    stores.mark(["one", "two"], 9)
    again = Standing(Rows(), timing=QUICK, writes_much=False)
    with pytest.raises(Misconfigured, match="incarnation 9"):
        await again.open(stores.topology, strict=True)
    await again.close()


async def test_a_place_whose_opening_fails_in_a_way_that_nobody_thought_of_keeps_no_other_from_opening(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def opened(place: BackendPlace, **how: object) -> Backend:
        if place.name == "one":
            raise RecursionError("maximum recursion depth exceeded")
        return stores.all[place.name]

    monkeypatch.setattr(standing, "open_backend", opened)
    found = Standing(Rows(), timing=QUICK, writes_much=False)
    await found.open(stores.topology, strict=True)
    assert "RecursionError" in found.absent()["one"]
    await found.close()
