"""Calls that share requests."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import NoSuchName, Unavailable
from gateway.posix.rpc.call_batcher import BATCHES_IN_FLIGHT, CallBatcher


class Server:
    """A server that holds requests back until `open` is set, and answers each call with its argument doubled."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.open = asyncio.Event()
        self.run_at_most = 100

    async def send(self, calls):
        numbers = [arguments[0] for _, arguments in calls]
        self.requests.append(numbers)
        await self.open.wait()
        if 13 in numbers:
            raise Unavailable("nobody answers")
        if 14 in numbers:
            raise TypeError("a mistake")
        return [NoSuchName(b"7") if each == 7 else each * 2 for each in numbers[: self.run_at_most]]


@pytest.fixture
async def server():
    return Server()


def ask(batcher: CallBatcher, numbers) -> list[asyncio.Task]:
    return [asyncio.ensure_future(batcher.call("double", (each,))) for each in numbers]


async def test_the_first_calls_are_sent_alone_and_the_others_together(server):
    results = ask(CallBatcher(server.send, 50), range(100, 200))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [len(each) for each in server.requests] == [1] * BATCHES_IN_FLIGHT
    server.open.set()
    assert await asyncio.gather(*results) == [each * 2 for each in range(100, 200)]
    assert sorted(len(each) for each in server.requests) == [1] * BATCHES_IN_FLIGHT + [96 - 50, 50]


async def test_an_error_of_one_call_is_its_own_and_a_failed_request_fails_all_its_calls(server):
    server.open.set()
    batcher = CallBatcher(server.send, 50)
    blocked = ask(batcher, range(20, 20 + BATCHES_IN_FLIGHT))
    found = await asyncio.gather(*blocked, *ask(batcher, [6, 7, 8]))
    assert [found[-3], found[-1]] == [12, 16]
    assert isinstance(found[-2], NoSuchName)
    blocked = ask(batcher, range(20, 20 + BATCHES_IN_FLIGHT))
    failed = await asyncio.gather(*blocked, *ask(batcher, [12, 13]), return_exceptions=True)
    assert [type(each) for each in failed[-2:]] == [Unavailable, Unavailable]
    assert failed[-1] is not failed[-2]
    with pytest.raises(TypeError, match="a mistake"):
        await batcher.call("double", (14,))
    assert await batcher.call("double", (15,)) == 30


async def test_calls_that_were_not_run_are_sent_again_in_order(server):
    server.run_at_most = 3
    server.open.set()
    results = ask(CallBatcher(server.send, 50), range(100, 120))
    assert await asyncio.gather(*results) == [each * 2 for each in range(100, 120)]


async def test_a_call_that_is_cancelled_while_it_waits_is_not_sent(server):
    batcher = CallBatcher(server.send, 50)
    results = ask(batcher, range(100, 110))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    results[0].cancel()
    results[7].cancel()
    server.open.set()
    found = await asyncio.gather(*results, return_exceptions=True)
    assert [each for each in found if not isinstance(each, BaseException)] == [
        each * 2 for each in range(100, 110) if each not in (100, 107)
    ]
    assert 107 not in [number for request in server.requests for number in request]
