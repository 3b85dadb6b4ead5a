"""Bytes in flight: one budget a process, from which every body and every read-ahead takes before it buffers.

Users take turns where they have to wait, so that one with many bodies under way does not keep another one waiting.

Rule: whoever waits for bytes holds none but those that come back by themselves (blocks being stored). So there is
always somebody who can go on, and nobody waits in a ring.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager

from gateway.errors import Busy
from gateway.journal.turns import FairQueue

BACKGROUND = ""
"""The user in whose name a process does its own work."""


class Budget:
    """A semaphore of bytes, which waiting users get in turns. For one event loop."""

    __slots__ = ("_waiters", "limit", "on_wait", "peak", "used")

    def __init__(self, limit: int) -> None:
        if limit <= 0:
            raise ValueError(f"a budget has at least one byte, not {limit}")
        self.limit = limit
        """Bytes."""
        self.used = 0
        """Bytes taken and not given back; never above `limit`."""
        self.peak = 0
        """The greatest `used` so far."""
        self.on_wait: Callable[[], None] = _nothing
        """Called whenever somebody has to wait."""
        self._waiters: FairQueue[tuple[int, asyncio.Future[None]]] = FairQueue()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are waited for."""
        return sum(count for count, _ in self._waiters)

    def acquire_now(self, count: int) -> bool:
        """Take *count* bytes if they are free and nobody waits for some."""
        if self._waiters or self.used + count > self.limit:
            return False
        self._taken(count)
        return True

    async def acquire(self, count: int, within_seconds: float | None = None, user: Hashable = BACKGROUND) -> None:
        """Take *count* bytes. Waits for them for *within_seconds*, or as long as it takes: behind what *user* asked for
        before, and in turns with other users. A count above the limit is a `ValueError`. Raises `Busy`."""
        if count > self.limit:
            raise ValueError(f"{count} bytes never fit into a budget of {self.limit}")
        if self.acquire_now(count):
            return
        try:
            async with asyncio.timeout(within_seconds):
                await self._wait(count, user)
        except TimeoutError:
            raise Busy("bytes in flight") from None

    async def _wait(self, count: int, user: Hashable) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = count, granted
        self._waiters.push(user, waiter)
        self.on_wait()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(count)
            else:
                self._waiters.remove(user, waiter)
                self._grant()
            raise

    def release(self, count: int) -> None:
        """Give *count* bytes back."""
        self.used -= count
        assert self.used >= 0, "more bytes came back than were taken"
        self._grant()

    @asynccontextmanager
    async def charged(
        self, size: int, within_seconds: float | None = None, user: Hashable = BACKGROUND
    ) -> AsyncIterator[None]:
        """Hold *size* bytes for as long as the block runs, or all that there are where *size* is more than the limit.
        Waits for them as `acquire` does. Raises `Busy`."""
        count = min(self.limit, size)
        await self.acquire(count, within_seconds, user)
        try:
            yield
        finally:
            self.release(count)

    def _taken(self, count: int) -> None:
        self.used += count
        self.peak = max(self.peak, self.used)

    def _grant(self) -> None:
        while self._waiters:
            count, granted = self._waiters.first()
            if granted.done():
                return  # cancelled: it takes itself away
            if self.used + count > self.limit:
                return
            self._waiters.pop()
            self._taken(count)
            granted.set_result(None)


def _nothing() -> None:
    pass
