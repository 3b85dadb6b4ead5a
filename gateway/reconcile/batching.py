"""Sends many items in one command: items that are handed in while a command is under way go with the next one.

The committer commits a command that arrives alone by itself, with an fsync, and the commands of clients wait meanwhile.
So items that are not urgent wait for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from gateway.blocks.protocols import WorkerJournal

ITEMS = 128
"""Most items of one command, so that it does not delay other commands."""

T = TypeVar("T")


async def _one_turn() -> None:
    """Gather the items of the same turn of the event loop."""
    await asyncio.sleep(0)


class CommandBatcher(Generic[T]):
    """Sends items of one kind in commands of one class. For one event loop."""

    def __init__(
        self,
        journal: WorkerJournal,
        command: Callable[[tuple[T, ...]], Any],
        gather: Callable[[], Awaitable[None]] = _one_turn,
    ) -> None:
        """*gather* is awaited before the first item is sent, so that others can join it."""
        self._journal = journal
        self._command = command
        self._gather = gather
        self._waiting: list[tuple[T, asyncio.Future[Any]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def send(self, item: T) -> Any:
        """Send *item*. Returns the item's own answer if the command returns a sequence, one answer for each item;
        otherwise what the command returned. Raises what the command raised."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        return await answer

    async def _send(self) -> None:
        await self._gather()
        while self._waiting:
            batch, self._waiting = self._waiting[:ITEMS], self._waiting[ITEMS:]
            batch = [
                (item, answer) for item, answer in batch if not answer.done()
            ]  # the callers of the others were cancelled
            if not batch:
                continue
            try:
                answers = await self._journal.send(self._command(tuple(item for item, _ in batch)))
            except Exception as error:  # noqa: BLE001 (each caller gets it)
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            each = answers if isinstance(answers, Sequence) else [answers] * len(batch)
            for (_, answer), value in zip(batch, each, strict=True):
                if not answer.done():
                    answer.set_result(value)
