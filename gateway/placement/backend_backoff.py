"""What does not do what it is asked is left alone for a while, longer each time. Pure but for its clock.

Usually that is a backend. It is then tried with one block at a time until it does what it is asked. So a backend that
is still in trouble costs a few requests each time, and holds up few of the blocks that could go elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from gateway.timing import Clock

REJECTED_BLOCKS = 4
"""Of so many blocks in a row it was said that they are not what was sent: then it is no block's fault."""


K = TypeVar("K", bound=Hashable)


class BackendBackoff(Generic[K]):
    """Which backends (or whatever else the caller asks) are in trouble, which of them rest, and why."""

    def __init__(self, clock: Clock, first_seconds: float, most_seconds: float) -> None:
        """*first_seconds*: how long one rests after its first trouble; twice as long after each next one, up to
        *most_seconds*."""
        self.clock = clock.monotonic
        self._first_seconds, self._most_seconds = first_seconds, most_seconds
        self._until: dict[K, float] = {}
        self._seconds: dict[K, float] = {}
        self._since: dict[K, float] = {}
        self._trying: dict[K, bytes] = {}
        self._odd: dict[K, set[bytes]] = {}
        self._words: dict[K, str] = {}

    def record_failure(self, place: K, word: str, asked_seconds: float | None = None) -> bool:
        """It rests from now on, *asked_seconds* at least, if the place asked for that. Answers whether it did not yet:
        many hear of the same trouble at once."""
        self._words[place] = word
        if place in self:
            return False
        seconds = 2 * self._seconds[place] if place in self._seconds else self._first_seconds
        seconds = self._seconds[place] = min(self._most_seconds, max(seconds, asked_seconds or 0.0))
        self._since[place] = self.clock()
        self._until[place] = self._since[place] + seconds
        return True

    def record_rejection(self, place: K, block: bytes) -> bool:
        """It says that *block* is not what was sent. Answers whether that is to be taken for its own trouble: it said
        so of many, and stored none in between."""
        found = self._odd.setdefault(place, set())
        if len(found) < REJECTED_BLOCKS:
            found.add(block)
        return len(found) >= REJECTED_BLOCKS

    def record_success(self, places: Iterable[K], began: float | None = None) -> None:
        """They did what they were asked at *began* (by the clock): what was begun before the trouble says nothing."""
        for place in places:
            self._odd.pop(place, None)
            if place in self._seconds and (began is None or began >= self._since[place]):
                del self._seconds[place], self._until[place], self._since[place], self._words[place]
                self._trying.pop(place, None)

    def allows(self, place: K, block: bytes) -> bool:
        """Whether *block* may be tried there now."""
        return place not in self._seconds or (place not in self and self._trying.get(place, block) == block)

    def start_trial(self, places: Iterable[K], block: bytes) -> None:
        """*block* is tried there, and no other until `end_trial`, where there was trouble."""
        for place in places:
            if place in self._seconds:
                self._trying.setdefault(place, block)

    def end_trial(self, block: bytes) -> None:
        """*block* is not tried any more."""
        for place in [place for place, trying in self._trying.items() if trying == block]:
            del self._trying[place]

    def reasons(self) -> dict[K, str]:
        """What the last trouble with each was; of those that nobody has asked for long, nothing."""
        latest = self.clock() - 2 * self._most_seconds
        return {place: word for place, word in self._words.items() if latest < self._until[place]}

    def paused(self) -> list[K]:
        """Those that rest at this moment."""
        return [place for place in self._until if place in self]

    def __len__(self) -> int:
        return len(self._seconds)

    def __contains__(self, place: K) -> bool:
        return self._until.get(place, 0.0) > self.clock()
