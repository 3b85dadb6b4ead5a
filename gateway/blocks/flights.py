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


class Flight(Generic[T]):
    """One fetch under way, or landed."""

    def __init__(self, task: asyncio.Task[T], budget: Budget | None, charge: int) -> None:
        self.task = task
        self.aboard = 0
        self._budget = budget
        self._charge = charge

    def end(self) -> None:
        """Nobody is aboard any more."""
        if not self.task.done():
            self.task.cancel()
        if self._budget is not None:
            self._budget.give(self._charge)


class Ticket(Generic[T]):
    """One reader's place on a flight. `leave` exactly when done with what was brought; twice does no harm."""

    __slots__ = ("_flight", "_flights", "_key", "_waiter", "joined")

    def __init__(self, flights: Flights[T], key: Hashable, flight: Flight[T], *, joined: bool) -> None:
        self.joined = joined
        """Somebody else started the flight, and had it charged."""
        self._flights = flights
        self._key = key
        self._flight: Flight[T] | None = flight
        self._waiter: asyncio.Future[None] | None = None
        flight.aboard += 1

    async def landed(self) -> T:
        """What was brought. Being cancelled here disturbs nobody else."""
        flight = self._flight
        assert flight is not None, "who left does not wait"
        task = flight.task
        if not task.done():
            self._waiter = asyncio.get_running_loop().create_future()
            task.add_done_callback(self._wake)
            try:
                await self._waiter
            finally:
                task.remove_done_callback(self._wake)
                self._waiter = None
        return task.result()

    @property
    def brought(self) -> T:
        """As `landed`, which has answered."""
        assert self._flight is not None, "who left has nothing"
        return self._flight.task.result()

    def _wake(self, _task: asyncio.Task[T]) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def leave(self) -> None:
        """Let go of what was brought."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.aboard -= 1
            if not flight.aboard:
                self._flights.forget(self._key, flight)
                flight.end()

    def refuse(self) -> None:
        """What was brought is no good: whoever asks from now on starts another flight."""
        if self._flight is not None:
            self._flights.forget(self._key, self._flight)


class Flights(Generic[T]):
    """Those that somebody is aboard of, by what they bring."""

    def __init__(self, is_good: Callable[[T], bool]) -> None:
        """*is_good*: whether who comes later should get that too."""
        self._is_good = is_good
        self._known: dict[Hashable, Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def board(
        self,
        key: Hashable,
        fetch: Callable[[], Coroutine[Any, Any, T]],
        budget: Budget | None = None,
        charge: int = 0,
    ) -> Ticket[T] | None:
        """A place on the flight that brings *key*; *fetch* starts it if there is none yet, which takes *charge* bytes
        of *budget*. None where these are not to be had."""
        flight = self._known.get(key)
        if flight is not None:
            return Ticket(self, key, flight, joined=True)
        if budget is not None and not budget.take_now(charge):
            return None
        flight = self._known[key] = Flight(asyncio.create_task(fetch()), budget, charge)
        started = flight
        flight.task.add_done_callback(lambda task: self._landed(key, started, task))
        return Ticket(self, key, flight, joined=False)

    def forget(self, key: Hashable, flight: Flight[T]) -> None:
        """Nobody boards this one from here on."""
        if self._known.get(key) is flight:
            del self._known[key]

    def _landed(self, key: Hashable, flight: Flight[T], task: asyncio.Task[T]) -> None:
        if task.cancelled() or task.exception() is not None or not self._is_good(task.result()):
            self.forget(key, flight)
