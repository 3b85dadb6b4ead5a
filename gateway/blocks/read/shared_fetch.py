"""One fetch for all who want the same bytes at that time. For one event loop.

Whoever wants them boards the flight, waits for it to land, and leaves when done with what it brought. The flight lives
while somebody is aboard: one who is cancelled leaves and disturbs nobody, and the last to leave calls it off. What it
brought is charged to the budget once, and who comes while somebody still holds it gets it at once. A flight that did
not bring what was wanted tells all who are aboard, and the next to ask starts another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from gateway.blocks.budget import Budget

T = TypeVar("T")


class SharedFetch(Generic[T]):
    """One fetch under way, or landed."""

    __slots__ = ("_budget", "_charge", "_is_good", "_known", "aboard", "key", "task", "waiting")

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
        self.task = asyncio.get_running_loop().create_task(self._fly(fetch))
        self.aboard = 0
        self.waiting: list[asyncio.Future[None]] = []
        self._known = known
        self._is_good = is_good
        self._budget = budget
        self._charge = charge

    def forget(self) -> None:
        """Nobody boards from here on."""
        if self._known.get(self.key) is self:
            del self._known[self.key]

    def end(self) -> None:
        """Nobody is aboard any more."""
        self.forget()
        if not self.task.done():
            self.task.cancel()
        if self._budget is not None:
            self._budget.release(self._charge)

    async def _fly(self, fetch: Callable[[], Coroutine[Any, Any, T]]) -> T:
        found: T | None = None
        try:
            found = await fetch()
            return found
        finally:
            # Woken here and not by a callback of the task, so that a reader goes on a turn of the loop earlier.
            if found is None or not self._is_good(found):
                self.forget()
            for waiter in self.waiting:
                if not waiter.done():
                    waiter.set_result(None)


class FetchHandle(Generic[T]):
    """One reader's place on a flight. `leave` when done with what was brought; twice does no harm."""

    __slots__ = ("_flight", "joined")

    def __init__(self, flight: SharedFetch[T], *, joined: bool) -> None:
        self.joined = joined
        """Somebody else started the flight, and had it charged."""
        self._flight: SharedFetch[T] | None = flight
        flight.aboard += 1

    async def result(self) -> T:
        """What was brought. Being cancelled here disturbs nobody else."""
        flight = self._flight
        assert flight is not None, "who left does not wait"
        task = flight.task
        if not task.done():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            flight.waiting.append(waiter)
            await waiter
        return task.result()

    @property
    def brought(self) -> T:
        """As `result`, which has answered."""
        assert self._flight is not None, "who left has nothing"
        return self._flight.task.result()

    def leave(self) -> None:
        """Let go of what was brought."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.aboard -= 1
            if not flight.aboard:
                flight.end()

    def refuse(self) -> None:
        """What was brought is no good: whoever asks from now on starts another flight."""
        if self._flight is not None:
            self._flight.forget()


class SharedFetches(Generic[T]):
    """Those that somebody is aboard of, by what they bring."""

    def __init__(self, is_good: Callable[[T], bool]) -> None:
        """*is_good*: whether who comes later should get that too."""
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
        """A place on the flight that brings *key*; *fetch* starts it if there is none yet, which takes *charge* bytes
        of *budget*. None where these are not to be had."""
        flight = self._known.get(key)
        if flight is not None:
            return FetchHandle(flight, joined=True)
        if budget is not None and not budget.acquire_now(charge):
            return None
        flight = self._known[key] = SharedFetch(key, fetch, self._known, self._is_good, budget, charge)
        return FetchHandle(flight, joined=False)
