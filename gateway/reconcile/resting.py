"""Backends that do not do what they are asked are left alone for a while, longer each time. Pure but for its clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

FIRST_SECONDS = 1.0
MOST_SECONDS = 60.0


class Resting:
    """Which backends rest, and why."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}
        self._seconds: dict[int, float] = {}
        self.words: dict[int, str] = {}
        """What the last trouble with each was."""

    def trouble(self, place: int, word: str) -> bool:
        """It rests from now on. Answers whether it did not yet: many hear of the same trouble at once."""
        if place in self:
            return False
        seconds = min(MOST_SECONDS, 2 * self._seconds[place]) if place in self._seconds else FIRST_SECONDS
        self._seconds[place] = seconds
        self._until[place] = self._clock() + seconds
        self.words[place] = word
        return True

    def well(self, places: Iterable[int]) -> None:
        """They did what they were asked."""
        if not self._seconds:
            return
        for place in places:
            self._seconds.pop(place, None)
            self._until.pop(place, None)
            self.words.pop(place, None)

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, place: int) -> bool:
        return self._until.get(place, 0.0) > self._clock()
