"""Queues that serve users round-robin, so that a user with many requests does not delay the others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from gateway.errors import Busy

T = TypeVar("T")


class FairQueue(Generic[T]):
    """One queue per user. The users take turns; the items of one user are served in the order in which they were added.
    Pure.

    Items are distinguished by identity. `remove` takes constant time, since thousands of waiting tasks may be cancelled
    at once."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, OrderedDict[int, T]] = {}
        """By user, and then by `id`. The user whose turn is next comes first. No queue is empty."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return (item for queue in self._queues.values() for item in queue.values())

    def count(self, user: Hashable) -> int:
        """How many items of *user* are in the queue."""
        return len(self._queues.get(user, ()))

    def push(self, user: Hashable, item: T) -> None:
        """Add *item*, which must not be in the queue, after the other items of *user*."""
        self._queues.setdefault(user, OrderedDict())[id(item)] = item
        self._count += 1

    def first(self) -> T:
        """The item that `pop` returns. The queue must not be empty."""
        return next(iter(next(iter(self._queues.values())).values()))

    def pop(self) -> T:
        """Remove and return the first item of the user whose turn it is. That user's next item then waits until each
        other user in the queue has had a turn. The queue must not be empty."""
        user, queue = next(iter(self._queues.items()))
        del self._queues[user]
        _, item = queue.popitem(last=False)
        if queue:
            self._queues[user] = queue
        self._count -= 1
        return item

    def remove(self, user: Hashable, item: T) -> bool:
        """Remove *item* of *user*. Returns False if it is not in the queue."""
        queue = self._queues.get(user)
        if queue is None or id(item) not in queue:
            return False
        del queue[id(item)]
        if not queue:
            del self._queues[user]
        self._count -= 1
        return True

    def clear(self) -> None:
        """Remove all items."""
        self._queues.clear()
        self._count = 0


class Turns(Generic[T]):
    """A pool of things, each acquired by one task at a time, with one queue per user. For one event loop.

    A thing that becomes free goes to the first task in the queue of the user whose turn it is. That user's next task
    then waits until each other waiting user has had a turn. At most *waiters_max* tasks wait. One user's queue may be
    at most as long as the number of waiters that is left, so one user alone never keeps others from waiting."""

    def __init__(self, things: deque[T], waiters_max: int, what: str) -> None:
        """*things* are free at first. *what* is the text of `Busy`: it names what there are too many of."""
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
        """Return a thing from the pool, or wait for one. Raises `Busy` if too many tasks wait already, or if *user*
        gets none within *wait_seconds*."""
        return self._free.popleft() if self._free else await self._wait(user, wait_seconds)

    def release(self, thing: T) -> None:
        """Return *thing*: pass it to the task whose turn it is. If it went back into the pool first, a task that has
        not waited might acquire it before that one."""
        while self._queue:
            turn = self._queue.pop()
            if not turn.done():
                turn.set_result(thing)
                return
        self._free.append(thing)

    async def _wait(self, user: Hashable, wait_seconds: float) -> T:
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
