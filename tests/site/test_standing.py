"""Backends as a process holds them: a mapping that may change under who walks over it, and stand-ins."""

from __future__ import annotations

import pytest
from awscrt import checksums

from backends import errors
from backends.base import Backend, Marker
from backends.memory import Memory
from gateway.site.absent import Absent
from gateway.site.standing import Live
from tests.site.running import until_true


def test_who_walks_over_backends_sees_those_of_when_it_began() -> None:
    live = Live({1: Memory(), 2: Memory()})
    for walk in (live, live.keys(), live.values(), live.items()):
        for _ in walk:
            live[len(live) + 1] = Memory()
            live.pop(max(live))
    assert list(live) == [1, 2]
    assert 1 in live
    assert live.get(3) is None


async def test_a_stand_in_says_why_until_it_is_that_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.site.absent.AGAIN_SECONDS", (0.01,))
    tries, there, told = [], Memory(), []

    async def reopen() -> Backend:
        tries.append(1)
        if len(tries) == 1:
            raise errors.Unavailable("still away")
        if len(tries) == 2:
            raise RuntimeError("a mistake")
        return there

    absent = Absent("far", "away", reopen)
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


async def test_a_stand_in_that_is_closed_tries_no_more() -> None:
    async def reopen() -> Backend:
        raise AssertionError("tried after it was closed")

    absent = Absent("far", "away", reopen)
    await absent.close()
