"""Commands of many items, and how they make way."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.reconcile.batching import ALONE_SECONDS, ITEMS, REST, REST_SECONDS_MAX, Batching


class Slow:
    """A journal's client whose commands take so long, by a clock of its own."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.sent: list[tuple[int, ...]] = []
        self.rests: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    async def send(self, command: tuple[int, ...]) -> Any:
        self.sent.append(command)
        await asyncio.sleep(0)
        self.now += self.seconds
        return [item * 2 for item in command]


def batching(journal: Slow) -> Batching[int]:
    return Batching(journal, lambda items: items, clock=journal.clock, sleep=journal.sleep)  # type: ignore[arg-type]


async def test_each_item_gets_its_own_answer_and_no_command_is_longer_than_it_may_be() -> None:
    journal = Slow(0.0)
    some = batching(journal)
    answers = await asyncio.gather(*(some.send(n) for n in range(3 * ITEMS + 1)))
    assert answers == [2 * n for n in range(3 * ITEMS + 1)]
    assert [len(each) for each in journal.sent] == [ITEMS, ITEMS, ITEMS, 1]


async def test_while_the_committer_is_quick_nothing_is_put_off() -> None:
    journal = Slow(ALONE_SECONDS / 2)
    some = batching(journal)
    await asyncio.gather(*(some.send(n) for n in range(2 * ITEMS)))
    assert journal.rests == []


async def test_while_the_committer_is_busy_commands_make_way_and_take_more_along() -> None:
    journal = Slow(ALONE_SECONDS + 0.01)
    some = batching(journal)
    await some.send(0)
    assert abs(journal.rests[0] - REST * 0.01) < 1e-9
    await asyncio.gather(*(some.send(n) for n in range(1, 6)))
    assert journal.sent == [(0,), (1, 2, 3, 4, 5)]


async def test_a_committer_that_hangs_for_long_is_asked_again_soon_after_it_answers() -> None:
    journal = Slow(60.0)
    some = batching(journal)
    await some.send(0)
    await asyncio.sleep(0)
    assert journal.rests == [REST_SECONDS_MAX]
