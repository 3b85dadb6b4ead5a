"""Calls that share a trip."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import NoSuchName, Unavailable
from gateway.posix.rpc.call_batcher import BATCHES_IN_FLIGHT, CallBatcher


class Line:
    """Where the trips go: they are held up until `open` is set, and answer each call by its argument doubled."""

    def __init__(self) -> None:
        self.trips: list[list[int]] = []
        self.open = asyncio.Event()
        self.room = 100

    async def trip(self, calls):
        numbers = [arguments[0] for _, arguments in calls]
        self.trips.append(numbers)
        await self.open.wait()
        if 13 in numbers:
            raise Unavailable("nobody answers")
        if 14 in numbers:
            raise TypeError("a mistake")
        return [NoSuchName(b"7") if each == 7 else each * 2 for each in numbers[: self.room]]


@pytest.fixture
async def line():
    return Line()


def ask(gathering: CallBatcher, numbers) -> list[asyncio.Task]:
    return [asyncio.ensure_future(gathering.call("double", (each,))) for each in numbers]


async def test_the_first_go_alone_and_the_rest_together_each_with_its_own_answer(line):
    asked = ask(CallBatcher(line.trip, 50), range(100, 200))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [len(each) for each in line.trips] == [1] * BATCHES_IN_FLIGHT
    line.open.set()
    assert await asyncio.gather(*asked) == [each * 2 for each in range(100, 200)]
    assert sorted(len(each) for each in line.trips) == [1] * BATCHES_IN_FLIGHT + [96 - 50, 50]


async def test_what_is_refused_is_its_own_callers_and_a_trip_that_failed_is_everybodys_on_it(line):
    line.open.set()
    gathering = CallBatcher(line.trip, 50)
    blocked = ask(gathering, range(20, 20 + BATCHES_IN_FLIGHT))
    found = await asyncio.gather(*blocked, *ask(gathering, [6, 7, 8]))
    assert [found[-3], found[-1]] == [12, 16]
    assert isinstance(found[-2], NoSuchName)
    blocked = ask(gathering, range(20, 20 + BATCHES_IN_FLIGHT))
    failed = await asyncio.gather(*blocked, *ask(gathering, [12, 13]), return_exceptions=True)
    assert [type(each) for each in failed[-2:]] == [Unavailable, Unavailable]
    assert failed[-1] is not failed[-2]
    with pytest.raises(TypeError, match="a mistake"):
        await gathering.call("double", (14,))
    assert await gathering.call("double", (15,)) == 30


async def test_what_there_was_no_room_for_is_asked_again_in_its_order(line):
    line.room = 3
    line.open.set()
    asked = ask(CallBatcher(line.trip, 50), range(100, 120))
    assert await asyncio.gather(*asked) == [each * 2 for each in range(100, 120)]


async def test_what_is_cancelled_while_it_waits_is_not_asked_and_later_nobody_minds(line):
    gathering = CallBatcher(line.trip, 50)
    asked = ask(gathering, range(100, 110))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked[0].cancel()
    asked[7].cancel()
    line.open.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [each for each in found if not isinstance(each, BaseException)] == [
        each * 2 for each in range(100, 110) if each not in (100, 107)
    ]
    assert 107 not in [number for trip in line.trips for number in trip]
