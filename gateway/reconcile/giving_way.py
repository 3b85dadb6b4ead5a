"""When copies wait for those who answer clients: where processors are scarce, and not for long.

Beside clients who keep the processors busy, a second copy of every write takes more from them than its own processor
time: what little room there was is gone, and answers wait. So while the kernel has this process wait for others, copies
are gathered, and are then made all together: once the oldest has waited for a small share of what its policy allows, or
as soon as nobody is in the way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from gateway.metrics import gauge

SHARE = 1 / 60
"""Of the shortest `within_seconds`: how long a copy waits at most; and"""
SECONDS_MAX = 60.0
"""however long that is."""
LOOK_SECONDS = 0.25
"""Of the kernel's figures, so that there is something to compare."""
WAITED_PER_RUN = 1.5
"""Where this thread waits so many times as long as it runs, others are in the way. With a backlog and nobody else it
is 0.4 to 1.2, where two processors have everything to do; beside clients who keep these half busy, 2 to 10."""
CALM_SECONDS = 2.0
"""For so long nobody must have been in the way: clients who pause for a moment are there again."""

GIVES_WAY = gauge("entrepot_copies_give_way", "1 while copies wait a little, since processors are scarce.")


def scheduling() -> tuple[int, int] | None:
    """Of the calling thread, in nanoseconds: how long it ran, and how long it waited for a processor.

    See "schedstat" in the kernel's Documentation/scheduler/sched-stats.rst.
    """
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None


class Crowd:
    """Whether others want the processors that this thread would run on."""

    def __init__(
        self,
        scheduled: Callable[[], tuple[int, int] | None] = scheduling,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*scheduled*: for how many nanoseconds this thread ran so far, and waited to run; None where nobody knows."""
        self._scheduled = scheduled
        self._clock = clock
        self._looked = self._felt_at = -math.inf
        self._seen: tuple[int, int] | None = None

    def felt(self) -> bool:
        """At the last look, or shortly before. Where the kernel does not say, nobody is in the way."""
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS and (told := self._scheduled()) is not None:
            if self._seen is not None:
                ran, waited = told[0] - self._seen[0], told[1] - self._seen[1]
                if waited > WAITED_PER_RUN * ran:
                    self._felt_at = now
            self._looked, self._seen = now, told
        return now - self._felt_at < CALM_SECONDS


class GivingWay:
    """Asked before any of what is due is begun; what falls due meanwhile is begun after that."""

    def __init__(self, felt: Callable[[], bool]) -> None:
        """*felt*: whether somebody is in the way, as `Crowd` tells."""
        self._felt = felt

    def __call__(self, now_ns: int, oldest_ns: int | None, within_seconds: float) -> bool:
        """Whether all of it waits. *oldest_ns*: since when the oldest is due, if there is any; *within_seconds*: the
        shortest recovery point that is promised."""
        crowded = self._felt()  # asked each time: what it compares with is the last time
        most_ns = min(SECONDS_MAX, SHARE * within_seconds) * 1e9
        waits = crowded and oldest_ns is not None and now_ns - oldest_ns < most_ns
        GIVES_WAY.set(float(waits))
        return waits


def never(_now_ns: int, _oldest_ns: int | None, _within_seconds: float) -> bool:
    """For who makes copies at once, whoever is in the way."""
    return False
