"""An edit of the config that was refused: whether the reason may pass by itself, and when the edit is tried again.

What the file says is wrong stays wrong until it is edited again. What the world says (a bucket that does not answer, a
name that is not resolved, a folder that is not mounted, a block that has yet to leave) may be otherwise in a moment,
and nobody should have to touch the file for that. Pure but for its clock.
"""

from __future__ import annotations

from typing import Any

from gateway.errors import TemporarilyRejected
from gateway.timing import Timing

__all__ = ["Refusals", "TemporarilyRejected"]


class Refusals:
    """What was refused last, if it has not been taken over since."""

    def __init__(self, timing: Timing) -> None:
        self._clock = timing.clock.monotonic
        self._pauses = timing.reload
        self.why = ""
        """Empty while the file is what is in force."""
        self.tries = 0
        self._pause = 0.0
        self._again: float | None = None

    def refused(self, why: str, *, passing: bool, anew: bool) -> bool:
        """It was refused; *passing*: the reason may pass; *anew*: the edit is another one, or somebody asked for it.
        Answers whether to say so aloud: not at each try."""
        news = anew or not self.tries or not passing
        self._pause = (
            self._pauses.refused_first_seconds if news else min(self._pauses.refused_most_seconds, 2 * self._pause)
        )
        self.tries = 1 if anew else self.tries + 1
        self.why = why
        self._again = self._clock() + self._pause if passing else None
        return news

    def over(self) -> None:
        """What the file says is in force."""
        self.why, self.tries, self._again = "", 0, None

    @property
    def due(self) -> bool:
        """It is time to try the same edit again."""
        return self._again is not None and self._clock() >= self._again

    def to_dict(self) -> dict[str, Any] | None:
        """For people and programs; None while nothing is refused. `again_seconds` is None where it is not tried again
        until the file changes."""
        if not self.why:
            return None
        again = None if self._again is None else round(max(0.0, self._again - self._clock()), 1)
        return {"why": self.why, "tries": self.tries, "again_seconds": again}
