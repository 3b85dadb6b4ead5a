"""An edit of the config that a reload refused: whether the reason may pass by itself, and when the edit is tried again.

A mistake in the file stays until the file is edited again. Other reasons may pass in a moment: a bucket that does not
answer, a name that is not resolved, a folder that is not mounted, a block that has yet to be moved. For those nobody
should have to touch the file. Pure except for its clock.
"""

from __future__ import annotations

from typing import Any

from gateway.errors import TemporarilyRejected
from gateway.timing import Timing

__all__ = ["Refusals", "TemporarilyRejected"]


class Refusals:
    """The last refused edit, until it is in force."""

    def __init__(self, timing: Timing) -> None:
        self._clock = timing.clock.monotonic
        self._pauses = timing.reload
        self.why = ""
        """Why the edit was refused; empty while the file is in force."""
        self.tries = 0
        self._pause = 0.0
        self._retry_at: float | None = None

    def record(self, why: str, *, temporary: bool, is_new: bool) -> bool:
        """Record a refusal. *temporary*: the reason may cease to hold without an edit. *is_new*: the edit is another
        one, or an operator requested the reload. Returns whether to log it: not at each attempt."""
        is_news = is_new or not self.tries or not temporary
        self._pause = (
            self._pauses.refused_first_seconds if is_news else min(self._pauses.refused_most_seconds, 2 * self._pause)
        )
        self.tries = 1 if is_new else self.tries + 1
        self.why = why
        self._retry_at = self._clock() + self._pause if temporary else None
        return is_news

    def clear(self) -> None:
        """Record that the file is in force."""
        self.why, self.tries, self._retry_at = "", 0, None

    @property
    def due(self) -> bool:
        """Whether it is time to try the same edit again."""
        return self._retry_at is not None and self._clock() >= self._retry_at

    def to_dict(self) -> dict[str, Any] | None:
        """Return the refusal for reports; None if there is none. `again_seconds` is None if the edit is not tried again
        until the file changes."""
        if not self.why:
            return None
        again = None if self._retry_at is None else round(max(0.0, self._retry_at - self._clock()), 1)
        return {"why": self.why, "tries": self.tries, "again_seconds": again}
