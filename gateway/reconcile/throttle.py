"""Throttles the making of copies while processors are scarce, so that requests of clients are served first.

If clients keep the processors busy, a second copy of every write costs them more than its own processor time: the last
idle time is used up, and responses wait. So while the kernel lets this process wait for a processor, copies are held
back for a small share of the time that their policies allow (`within_seconds`). Then they are made a few at a time,
with pauses in between, which get shorter as the oldest copy gets older. Once processors are free, all copies are made
at once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

from gateway.metrics import gauge
from gateway.timing import Timing

WAITED_SHARE = 1 / 60
"""Fraction of the shortest `within_seconds` during which new copies are held back, up to
`throttle.wait_most_seconds`."""
HURRIED_SHARE = 1 / 2
"""Fraction of the shortest `within_seconds`. Once the oldest copy is due for that long, copies are not throttled."""
LEAST_SHARE = 0.2
"""Between these two ages, the fraction of the time that is spent on copies grows from this value to 1. So the backlog
grows only until the copies keep pace, and a load of a few minutes gets most of the processors until it is over."""
SLICE = 64
"""Blocks that are begun at a time, with a pause after them."""
ALL = sys.maxsize
WAITED_PER_RUN = 1.5
"""Processors count as scarce if this thread waits for one this many times as long as it runs. Measured on two
processors: 0.4 to 1.2 with a backlog and no clients; 2 to 10 with clients that keep the processors half busy."""

THROTTLED = gauge("entrepot_copies_give_way", "1 while the making of copies is throttled, since processors are scarce.")


def scheduler_times() -> tuple[int, int] | None:
    """Return how long the calling thread has run and how long it has waited for a processor, in nanoseconds. None if
    the kernel does not report it.

    See "schedstat" in the kernel's Documentation/scheduler/sched-stats.rst.
    """
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None


class CpuContention:
    """Detects that the calling thread competes with others for processors."""

    def __init__(self, timing: Timing, scheduled: Callable[[], tuple[int, int] | None] = scheduler_times) -> None:
        """*scheduled*: as `scheduler_times`."""
        self._scheduled = scheduled
        self._timing = timing.throttle
        self._clock = timing.clock
        self._measured_at = self._contended_at = -math.inf
        self._seen: tuple[int, int] | None = None

    def is_contended(self) -> bool:
        """Whether processors were scarce at the last measurement or shortly before it. False if the kernel does not
        report it."""
        now = self._clock.monotonic()
        if now - self._measured_at >= self._timing.look_seconds and (times := self._scheduled()) is not None:
            if self._seen is not None:
                ran, waited = times[0] - self._seen[0], times[1] - self._seen[1]
                if waited > WAITED_PER_RUN * ran:
                    self._contended_at = now
            self._measured_at, self._seen = now, times
        return now - self._contended_at < self._timing.calm_seconds


class BackgroundThrottle:
    """Decides how many of the blocks that are due may be begun now."""

    def __init__(self, is_contended: Callable[[], bool], timing: Timing) -> None:
        """*is_contended*: see `CpuContention.is_contended`."""
        self._is_contended = is_contended
        self._timing = timing.throttle
        self._clock = timing.clock
        self._began_s: float | None = None  # when the slice that was allowed last began
        self._rests_until_s = -math.inf

    def __call__(self, now_ns: int, oldest_ns: int | None, within_seconds: float) -> int:
        """Return how many blocks may be begun: none, a slice, or all. The caller asks again once these are done.

        *oldest_ns*: since when the oldest block is due; None if none is due. *within_seconds*: the shortest recovery
        point that a policy promises."""
        contended = self._is_contended()  # on every call, since each one measures the time since the last one
        share = 1.0
        if contended and oldest_ns is not None:
            share = share_of((now_ns - oldest_ns) / 1e9, within_seconds, self._timing.wait_most_seconds)
        allowed = ALL if share == 1.0 else self._slice(share)
        THROTTLED.set(float(allowed < ALL))
        return allowed

    def _slice(self, share: float) -> int:
        """Return `SLICE` if the pause after the last slice is over, and 0 if not. The pause has an upper bound,
        because a slice may take long for other reasons than processors."""
        now = self._clock.monotonic()
        if share == 0.0:
            self._began_s = None
            return 0
        if self._began_s is not None:
            self._rests_until_s = now + min(self._timing.rest_most_seconds, (now - self._began_s) * (1 / share - 1))
            self._began_s = None
        if now < self._rests_until_s:
            return 0
        self._began_s = now
        return SLICE


def share_of(age_seconds: float, within_seconds: float, wait_most_seconds: float) -> float:
    """Return the fraction of the time to spend on copies while processors are scarce and the oldest copy has been due
    for *age_seconds*. 0 for the first `WAITED_SHARE` of *within_seconds*, up to *wait_most_seconds*."""
    waits = min(wait_most_seconds, WAITED_SHARE * within_seconds)
    hurries = max(waits, HURRIED_SHARE * within_seconds)
    if age_seconds < waits:
        return 0.0
    if age_seconds >= hurries:
        return 1.0
    return LEAST_SHARE + (1.0 - LEAST_SHARE) * (age_seconds - waits) / (hurries - waits)


def no_throttle(_now_ns: int, _oldest_ns: int | None, _within_seconds: float) -> int:
    """A throttle that always allows all blocks."""
    return ALL
