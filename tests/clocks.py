"""A clock that tests set: it stands still until it is told to go on, and whoever sleeps by it never waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.timing import SystemClock, Timing, parse_timing


class ManualClock:
    """All three clocks go on together, by `advance` and by each sleep, which takes one turn of the event loop."""

    def __init__(self, wall_seconds: float = 1_700_000_000.0) -> None:
        self.now = 0.0
        """Seconds since it was made."""
        self._wall_ns = int(wall_seconds * 1e9)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def wall_ns(self) -> int:
        return self._wall_ns + int(self.now * 1e9)

    def monotonic(self) -> float:
        return 100.0 + self.now

    def boottime(self) -> float:
        return 200.0 + self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class AheadClock(SystemClock):
    """The machine's clocks, but the wall clock is ahead, and the machine slept, by as much as the test says."""

    def __init__(self) -> None:
        self.ahead_seconds = self.slept_seconds = 0.0

    def wall_ns(self) -> int:
        return super().wall_ns() + int(self.ahead_seconds * 1e9)

    def boottime(self) -> float:
        return super().boottime() + self.slept_seconds


def manual_timing(text: str = "") -> tuple[Timing, ManualClock]:
    """A timing by a clock of its own; *text* as the environment has it."""
    clock = ManualClock()
    return replace(parse_timing(text), clock=clock), clock
