"""Backends as a process holds them: a mapping that may change under who walks over it, and stand-ins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from awscrt import checksums

from backends import errors
from backends.base import Backend, Marker
from backends.testing.memory import Memory
from gateway.site.storage import backend_pool, checked_opening
from gateway.site.storage.open_backends import OpenBackends
from gateway.site.storage.pending_backend import PendingBackend
from gateway.timing import Timing, parse_timing
from gateway.topology import BackendPlace, Policy, Topology
from tests.waiting import until_true

HURRIED = parse_timing("backends.open_seconds=0.05")


def test_who_walks_over_backends_sees_those_of_when_it_began() -> None:
    live = OpenBackends({1: Memory(), 2: Memory()})
    for walk in (live, live.keys(), live.values(), live.items()):
        for _ in walk:
            live[len(live) + 1] = Memory()
            live.pop(max(live))
    assert list(live) == [1, 2]
    assert 1 in live
    assert live.get(3) is None


async def test_a_stand_in_says_why_until_it_is_that_backend() -> None:
    tries, there, told = [], Memory(), []

    async def reopen() -> Backend:
        tries.append(1)
        if len(tries) == 1:
            raise errors.Unavailable("still away")
        if len(tries) == 2:
            raise RuntimeError("a mistake")
        return there

    absent = PendingBackend("far", "away", reopen, parse_timing("backends.reopen_seconds=0.001"))
    absent.present = lambda: told.append(1)
    assert absent.name == "far"
    with pytest.raises(errors.Unavailable, match="backend 'far': it could not be opened: away"):
        await absent.put("a/b", [b"x"], checksums.crc32c(b"x"))
    for call in (
        absent.get("a/b"),
        absent.stat("a/b"),
        absent.delete("a/b"),
        absent.marker(),
        absent.claim(Marker("", 1, 1)),
    ):
        with pytest.raises(errors.Unavailable):
            await call
    with pytest.raises(errors.Unavailable):
        _ = [line async for line in absent.list()]
    assert absent.get_now("a/b") is None
    await until_true(lambda: told)
    assert absent.why == ""
    await absent.put("a/b", [b"x"], checksums.crc32c(b"x"))
    assert bytes(await absent.get("a/b")) == b"x"
    assert [line.key async for line in absent.list()] == ["a/b"]
    await absent.close()


class Rows:
    """Of a site that knows the backend `far`."""

    def query(self, statement: str, values: object = ()) -> list[Any]:
        return [(7,)] if "FROM backend" in statement else [("ab" * 16, 1)]

    def catalog_version(self) -> int:
        return 1


async def test_what_loading_a_driver_takes_does_not_count_against_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it takes longer than any server."""
    there = Memory("far")
    await there.claim(Marker("ab" * 16, 7, 1))
    loaded: list[str] = []

    async def load(place: BackendPlace) -> None:
        await asyncio.sleep(0.2)
        loaded.append(place.name)

    async def opened(place: BackendPlace, **how: object) -> Backend:
        assert loaded == ["far"]
        return there

    monkeypatch.setattr(checked_opening, "load_driver", load)
    monkeypatch.setattr(checked_opening, "open_backend", opened)
    place = BackendPlace("far", "s3", "here", 8, 60.0, False)
    policies = {"default": Policy("default", ("far",), ("far",))}
    found = backend_pool.BackendPool(Rows(), timing=HURRIED, writes_much=False)
    await found.open(Topology("here", {}, {}, {"far": place}, policies), strict=True)
    assert found.pending() == {}
    await found.close()


async def test_a_place_that_is_silent_counts_as_away_once_it_had_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(place: BackendPlace, **how: object) -> Backend:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(checked_opening, "open_backend", silent)
    places = {"far": BackendPlace("far", "local", "here", 8, 60.0, False, "/far")}
    found = backend_pool.BackendPool(Rows(), timing=HURRIED, writes_much=False)
    await found.open(Topology("here", {}, {}, places, {"default": Policy("default", ("far",), ("far",))}), strict=False)
    assert found.pending() == {"far": "it could not be opened within 0.05 s"}
    found.count()
    assert backend_pool.MISSING.values == {("far",): 1}
    await found.close_removed(Topology("here", {}, {}, {}, {}))
    found.count()
    assert backend_pool.MISSING.values == backend_pool.REFUSING.values == {}, "an alarm over what is not there any more"
    await found.close()


async def test_a_stand_in_that_is_closed_tries_no_more() -> None:
    async def reopen() -> Backend:
        raise AssertionError("tried after it was closed")

    absent = PendingBackend("far", "away", reopen, Timing())
    await absent.close()
