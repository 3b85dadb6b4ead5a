"""Bytes are reclaimed from bodies while others wait, one body in each turn of the event loop."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.blocks.budget import Budget
from gateway.blocks.write.reclaim import Reclaimer


class Held:
    """A body that holds one byte of the budget."""

    def __init__(self, budget: Budget, asked: list[int], number: int) -> None:
        self._budget, self._asked, self._number = budget, asked, number

    def reclaim(self, begun_before: float) -> int:
        self._asked.append(self._number)
        self._budget.release(1)
        return 1


class Broken:
    def reclaim(self, begun_before: float) -> int:
        raise RuntimeError("out of order")


async def test_one_body_is_reclaimed_in_a_turn_of_the_loop_and_the_oldest_first() -> None:
    budget = Budget(10)
    reclaimer = Reclaimer(budget, fill_seconds=60.0)
    asked: list[int] = []
    await budget.acquire(10)
    for number in range(10):
        reclaimer.add(Held(budget, asked, number))
    waiting = asyncio.create_task(budget.acquire(6))
    turns = []
    while not waiting.done():
        before = len(asked)
        await asyncio.sleep(0)
        turns.append(len(asked) - before)
    await asyncio.sleep(0)
    assert max(turns) == 1, f"so many let go in each turn of the loop: {turns}"
    assert asked == list(range(6)), "no more was asked for than was waited for"


async def test_nothing_is_reclaimed_from_a_body_that_was_removed() -> None:
    budget = Budget(3)
    reclaimer = Reclaimer(budget, fill_seconds=60.0)
    asked: list[int] = []
    await budget.acquire(3)
    held = [Held(budget, asked, number) for number in range(3)]
    for each in held:
        reclaimer.add(each)
    waiting = asyncio.create_task(budget.acquire(2))
    await asyncio.sleep(0)
    reclaimer.remove(held[1])
    await waiting
    assert asked == [0, 2]


async def test_an_error_in_one_body_does_not_keep_others_from_being_reclaimed(caplog: pytest.LogCaptureFixture) -> None:
    budget = Budget(2)
    reclaimer = Reclaimer(budget, fill_seconds=0.0)
    asked: list[int] = []
    await budget.acquire(2)
    reclaimer.add(Broken())
    waiting = asyncio.create_task(budget.acquire(1))
    with caplog.at_level(logging.ERROR):
        while not caplog.records:
            await asyncio.sleep(0)
        reclaimer.add(Held(budget, asked, 1))
        async with asyncio.timeout(60):
            await waiting
    assert asked == [1]
    assert "out of order" in caplog.text
