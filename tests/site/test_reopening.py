"""Backends that are opened anew while they are in use: what goes wrong meanwhile stays with the one it happens to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends import errors
from backends.base import Backend, Marker
from backends.testing.memory import Memory
from gateway.site.storage import checked_opening
from gateway.site.storage.backend_pool import BackendPool
from gateway.site.storage.refusals import TemporarilyRejected
from gateway.timing import Timing, parse_timing
from gateway.topology import BackendPlace, Policy, S3Place, Topology
from tests.waiting import until_true

SITE = "ab" * 16


class Rows:
    """Of a site that knows the backend `far`."""

    def query(self, statement: str, values: object = ()) -> list[Any]:
        return [(7,)] if "FROM backend" in statement else [(SITE, 1)]

    def catalog_version(self) -> int:
        return 1


class Place(Memory):
    """Bears the site's marker, and says whether it was closed."""

    def __init__(self) -> None:
        super().__init__("far")
        self.held: Marker | None = Marker(SITE, 7, 1)
        self.closed = False

    async def marker(self) -> Marker | None:
        return self.held

    async def close(self) -> None:
        self.closed = True


class Doors:
    """Opens a `Place` each time, or raises `why`."""

    def __init__(self) -> None:
        self.opened: list[Place] = []
        self.places: list[BackendPlace] = []
        self.why: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    @property
    def asked(self) -> int:
        return len(self.places)

    async def __call__(self, place: BackendPlace, **how: object) -> Backend:
        self.places.append(place)
        await self.open.wait()
        if self.why is not None:
            raise self.why
        self.opened.append(Place())
        return self.opened[-1]


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> Doors:
    async def loaded(place: BackendPlace) -> None:
        await asyncio.sleep(0)

    found = Doors()
    monkeypatch.setattr(checked_opening, "open_backend", found)
    monkeypatch.setattr(checked_opening, "load_driver", loaded)
    return found


def bucket(tmp_path: Path) -> BackendPlace:
    secret = tmp_path / "secret"
    secret.write_text("old")
    return BackendPlace("far", "s3", "here", 8, 60.0, s3=S3Place("b", access_key="K", secret_key_file=str(secret)))


def topology(*places: BackendPlace) -> Topology:
    return Topology("here", {}, {}, {each.name: each for each in places}, {"default": Policy("default", ("far",), ())})


QUICK = parse_timing("scale=0.002")


async def stood(place: BackendPlace, timing: Timing = QUICK) -> BackendPool:
    found = BackendPool(Rows(), timing=timing, writes_much=False)
    await found.open(topology(place), strict=False)
    return found


async def watched(found: BackendPool, until: Callable[[], bool]) -> None:
    """Watch until it is so; the watch must not end by itself."""
    watch = asyncio.create_task(found.watch())
    try:
        await until_true(lambda: watch.done() or until(), seconds=10)
        assert not watch.done(), watch.exception()
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def test_a_secret_that_cannot_be_used_keeps_no_other_edit_from_being_taken_over(
    doors: Doors, tmp_path: Path
) -> None:
    """What only its files say is left for what stands there next; the old one goes on."""
    place = bucket(tmp_path)
    found = await stood(place)
    (tmp_path / "secret").unlink()
    doors.why = errors.Misconfigured("no secret", backend="far")
    await found.check_openable(topology(replace(place, drain=True)))
    with pytest.raises(TemporarilyRejected, match=r"backends\.far: no secret"):
        await found.check_openable(topology(replace(place, calls=9)))
    await found.renew(topology(replace(place, drain=True)))
    assert found.pending() == found.refusing() == {}
    await found.close()


async def test_a_mistake_while_one_is_opened_anew_does_not_end_the_watch(doors: Doors, tmp_path: Path) -> None:
    found = await stood(bucket(tmp_path))
    doors.why = RuntimeError("a mistake")
    (tmp_path / "secret").write_text("the new one")
    await watched(found, lambda: doors.asked >= 4)
    doors.why = None
    await watched(found, lambda: len(doors.opened) == 2)
    await found.close()


