"""A pool of resources that waiting users get round-robin, so that one user with many waiters does not delay others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from gateway.errors import Busy

T = TypeVar("T")


class Turns(Generic[T]):
    """A pool of things, each lent to one task at a time, with one queue per user. For one event loop.

    A thing that becomes free goes to the first task in the queue of the user whose turn it is. That user's next task
    then waits until each other waiting user has had a turn. At most *waiters_max* tasks wait. One user's queue may be
    at most as long as the room that is left, so one user alone never keeps others from waiting."""

    def __init__(self, things: deque[T], waiters_max: int, what: str) -> None:
        """*things* are free at first. *what* is the text of `Busy`: it says what there are too many of."""
        self._free = things
        self._waiters_max = waiters_max
        self._what = what
        self._lines: dict[Hashable, deque[asyncio.Future[T]]] = {}
        """The queue of each user who waits. The user whose turn is next comes first."""
        self._waiting = 0

    @property
    def free(self) -> int:
        """How many things are in the pool now."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """How many tasks wait for a thing."""
        return self._waiting

    async def take(self, user: Hashable, wait_seconds: float) -> T:
        """Take a thing from the pool, or wait for one. Raises `Busy` if too many tasks wait already, or if *user* gets
        none within *wait_seconds*."""
        return self._free.popleft() if self._free else await self._turn(user, wait_seconds)

    def release(self, thing: T) -> None:
        """Hand *thing* to the task whose turn it is. Were it put back, a task that never waited might take it first."""
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
