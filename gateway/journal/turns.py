"""Waiting by turns: users who wait for the same thing get it one after the other, however often one of them waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from gateway.errors import Busy

T = TypeVar("T")


class Turns(Generic[T]):
    """Things that are handed out one at a time. For one event loop.

    Those of one user wait in a line of their own; a thing that becomes free goes to the first in the line of the user
    whose turn it is, and that user's next one waits for all others. At most *waiters_max* wait, and of one user as many
    as there is room for still: so one user alone never keeps others from waiting."""

    def __init__(self, things: deque[T], waiters_max: int, what: str) -> None:
        """*what* there are too many of, for the text of `Busy`."""
        self._free = things
        self._waiters_max = waiters_max
        self._what = what
        self._lines: dict[Hashable, deque[asyncio.Future[T]]] = {}
        """In the order of their turns."""
        self._waiting = 0

    @property
    def free(self) -> int:
        """How many nobody has."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return self._waiting

    async def take(self, user: Hashable, wait_seconds: float) -> T:
        """A thing that is free. Raises `Busy` where too many wait already, or none becomes free within
        *wait_seconds*."""
        return self._free.popleft() if self._free else await self._turn(user, wait_seconds)

    def release(self, thing: T) -> None:
        """Hand *thing* to whose turn it is: if it were laid down, somebody who never waited might take it first."""
        while self._lines:
            user, line = next(iter(self._lines.items()))
            del self._lines[user]
            turn = line.popleft()
            self._waiting -= 1
            if line:
                self._lines[user] = line
            if not turn.done():
                turn.set_result(thing)
                return
        self._free.append(thing)

    async def _turn(self, user: Hashable, wait_seconds: float) -> T:
        line = self._lines.get(user, deque())
        if len(line) + 1 > self._waiters_max - self._waiting:
            raise Busy(self._what)
        turn: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(user, line).append(turn)
        self._waiting += 1
        try:
            async with asyncio.timeout(wait_seconds):
                return await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.release(turn.result())
            else:
                self._leave(user, turn)
            if isinstance(error, TimeoutError):
                raise Busy(self._what) from None
            raise

    def _leave(self, user: Hashable, turn: asyncio.Future[T]) -> None:
        line = self._lines.get(user)
        if line is not None and turn in line:
            line.remove(turn)
            self._waiting -= 1
            if not line:
                del self._lines[user]
