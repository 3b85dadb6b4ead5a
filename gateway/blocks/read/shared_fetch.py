"""One fetch for all readers that want the same bytes at the same time. For one event loop.

A reader joins the fetch of a key, waits for its result, and releases its handle when it is done with the result.

- A fetch is *running* or *done*. It is cancelled, or its result dropped, when its last handle is released. A reader
  that is cancelled releases its own handle only, so it does not disturb the others.
- A fetch is *known* while later readers may join it, and then they get its result at once if it is done. It stops being
  known when it fails, when its result is not good, when a reader finds the result bad (`invalidate`), or when its last
  handle is released. Readers that hold a handle keep the result all the same.
- A fetch is charged to the budget of the reader that started it, once, until its last handle is released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from gateway.blocks.budget import Budget

T = TypeVar("T")


class SharedFetch(Generic[T]):
    """One fetch, running or done."""

    __slots__ = ("_budget", "_charge", "_is_good", "_known", "handles", "key", "task", "waiters")

    def __init__(
        self,
        key: Hashable,
        fetch: Callable[[], Coroutine[Any, Any, T]],
        known: dict[Hashable, SharedFetch[T]],
        is_good: Callable[[T], bool],
        budget: Budget | None,
        charge: int,
    ) -> None:
        self.key = key
        self.task = asyncio.get_running_loop().create_task(self._run(fetch))
        self.handles = 0
        self.waiters: list[asyncio.Future[None]] = []
        self._known = known
        self._is_good = is_good
        self._budget = budget
        self._charge = charge

    def forget(self) -> None:
        """Let no other reader join."""
        if self._known.get(self.key) is self:
            del self._known[self.key]

    def close(self) -> None:
        """The last handle was released: cancel the fetch, and give back its charge."""
        self.forget()
        if not self.task.done():
            self.task.cancel()
        if self._budget is not None:
            self._budget.release(self._charge)

    async def _run(self, fetch: Callable[[], Coroutine[Any, Any, T]]) -> T:
        result: T | None = None
        try:
            result = await fetch()
            return result
        finally:
            # Waiters are woken here and not by a callback of the task, so that they go on a turn of the loop earlier.
            if result is None or not self._is_good(result):
                self.forget()
            for waiter in self.waiters:
                if not waiter.done():
                    waiter.set_result(None)


class FetchHandle(Generic[T]):
    """One reader's share of a fetch. `release` it when done with the result; a second call does nothing."""

    __slots__ = ("_fetch", "is_joined")

    def __init__(self, fetch: SharedFetch[T], *, is_joined: bool) -> None:
        self.is_joined = is_joined
        """Another reader started the fetch, and was charged for it."""
        self._fetch: SharedFetch[T] | None = fetch
        fetch.handles += 1

    async def result(self) -> T:
        """Wait for the result. Raises what the fetch raised. A cancellation here does not affect other readers."""
        fetch = self._fetch
        assert fetch is not None, "the handle was released"
        task = fetch.task
        if not task.done():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            fetch.waiters.append(waiter)
            await waiter
        return task.result()

    @property
    def value(self) -> T:
        """The result, which `result` has returned before."""
        assert self._fetch is not None, "the handle was released"
        return self._fetch.task.result()

    def release(self) -> None:
        """The reader is done with the result."""
        fetch, self._fetch = self._fetch, None
        if fetch is not None:
            fetch.handles -= 1
            if not fetch.handles:
                fetch.close()

    def invalidate(self) -> None:
        """The result is bad: readers that come later start another fetch."""
        if self._fetch is not None:
            self._fetch.forget()


class SharedFetches(Generic[T]):
    """The fetches that may be joined, by key."""

    def __init__(self, is_good: Callable[[T], bool]) -> None:
        """*is_good* returns whether a result may be given to readers that come later."""
        self._is_good = is_good
        self._known: dict[Hashable, SharedFetch[T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def join(
        self,
        key: Hashable,
        fetch: Callable[[], Coroutine[Any, Any, T]],
        budget: Budget | None = None,
        charge: int = 0,
    ) -> FetchHandle[T] | None:
        """Join the fetch of *key*, or start one with *fetch*, which acquires *charge* bytes of *budget*.

        Returns None if a new fetch is needed, and the budget does not have that many bytes now."""
        known = self._known.get(key)
        if known is not None:
            return FetchHandle(known, is_joined=True)
        if budget is not None and not budget.acquire_now(charge):
            return None
        started = self._known[key] = SharedFetch(key, fetch, self._known, self._is_good, budget, charge)
        return FetchHandle(started, is_joined=False)
