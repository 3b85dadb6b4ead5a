"""Queues that serve users round-robin, so that one user who waits for many things does not delay others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from gateway.errors import Busy

T = TypeVar("T")


class FairQueue(Generic[T]):
    """One queue per user. The users take turns; what one user has added is first come, first served. Pure.

    Items are told apart by identity. Removing one takes the same time however many there are: thousands of tasks that
    wait may be cancelled at once."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, OrderedDict[int, T]] = {}
        """By user, and then by `id`; the user whose turn is next comes first. None is empty."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return (item for line in self._lines.values() for item in line.values())

    def count(self, user: Hashable) -> int:
        """How many items of *user* are in the queue."""
        return len(self._lines.get(user, ()))

    def push(self, user: Hashable, item: T) -> None:
        """Add *item*, which is not in the queue, behind the other items of *user*."""
        self._lines.setdefault(user, OrderedDict())[id(item)] = item
        self._count += 1

    def first(self) -> T:
        """The item that `pop` returns. The queue must not be empty."""
        return next(iter(next(iter(self._lines.values())).values()))

    def pop(self) -> T:
        """Remove and return the first item of the user whose turn it is. That user's next item then waits until each
        other user in the queue has had a turn. The queue must not be empty."""
        user, line = next(iter(self._lines.items()))
        del self._lines[user]
        _, item = line.popitem(last=False)
        if line:
            self._lines[user] = line
        self._count -= 1
        return item

    def remove(self, user: Hashable, item: T) -> bool:
        """Remove *item* of *user*. Returns False if it is not in the queue."""
        line = self._lines.get(user)
        if line is None or id(item) not in line:
            return False
        del line[id(item)]
        if not line:
            del self._lines[user]
        self._count -= 1
        return True

    def clear(self) -> None:
        """Remove all items."""
        self._lines.clear()
        self._count = 0


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
        self._queue: FairQueue[asyncio.Future[T]] = FairQueue()

    @property
    def free(self) -> int:
        """How many things are in the pool now."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """How many tasks wait for a thing."""
        return len(self._queue)

    async def acquire(self, user: Hashable, wait_seconds: float) -> T:
        """Take a thing from the pool, or wait for one. Raises `Busy` if too many tasks wait already, or if *user* gets
        none within *wait_seconds*."""
        return self._free.popleft() if self._free else await self._turn(user, wait_seconds)

    def release(self, thing: T) -> None:
        """Hand *thing* to the task whose turn it is. Were it put back, a task that never waited might take it first."""
        while self._queue:
            turn = self._queue.pop()
            if not turn.done():
                turn.set_result(thing)
                return
        self._free.append(thing)

    async def _turn(self, user: Hashable, wait_seconds: float) -> T:
        if self._queue.count(user) + 1 > self._waiters_max - len(self._queue):
            raise Busy(self._what)
        turn: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.push(user, turn)
        try:
            async with asyncio.timeout(wait_seconds):
                return await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.release(turn.result())
            else:
                self._queue.remove(user, turn)
            if isinstance(error, TimeoutError):
                raise Busy(self._what) from None
            raise
