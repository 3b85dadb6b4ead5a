"""Many items in one command: what is handed in while a command is on its way goes with the next one.

The foreground comes first: where a command takes longer than one does that waits for nobody else, the committer is busy
with theirs, or ours is a burden to it. Then the next command is put off, in proportion, and more goes with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from gateway.blocks.working import Journal

ITEMS = 32
"""Of one command: so that it holds up nobody else's for more than a few milliseconds."""
ALONE_SECONDS = 0.004
"""What such a command takes where the committer has nothing else to do."""
REST = 3.0
"""How many times as long as it took beyond that the next one is put off."""
REST_SECONDS_MAX = 1.0

T = TypeVar("T")


class Batching(Generic[T]):
    """Sends items of one kind. For one event loop."""

    def __init__(
        self,
        journal: Journal,
        command: Callable[[tuple[T, ...]], Any],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """*clock* and *sleep* are the world's, but for tests."""
        self._journal = journal
        self._command = command
        self._clock, self._sleep = clock, sleep
        self._waiting: list[tuple[T, asyncio.Future[Any]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def send(self, item: T) -> Any:
        """The item's own answer, where the command answers one for each; else what it answered for all. Raises what
        the command was refused with."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        return await answer

    async def _send(self) -> None:
        await asyncio.sleep(0)  # those of the same turn of the loop go together
        while self._waiting:
            some, self._waiting = self._waiting[:ITEMS], self._waiting[ITEMS:]
            began = self._clock()
            try:
                answers = await self._journal.send(self._command(tuple(item for item, _ in some)))
            except Exception as error:  # noqa: BLE001 (each caller hears it)
                for _, answer in some:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            each = answers if isinstance(answers, Sequence) else [answers] * len(some)
            for (_, answer), value in zip(some, each, strict=True):
                if not answer.done():
                    answer.set_result(value)
            beyond = self._clock() - began - ALONE_SECONDS
            if beyond > 0:
                await self._sleep(min(REST_SECONDS_MAX, REST * beyond))
