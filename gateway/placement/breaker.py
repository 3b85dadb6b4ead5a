"""Whether a backend is worth asking: a circuit breaker. Pure: whoever tells it something tells it the time as well.

    closed ── failures in a row, or too large a share of them ──▶ open ── a pause ──▶ half-open ── one call asks
      ▲                                                            ▲                                  │
      └────────────────────────── it answers ◀─────────────────────┼──────────────────────────────────┤
                                                                   └──── it fails: twice the pause ◀──┘

An open one is not forbidden: it is asked last, for it may be all there is. Whatever it answers then counts as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gateway.timing.durations import RoutesTiming


class State(StrEnum):
    """What is thought of a backend."""

    CLOSED = "closed"  # it works
    HALF_OPEN = "half-open"  # it did not, and the next call may find out whether it does again
    OPEN = "open"  # it does not


class Health(NamedTuple):
    """A backend's state, as people are told."""

    state: State
    why: str
    """Empty while it is closed."""
    since_s: float
    """When it was opened, by the clock of who told it; 0 while it is closed."""
    retry_s: float
    """When it is tried again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a circuit opens; for how long, `RoutesTiming` says."""

    in_a_row: int = 5
    """So many failures without an answer in between."""
    share: float = 0.5
    """Or this share of the calls within a window,"""
    of_at_least: int = 20
    """if there were so many."""


class Breaker:
    """One backend's."""

    def __init__(self, timing: RoutesTiming, limits: Limits = Limits()) -> None:
        self._limits = limits
        self._timing = timing
        self._row = 0
        self._now = self._before = (0, 0)  # answers and failures of this half of the window, and of the half before
        self._half_began_s = float("-inf")
        self._why = ""
        self._since_s = self._retry_s = 0.0
        self._pause_s = timing.open_first_seconds
        self._probing = False

    def health(self, now_s: float) -> Health:
        """What is thought of it now, and why."""
        if not self._why:
            return Health(State.CLOSED, "", 0.0, 0.0)
        state = State.HALF_OPEN if now_s >= self._retry_s else State.OPEN
        return Health(state, self._why, self._since_s, self._retry_s)

    def is_open(self, now_s: float) -> bool:
        """Whether it should be asked only where nobody else answers."""
        return bool(self._why) and now_s < self._retry_s

    def record_call(self, now_s: float) -> None:
        """A call is made. In the half-open state that is the one that finds out, and until it has, or a pause later,
        there is no other."""
        if self._why and now_s >= self._retry_s:
            self._probing = True
            self._retry_s = now_s + self._pause_s

    def record_success(self, now_s: float) -> bool:
        """A call was answered, if only by there being no such block. Answers whether that closed the circuit."""
        self._row = 0
        self._count(now_s, answers=1)
        closed = bool(self._why)
        if closed:
            self._why, self._probing = "", False
            self._pause_s = self._timing.open_first_seconds
            self._now = self._before = (0, 0)
        return closed

    def record_failure(self, now_s: float, reason: str) -> bool:
        """A call failed. Answers whether that opened the circuit."""
        self._row += 1
        self._count(now_s, failures=1)
        if self._why:
            if self._probing:
                self._probing = False
                self._pause_s = min(2 * self._pause_s, self._timing.open_most_seconds)
                self._retry_s = now_s + self._pause_s
            return False
        found = self._verdict()
        if found:
            self._why = f"{found}, the last: {reason}"
            self._since_s, self._retry_s = now_s, now_s + self._pause_s
        return bool(found)

    def _verdict(self) -> str:
        """Why to open; empty if there is no reason."""
        if self._row >= self._limits.in_a_row:
            return f"{self._row} failures in a row"
        failures = self._now[1] + self._before[1]
        calls = failures + self._now[0] + self._before[0]
        if calls >= self._limits.of_at_least and failures >= self._limits.share * calls:
            return f"{failures} failures in {calls} calls"
        return ""

    def _count(self, now_s: float, answers: int = 0, failures: int = 0) -> None:
        half_s = self._timing.window_seconds / 2
        age_s = now_s - self._half_began_s
        if age_s >= half_s:
            self._before = self._now if age_s < 2 * half_s else (0, 0)
            self._now = (0, 0)
            self._half_began_s = now_s
        self._now = (self._now[0] + answers, self._now[1] + failures)
