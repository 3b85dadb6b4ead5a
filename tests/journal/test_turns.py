"""Users who wait for the same thing take turns."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from gateway.errors import Busy
from gateway.journal.slots import SLOTS, Slots
from gateway.journal.turns import FairQueue, Turns


def turns(things: int = 1, waiters_max: int = 100) -> Turns[int]:
    return Turns(deque(range(things)), waiters_max, "things")


async def test_who_came_after_many_of_another_user_waits_for_one_of_them() -> None:
    found, served = turns(), list[str]()
    held = await found.acquire("alice", 10)

    async def wait(user: str) -> None:
        thing = await found.acquire(user, 10)
        served.append(user)
        await asyncio.sleep(0)
        found.release(thing)

    waiting = [asyncio.create_task(wait(user)) for user in ["alice"] * 50 + ["bob"] * 2 + ["carol"]]
    await asyncio.sleep(0)
    assert found.waiting == 53
    found.release(held)
    await asyncio.gather(*waiting)
    assert served[:6] == ["alice", "bob", "carol", "alice", "bob", "alice"]
    assert (found.waiting, found.free) == (0, 1)


async def test_one_user_leaves_as_much_room_for_waiting_as_it_takes() -> None:
    found = turns(waiters_max=10)
    await found.acquire("alice", 10)
    waiting = [asyncio.create_task(found.acquire("alice", 10)) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await found.acquire("alice", 10)
    waiting += [asyncio.create_task(found.acquire("bob", 10)) for _ in range(2)]
    await asyncio.sleep(0)
    assert found.waiting == 7
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert found.waiting == 0


async def test_what_was_handed_to_somebody_who_went_away_goes_to_the_next() -> None:
    found = turns()
    held = await found.acquire("alice", 10)
    gone, late = (asyncio.create_task(found.acquire(user, 10)) for user in ("bob", "alice"))
    await asyncio.sleep(0)
    found.release(held)
    gone.cancel()
    assert await late == held
    found.release(held)
    assert (found.waiting, found.free) == (0, 1)


async def test_who_waits_too_long_is_told_and_forgotten() -> None:
    found = turns()
    await found.acquire("alice", 10)
    with pytest.raises(Busy):
        await found.acquire("bob", 0)
    assert found.waiting == 0


async def test_slots_are_given_by_turns_and_never_twice_under_one_number() -> None:
    slots = Slots()
    held = [await slots.acquire(1, 10) for _ in range(SLOTS)]
    waiting = [asyncio.create_task(slots.acquire(user, 10)) for user in (1, 1, 1, 2)]
    await asyncio.sleep(0)
    for slot, _ in held[:2]:
        slots.release(slot)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [each.done() for each in waiting] == [True, False, False, True]
    assert {await waiting[0], await waiting[3]} == {(slot, 2) for slot, _ in held[:2]}
    for each in waiting[1:3]:
        each.cancel()


class Item:
    """Counts how often items are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Item.compared += 1
        return self is other

    __hash__ = object.__hash__


def test_removing_an_item_looks_at_no_other() -> None:
    queue, items = FairQueue[Item](), [Item() for _ in range(100)]
    for item in items:
        queue.push("alice", item)
    assert not queue.remove("bob", items[0])
    assert all(queue.remove("alice", item) for item in reversed(items[1:]))
    assert not queue.remove("alice", items[1])
    assert (len(queue), queue.count("alice"), queue.pop() is items[0]) == (1, 1, True)
    assert Item.compared == 0, "thousands of tasks that wait may be cancelled at once"
