"""Backends that tests hold up: a gate, and what went through it."""

from __future__ import annotations

import asyncio

from backends.base import Buffer
from backends.memory import Memory


class Gated(Memory):
    """Has nothing at hand, and answers a read once its gate is open."""

    def __init__(self, name: str = "gated", *, is_open: bool = True) -> None:
        super().__init__(name)
        self.gate = asyncio.Event()
        if is_open:
            self.gate.set()
        self.asked = 0
        self.cancelled = 0

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        return None

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        self.asked += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().get(key, start, length)


async def until(true: object, seconds: float = 60.0) -> None:
    """Wait until *true* answers so."""
    async with asyncio.timeout(seconds):
        while not true():  # type: ignore[operator]
            await asyncio.sleep(0.001)
