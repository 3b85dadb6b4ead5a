"""Backends that answer only when a test lets them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from backends.base import Buffer
from backends.testing.memory import Memory


class Gated(Memory):
    """Has nothing at hand, and answers reads only while its gate is open. Counts them."""

    def __init__(self, name: str = "gated", *, is_open: bool = True) -> None:
        super().__init__(name)
        self.gate = asyncio.Event()
        if is_open:
            self.gate.set()
        self.gets = 0
        self.cancelled = 0

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        return None

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        self.gets += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().get(key, start, length)


class Silent(Memory):
    """Answers its first *answered* puts, and the others only once `answers` is set."""

    def __init__(self, name: str, answered: int = 0) -> None:
        super().__init__(name)
        self._answered = answered
        self.answers = asyncio.Event()
        self.puts = 0

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        self.puts += 1
        if self.puts > self._answered:
            await self.answers.wait()
        await super().put(key, value, crc32c)
