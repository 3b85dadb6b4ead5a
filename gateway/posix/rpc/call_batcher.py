"""Calls that share a trip: while a few trips are under way, what is asked meanwhile waits, and goes as the next one.

So a call goes at once where nobody else asks, and under load many go in one request, without a timer. Those of one
trip run at the same time, and each has an answer of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gateway.errors import EntrepotError

BATCHES_IN_FLIGHT = 4
"""Under way at once."""

Call = tuple[str, tuple[Any, ...]]
Trip = Callable[[Sequence[Call]], Awaitable[list[Any]]]
"""Answers the first ones of the calls, one at least, each with its result or the `EntrepotError` that it was refused
with."""
_Asked = tuple[Call, asyncio.Future[Any]]


class CallBatcher:
    """For one event loop. At most *most* calls go with each *trip*."""

    def __init__(self, trip: Trip, most: int) -> None:
        self._trip = trip
        self._most = most
        self._waiting: deque[_Asked] = deque()
        self._trips: set[asyncio.Task[None]] = set()

    async def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """The result of one call; an `EntrepotError` that it was refused with is answered, not raised, unless its trip
        was refused as a whole. What is cancelled while it waits is not asked."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(((name, arguments), answer))
        self._depart()
        return await answer

    def _depart(self) -> None:
        while self._waiting and len(self._trips) < BATCHES_IN_FLIGHT:
            some: list[_Asked] = []
            while self._waiting and len(some) < self._most:
                call, answer = self._waiting.popleft()
                if not answer.done():
                    some.append((call, answer))
            if some:
                task = asyncio.create_task(self._travel(some))
                self._trips.add(task)
                task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        self._trips.discard(task)
        self._depart()

    async def _travel(self, some: list[_Asked]) -> None:
        try:
            found = await self._trip([call for call, _ in some])
        except EntrepotError as error:
            for answer in _open(some):
                answer.set_exception(type(error)(*error.args))  # each its own, for each is raised
            return
        except BaseException as error:
            for answer in _open(some):
                answer.set_exception(error) if isinstance(error, Exception) else answer.cancel()
            raise
        for (_, answer), result in zip(some, found, strict=False):
            if not answer.done():
                answer.set_result(result)
        self._waiting.extendleft(reversed(some[len(found) :]))


def _open(some: list[_Asked]) -> list[asyncio.Future[Any]]:
    return [answer for _, answer in some if not answer.done()]
