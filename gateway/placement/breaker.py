"""A circuit breaker for one backend. Pure: callers pass the time.

    closed ── failures in a row, or too large a share of them ──▶ open ── a pause ──▶ half-open ── one trial call
      ▲                                                            ▲                                  │
      └────────────────────────── success ◀────────────────────────┼──────────────────────────────────┤
                                                                   └── failure: twice the pause ◀─────┘

An open circuit forbids nothing. Its backend is tried last, since it may be the only one, and every outcome counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gateway.timing.durations import RoutesTiming


class CircuitState(StrEnum):
    """The state of a circuit."""

    CLOSED = "closed"  # the backend works
    HALF_OPEN = "half-open"  # it failed, and the next call is a trial
    OPEN = "open"  # it failed, and the pause has not ended


class CircuitHealth(NamedTuple):
    """The state of a backend's circuit, for reports."""

    state: CircuitState
    why: str
    """Why the circuit was opened; empty while it is closed."""
    since_s: float
    """When it was opened, by the clock of its callers; 0 while it is closed."""
    retry_s: float
    """When the next trial is due."""


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """When a circuit opens. For how long is in `RoutesTiming`."""

    in_a_row: int = 5
    """It opens after this many failures without a success in between,"""
    share: float = 0.5
    """or if this share of the calls within a window failed,"""
    of_at_least: int = 20
    """provided that the window has this many calls."""


class Breaker:
    """The circuit of one backend."""

    def __init__(self, timing: RoutesTiming, limits: BreakerLimits = BreakerLimits()) -> None:
        self._limits = limits
        self._timing = timing
        self._failures_in_a_row = 0
        self._now = self._before = (0, 0)  # successes and failures in this half of the window, and in the half before
        self._half_began_s = float("-inf")
        self._why = ""
        self._since_s = self._retry_s = 0.0
        self._pause_s = timing.open_first_seconds
        self._trial_running = False

    def health(self, now_s: float) -> CircuitHealth:
        """Return the state of the circuit now."""
        if not self._why:
            return CircuitHealth(CircuitState.CLOSED, "", 0.0, 0.0)
        state = CircuitState.HALF_OPEN if now_s >= self._retry_s else CircuitState.OPEN
        return CircuitHealth(state, self._why, self._since_s, self._retry_s)

    def is_open(self, now_s: float) -> bool:
        """Whether the backend should be tried only after all others."""
        return bool(self._why) and now_s < self._retry_s

    def record_call(self, now_s: float) -> None:
        """Record that a call starts. In the half-open state it becomes the trial, and the circuit counts as open until
        the trial ends, or for another pause."""
        if self._why and now_s >= self._retry_s:
            self._trial_running = True
            self._retry_s = now_s + self._pause_s

    def record_success(self, now_s: float) -> bool:
        """Record that a call was answered, be it with "no such block". Returns whether that closed the circuit."""
        self._failures_in_a_row = 0
        self._count(now_s, successes=1)
        closed = bool(self._why)
        if closed:
            self._why, self._trial_running = "", False
            self._pause_s = self._timing.open_first_seconds
            self._now = self._before = (0, 0)
        return closed

    def record_failure(self, now_s: float, reason: str) -> bool:
        """Record that a call failed. Returns whether that opened the circuit."""
        self._failures_in_a_row += 1
        self._count(now_s, failures=1)
        if self._why:
            if self._trial_running:
                self._trial_running = False
                self._pause_s = min(2 * self._pause_s, self._timing.open_most_seconds)
                self._retry_s = now_s + self._pause_s
            return False
        cause = self._cause_to_open()
        if cause:
            self._why = f"{cause}, the last: {reason}"
            self._since_s, self._retry_s = now_s, now_s + self._pause_s
        return bool(cause)

    def _cause_to_open(self) -> str:
        """Return why the circuit should open; empty if it should not."""
        if self._failures_in_a_row >= self._limits.in_a_row:
            return f"{self._failures_in_a_row} failures in a row"
        failures = self._now[1] + self._before[1]
        calls = failures + self._now[0] + self._before[0]
        if calls >= self._limits.of_at_least and failures >= self._limits.share * calls:
            return f"{failures} failures in {calls} calls"
        return ""

    def _count(self, now_s: float, successes: int = 0, failures: int = 0) -> None:
        half_s = self._timing.window_seconds / 2
        age_s = now_s - self._half_began_s
        if age_s >= half_s:
            self._before = self._now if age_s < 2 * half_s else (0, 0)
            self._now = (0, 0)
            self._half_began_s = now_s
        self._now = (self._now[0] + successes, self._now[1] + failures)