async def test_one_that_leaves_while_its_files_are_looked_at_does_not_end_the_watch(
    doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await stood(bucket(tmp_path))
    looks: list[int] = []

    def otherwise() -> list[str]:
        looks.append(1)
        return ["far"]

    monkeypatch.setattr(found, "_changed", otherwise)
    await found.close_removed(topology())
    await watched(found, lambda: len(looks) >= 3)
    await found.close()


async def test_a_disk_that_lost_its_marker_and_left_the_config_does_not_end_the_watch(
    doors: Doors, tmp_path: Path
) -> None:
    """Between its leaving and the end of its own watch it is looked at again."""
    found = await stood(BackendPlace("far", "local", "here", 8, 60.0, path=str(tmp_path)))
    doors.opened[0].held = None
    (guarded,) = found.backends.values()
    await guarded.check(Rows())
    assert list(found.refusing()) == ["far"]
    await found.close_removed(topology())
    await guarded.check(Rows())
    assert guarded.why
    await found.close()


async def test_a_stand_in_that_left_the_config_is_not_tried_any_more(
    doors: Doors, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    doors.why = errors.Unavailable("away")
    found = await stood(bucket(tmp_path))
    await found.close_removed(topology())
    asked = doors.asked
    caplog.clear()
    with caplog.at_level(logging.INFO):
        await asyncio.sleep(0.1)
    assert not caplog.records
    assert doors.asked <= asked + 1
    await found.close()


async def test_what_is_away_is_taken_over_as_it_stands_and_opened_that_way_once_it_is_back(
    doors: Doors, tmp_path: Path
) -> None:
    doors.why = errors.Unavailable("away")
    place = bucket(tmp_path)
    found, edited = await stood(place), topology(replace(place, calls=9))
    await found.check_openable(edited)
    await found.renew(edited)
    await found.check_openable(edited)
    doors.why = errors.Denied("refused")
    await found.check_openable(topology(replace(place, calls=9, drain=True)))
    with pytest.raises(TemporarilyRejected, match="refused"):
        await found.check_openable(topology(replace(place, calls=10)))
    doors.why = None
    await until_true(lambda: not found.pending())
    assert (len(doors.opened), doors.places[-1].calls) == (1, 9)
    await found.close()
    assert doors.opened[0].closed


async def test_what_comes_back_in_the_middle_of_an_edit_is_opened_once_more_as_that_says(
    doors: Doors, tmp_path: Path
) -> None:
    doors.why = errors.Unavailable("away")
    place = bucket(tmp_path)
    found = await stood(place)
    doors.why = None
    doors.open.clear()
    asked = doors.asked
    await until_true(lambda: doors.asked > asked)
    await found.renew(topology(replace(place, calls=9)))
    doors.open.set()
    await watched(found, lambda: len(doors.opened) == 2)
    assert [each.calls for each in doors.places[-2:]] == [8, 9]
    assert found.pending() == {}
    await found.close()
    assert all(each.closed for each in doors.opened)


async def test_what_was_opened_before_is_closed_with_the_rest(doors: Doors, tmp_path: Path) -> None:
    place = bucket(tmp_path)
    found = await stood(place)
    await found.renew(topology(replace(place, calls=9)))
    assert [each.closed for each in doors.opened] == [False, False]
    await found.close()
    assert [each.closed for each in doors.opened] == [True, True]


async def test_what_was_opened_before_stays_open_for_as_long_as_its_calls_may_take(
    doors: Doors, tmp_path: Path
) -> None:
    place = replace(bucket(tmp_path), deadline_seconds=0.5)
    found = await stood(place, parse_timing("scale=0.002; backends.close_seconds=0.01"))
    await found.renew(topology(replace(place, deadline_seconds=0.02)))
    await found.renew(topology(replace(place, deadline_seconds=0.03)))
    await until_true(lambda: doors.opened[1].closed)
    assert [each.closed for each in doors.opened] == [False, True, False]
    await until_true(lambda: doors.opened[0].closed)
    await found.close()


async def test_a_look_at_what_was_replaced_meanwhile_says_nothing_about_what_replaced_it(
    doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bucket(tmp_path)
    found = await stood(place)
    (guarded,) = found.backends.values()
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slowly() -> Marker | None:
        asked.set()
        await answer.wait()
        return None

    monkeypatch.setattr(doors.opened[0], "marker", slowly)
    look = asyncio.create_task(guarded.check(Rows()))
    await asked.wait()
    await found.renew(topology(replace(place, calls=9)))
    answer.set()
    await look
    assert found.refusing() == {}
    await found.close()
