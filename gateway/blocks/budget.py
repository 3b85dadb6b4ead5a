"""The bytes in flight: one budget for a process, from which each body and each read-ahead acquires bytes before it
buffers them.

Users take turns when they have to wait, so a user with many bodies under way does not delay the others.

Rule: a caller that waits for bytes holds none, except bytes that are released without it (blocks that are being
stored). So there is always a caller that can go on, and no circle of callers that wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager

from gateway.errors import Busy
from gateway.journal.turns import FairQueue

BACKGROUND = ""
"""The user for a process's own work."""


class Budget:
    """A semaphore of bytes. Users that wait take turns. For one event loop."""

    __slots__ = ("_waiters", "limit", "on_wait", "peak", "used")

    def __init__(self, limit: int) -> None:
        """Raises `ValueError` for a *limit* (in bytes) of less than 1."""
        if limit <= 0:
            raise ValueError(f"a budget must have at least one byte, not {limit}")
        self.limit = limit
        """Bytes."""
        self.used = 0
        """Bytes that are acquired and not released; never above `limit`."""
        self.peak = 0
        """The greatest `used` so far."""
        self.on_wait: Callable[[], None] = _do_nothing
        """Called each time that a caller has to wait."""
        self._waiters: FairQueue[tuple[int, asyncio.Future[None]]] = FairQueue()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that callers wait for."""
        return sum(count for count, _ in self._waiters)

    def acquire_now(self, count: int) -> bool:
        """Acquire *count* bytes if they are free and nobody waits. Returns whether it did."""
        if self._waiters or self.used + count > self.limit:
            return False
        self._add(count)
        return True

    async def acquire(self, count: int, within_seconds: float | None = None, user: Hashable = BACKGROUND) -> None:
        """Acquire *count* bytes. Waits for them up to *within_seconds*, or without limit: after earlier calls of
        *user*, and in turns with other users.

        Raises `Busy` if the time is over, and `ValueError` for a *count* above the limit."""
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
        """Release *count* bytes."""
        self.used -= count
        assert self.used >= 0, "more bytes were released than acquired"
        self._grant()

    @asynccontextmanager
    async def charged(
        self, size: int, within_seconds: float | None = None, user: Hashable = BACKGROUND
    ) -> AsyncIterator[None]:
        """Hold *size* bytes inside the context, or the whole limit if *size* is more. Waits and raises as `acquire`."""
        count = min(self.limit, size)
        await self.acquire(count, within_seconds, user)
        try:
            yield
        finally:
            self.release(count)

    def _add(self, count: int) -> None:
        self.used += count
        self.peak = max(self.peak, self.used)

    def _grant(self) -> None:
        while self._waiters:
            count, granted = self._waiters.first()
            if granted.done():
                return  # cancelled: its own task removes it, and calls this again
            if self.used + count > self.limit:
                return
            self._waiters.pop()
            self._add(count)
            granted.set_result(None)


def _do_nothing() -> None:
    pass
