"""The budget of bytes: users that wait take turns."""

from __future__ import annotations

import asyncio

import pytest

from gateway.blocks.budget import Budget
from gateway.errors import Busy


async def test_a_user_who_comes_after_many_bodies_of_another_one_waits_for_one_of_them() -> None:
    budget, served = Budget(10), list[str]()
    await budget.acquire(10)

    async def body(user: str, size: int) -> None:
        await budget.acquire(size, None, user)
        served.append(user)
        budget.release(size)

    waiting = [asyncio.create_task(body(*each)) for each in [("alice", 10)] * 20 + [("bob", 9), ("bob", 9), ("", 10)]]
    await asyncio.sleep(0)
    assert budget.waiting_bytes == 20 * 10 + 2 * 9 + 10
    budget.release(10)
    await asyncio.gather(*waiting)
    assert served[:6] == ["alice", "bob", "", "alice", "bob", "alice"]
    assert (budget.used, budget.waiting_bytes) == (0, 0)


async def test_a_caller_that_wants_many_bytes_is_not_overtaken_for_ever() -> None:
    budget, served = Budget(10), list[str]()
    await budget.acquire(5)
    await budget.acquire(5)

    async def body(user: str, size: int) -> None:
        await budget.acquire(size, None, user)
        served.append(user)

    waiting = [asyncio.create_task(body("alice", 10)), asyncio.create_task(body("bob", 1))]
    await asyncio.sleep(0)
    budget.release(5)
    await asyncio.sleep(0)
    assert served == [], "it is alice's turn, and there is no room for her yet"
    budget.release(5)
    await waiting[0]
    assert served == ["alice"]
    budget.release(10)
    await waiting[1]


async def test_a_caller_that_stops_waiting_acquires_nothing_and_lets_others_go_on() -> None:
    budget = Budget(10)
    await budget.acquire(10)
    patient = asyncio.create_task(budget.acquire(10, None, "bob"))
    with pytest.raises(Busy):
        await budget.acquire(5, 0, "alice")
    cut = asyncio.create_task(budget.acquire(5, None, "alice"))
    await asyncio.sleep(0)
    cut.cancel()
    await asyncio.sleep(0)
    assert budget.waiting_bytes == 10
    budget.release(10)
    await patient
    assert budget.used == 10
