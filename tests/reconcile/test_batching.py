"""Items that come while a command is on its way go with the next one, and each gets its own answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.errors import Unavailable
from gateway.reconcile.batching import ITEMS, CommandBatcher


class Slow:
    """A journal that answers when it may; a command is the items that are in it."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.may = asyncio.Event()
        self.error: Exception | None = None
        self.for_all: int | None = None

    async def send(self, command: tuple[Any, ...]) -> Any:
        self.sent.append(command)
        await self.may.wait()
        if self.error is not None:
            raise self.error
        return tuple(item * 2 for item in command) if self.for_all is None else self.for_all


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_comes_together_goes_together_and_what_comes_meanwhile_goes_next() -> None:
    journal = Slow()
    batching = CommandBatcher(journal, lambda items: items)
    first = [asyncio.create_task(batching.send(n)) for n in range(3)]
    await turns()
    second = [asyncio.create_task(batching.send(n)) for n in range(3, 5)]
    await turns()
    assert journal.sent == [(0, 1, 2)]
    journal.may.set()
    assert await asyncio.gather(*first, *second) == [0, 2, 4, 6, 8]
    assert journal.sent == [(0, 1, 2), (3, 4)]
    assert await batching.send(7) == 14


async def test_a_command_has_only_so_many_and_nobody_is_forgotten() -> None:
    journal = Slow()
    journal.may.set()
    batching = CommandBatcher(journal, lambda items: items)
    count = 2 * ITEMS + 3
    assert await asyncio.gather(*(batching.send(n) for n in range(count))) == [2 * n for n in range(count)]
    assert [len(command) for command in journal.sent] == [ITEMS, ITEMS, 3]


async def test_one_answer_for_all_is_everybody_s() -> None:
    journal = Slow()
    journal.may.set()
    journal.for_all = 3
    batching = CommandBatcher(journal, lambda items: items)
    assert await asyncio.gather(*(batching.send(n) for n in range(3))) == [3, 3, 3]


async def test_a_refusal_is_told_to_everybody_in_the_command_and_to_nobody_behind_it() -> None:
    journal = Slow()
    journal.error = Unavailable("down")
    batching = CommandBatcher(journal, lambda items: items)
    asked = [asyncio.create_task(batching.send(n)) for n in range(3)]
    await turns()
    journal.may.set()
    for each in asked:
        with pytest.raises(Unavailable):
            await each
    journal.error = None
    assert await batching.send(5) == 10


async def test_who_does_not_wait_any_more_takes_no_answer_from_the_others() -> None:
    journal = Slow()
    batching = CommandBatcher(journal, lambda items: items)
    asked = [asyncio.create_task(batching.send(n)) for n in range(3)]
    await turns()
    asked[0].cancel()
    journal.may.set()
    assert await asyncio.gather(*asked[1:]) == [2, 4]


async def test_the_first_waits_for_others_as_long_as_it_is_told_to() -> None:
    journal = Slow()
    journal.may.set()
    enough = asyncio.Event()
    batching = CommandBatcher(journal, lambda items: items, enough.wait)
    asked = [asyncio.create_task(batching.send(1))]
    await turns()
    asked.append(asyncio.create_task(batching.send(2)))
    await turns()
    assert journal.sent == []
    enough.set()
    assert await asyncio.gather(*asked) == [2, 4]
    assert journal.sent == [(1, 2)]
    await asyncio.gather(*(asyncio.create_task(batching.send(n)) for n in (3, 4)))
    assert journal.sent[1:] == [(3, 4)]


async def test_what_nobody_waits_for_any_more_is_not_sent() -> None:
    journal = Slow()
    journal.may.set()
    enough = asyncio.Event()
    batching = CommandBatcher(journal, lambda items: items, enough.wait)
    asked = [asyncio.create_task(batching.send(n)) for n in range(3)]
    await turns()
    asked[0].cancel()
    enough.set()
    assert await asyncio.gather(*asked[1:]) == [2, 4]
    assert journal.sent == [(1, 2)]
    enough.clear()
    alone = asyncio.create_task(batching.send(5))
    await turns()
    alone.cancel()
    enough.set()
    assert await batching.send(6) == 12
    assert journal.sent[1:] == [(6,)]
