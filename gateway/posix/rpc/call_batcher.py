"""Calls that share requests: while a few requests are in flight, further calls wait, and are sent together as the next
one.

A call is sent at once if the client is idle; under load, many calls share one request. This needs no timer. The calls
of a request run concurrently, and each has a result of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gateway.errors import EntrepotError

BATCHES_IN_FLIGHT = 4
"""The maximum number of concurrent requests."""

Call = tuple[str, tuple[Any, ...]]
SendBatch = Callable[[Sequence[Call]], Awaitable[list[Any]]]
"""Sends calls in one request. Returns the results of the leading calls that were run, at least one: each its value, or
the `EntrepotError` that it was refused with."""
_Pending = tuple[Call, asyncio.Future[Any]]


class CallBatcher:
    """For one event loop. *send*: sends a batch of at most *most* calls."""

    def __init__(self, send: SendBatch, most: int) -> None:
        self._send = send
        self._most = most
        self._waiting: deque[_Pending] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()

    async def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Return the result of one call. An `EntrepotError` that the call was refused with is returned; one that
        applies to its whole request is raised. A call that is cancelled while it waits is not sent."""
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(((name, arguments), result))
        self._send_waiting()
        return await result

    def _send_waiting(self) -> None:
        while self._waiting and len(self._in_flight) < BATCHES_IN_FLIGHT:
            batch: list[_Pending] = []
            while self._waiting and len(batch) < self._most:
                call, result = self._waiting.popleft()
                if not result.done():
                    batch.append((call, result))
            if batch:
                task = asyncio.create_task(self._run(batch))
                self._in_flight.add(task)
                task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._send_waiting()

    async def _run(self, batch: list[_Pending]) -> None:
        try:
            values = await self._send([call for call, _ in batch])
        except EntrepotError as error:
            for result in _not_done(batch):
                result.set_exception(type(error)(*error.args))  # a copy for each caller, since each one raises it
            return
        except BaseException as error:
            for result in _not_done(batch):
                result.set_exception(error) if isinstance(error, Exception) else result.cancel()
            raise
        for (_, result), value in zip(batch, values, strict=False):
            if not result.done():
                result.set_result(value)
        self._waiting.extendleft(reversed(batch[len(values) :]))  # not run: they go first in the next request


def _not_done(batch: list[_Pending]) -> list[asyncio.Future[Any]]:
    return [result for _, result in batch if not result.done()]
