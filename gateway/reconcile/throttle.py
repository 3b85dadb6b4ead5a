"""When copies wait for those who answer clients: where processors are scarce, and not for long.

Beside clients who keep the processors busy, a second copy of every write takes more from them than its own processor
time: what little room there was is gone, and answers wait. So while the kernel has this process wait for others, copies
are gathered for a small share of what their policies allow, and are then made a few at a time with rests in between:
short ones where the oldest is old already. As soon as nobody is in the way, they are made all together.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

from gateway.metrics import gauge
from gateway.timing import Timing

WAITED_SHARE = 1 / 60
"""Fraction of the shortest `within_seconds` during which no copy is begun, up to `throttle.wait_most_seconds`."""
HURRIED_SHARE = 1 / 2
"""Of it as well: from this age of the oldest on, copies are made as fast as they can be."""
LEAST_SHARE = 0.2
"""Of the time is spent on copies in between, and more with their age: so their backlog grows no further than to where
they keep pace, and a load of some minutes has most of the processors until it is over."""
SLICE = 64
"""Blocks that are begun at a time, with a rest behind them."""
ALL = sys.maxsize
WAITED_PER_RUN = 1.5
"""Where this thread waits so many times as long as it runs, others are in the way. With a backlog and nobody else it
is 0.4 to 1.2, where two processors have everything to do; beside clients who keep these half busy, 2 to 10."""

THROTTLED = gauge("entrepot_copies_give_way", "1 while copies wait a little, since processors are scarce.")


def scheduler_times() -> tuple[int, int] | None:
    """Of the calling thread, in nanoseconds: how long it ran, and how long it waited for a processor.

    See "schedstat" in the kernel's Documentation/scheduler/sched-stats.rst.
    """
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None


class CpuContention:
    """Whether others want the processors that this thread would run on."""

    def __init__(self, timing: Timing, scheduled: Callable[[], tuple[int, int] | None] = scheduler_times) -> None:
        """*scheduled*: for how many nanoseconds this thread ran so far, and waited to run; None where nobody knows."""
        self._scheduled = scheduled
        self._timing = timing.throttle
        self._clock = timing.clock
        self._looked = self._felt_at = -math.inf
        self._seen: tuple[int, int] | None = None

    def is_contended(self) -> bool:
        """At the last look, or shortly before. Where the kernel does not say, nobody is in the way."""
        now = self._clock.monotonic()
        if now - self._looked >= self._timing.look_seconds and (told := self._scheduled()) is not None:
            if self._seen is not None:
                ran, waited = told[0] - self._seen[0], told[1] - self._seen[1]
                if waited > WAITED_PER_RUN * ran:
                    self._felt_at = now
            self._looked, self._seen = now, told
        return now - self._felt_at < self._timing.calm_seconds


class BackgroundThrottle:
    """Asked before any of what is due is begun: how much of it may be, so that what is begun at last is spread."""

    def __init__(self, is_contended: Callable[[], bool], timing: Timing) -> None:
        """*felt*: whether somebody is in the way, as `CpuContention` tells."""
        self._felt = is_contended
        self._timing = timing.throttle
        self._clock = timing.clock
        self._began_s: float | None = None  # the slice that was allowed last
        self._rests_until_s = -math.inf

    def __call__(self, now_ns: int, oldest_ns: int | None, within_seconds: float) -> int:
        """How many blocks may be begun before this is asked again, which is to be once they are done: none, a slice, or
        all. *oldest_ns*: since when the oldest is due, if there is any; *within_seconds*: the shortest recovery point
        that is promised."""
        crowded = self._felt()  # asked each time: what it compares with is the last time
        share = 1.0
        if crowded and oldest_ns is not None:
            share = share_of((now_ns - oldest_ns) / 1e9, within_seconds, self._timing.wait_most_seconds)
        allowed = ALL if share == 1.0 else self._slice(share)
        THROTTLED.set(float(allowed < ALL))
        return allowed

    def _slice(self, share: float) -> int:
        """A slice, if there was a rest behind the last one. A rest has an upper bound because a slice may take long for
        other reasons than processors."""
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
    """The share of the time that is spent on copies while others need the processors and the oldest copy is due since
    *age_seconds*. 0 for the first WAITED_SHARE of *within_seconds*, up to *wait_most_seconds*."""
    waits = min(wait_most_seconds, WAITED_SHARE * within_seconds)
    hurries = max(waits, HURRIED_SHARE * within_seconds)
    if age_seconds < waits:
        return 0.0
    if age_seconds >= hurries:
        return 1.0
    return LEAST_SHARE + (1.0 - LEAST_SHARE) * (age_seconds - waits) / (hurries - waits)


def no_throttle(_now_ns: int, _oldest_ns: int | None, _within_seconds: float) -> int:
    """For who makes copies at once, whoever is in the way."""
    return ALL
