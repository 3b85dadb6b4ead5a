"""Many items in one command: what is handed in while a command is on its way goes with the next one.

The committer makes each command that comes alone durable by itself, and those of clients wait meanwhile; so where
nothing hangs on an item's moment, others are waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from gateway.blocks.protocols import WorkerJournal

ITEMS = 128
"""Of one command: so that it holds up nobody else's."""

T = TypeVar("T")


async def _one_turn() -> None:
    """Items of the same turn of the event loop go together."""
    await asyncio.sleep(0)


class Batching(Generic[T]):
    """Sends items of one kind. For one event loop."""

    def __init__(
        self,
        journal: WorkerJournal,
        command: Callable[[tuple[T, ...]], Any],
        gather: Callable[[], Awaitable[None]] = _one_turn,
    ) -> None:
        """*gather*: awaited before the first item is sent, so that others come along."""
        self._journal = journal
        self._command = command
        self._gather = gather
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
        await self._gather()
        while self._waiting:
            some, self._waiting = self._waiting[:ITEMS], self._waiting[ITEMS:]
            some = [(item, answer) for item, answer in some if not answer.done()]  # nobody hangs on the others any more
            if not some:
                continue
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
