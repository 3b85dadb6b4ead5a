"""Connections are shared by concurrent file systems, and opened again after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.errors import Unavailable
from gateway.posix.fsspec import connections
from gateway.posix.fsspec.connections import acquire_connection, release_connection


class ObjectPath:
    """A gateway that answers who connects once it is told to, well or not."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = 0
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self, at: Path) -> ObjectPath:
        self.asked += 1
        await asyncio.shield(self.answer)
        return self

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[ObjectPath]:
    found = ObjectPath()
    monkeypatch.setattr(connections, "_connect", found.connect)
    yield found
    for user in (1, 2):
        await release_connection(user)


async def test_who_asks_at_once_shares_what_is_opened_until_the_last_one_lets_go(
    place: ObjectPath, tmp_path: Path
) -> None:
    asking = [asyncio.create_task(acquire_connection(tmp_path, user)) for user in (1, 2)]
    await asyncio.sleep(0)
    place.answer.set_result(None)
    assert await asyncio.gather(*asking) == [place, place]
    assert place.asked == 1
    await release_connection(1)
    assert place.closed == 0
    await release_connection(2)
    assert place.closed == 1


@pytest.mark.parametrize("given_up", [False, True])
async def test_what_failed_is_tried_again_by_the_next_who_asks(
    place: ObjectPath, tmp_path: Path, given_up: bool
) -> None:
    """Also where whoever asked first had no patience, so that nobody was told."""
    asking = asyncio.create_task(acquire_connection(tmp_path, 1))
    while not place.asked:
        await asyncio.sleep(0)
    opening = connections._connections[asyncio.get_running_loop()][tmp_path].opening
    if given_up:
        asking.cancel()
    place.answer.set_exception(Unavailable("nobody is there"))
    with pytest.raises(asyncio.CancelledError if given_up else Unavailable):
        await asking
    await asyncio.wait([opening])
    place.answer = asyncio.get_running_loop().create_future()
    place.answer.set_result(None)
    assert await acquire_connection(tmp_path, 2) is place
    assert place.asked == 2
