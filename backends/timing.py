"""The durations that the drivers and wrappers decide themselves, with their defaults. One immutable value, injected.

Durations that the caller of a driver knows better (deadlines, timeouts) are arguments of its constructor.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

Pause: TypeAlias = Annotated[float, "pause"]
"""How long somebody waits before looking, trying or doing again: a shorter one only costs more processor time."""
Limit: TypeAlias = Annotated[float, "limit"]
"""After how long somebody gives up, or counts something as settled: a shorter one makes a busy machine fail."""
Pauses: TypeAlias = Annotated[tuple[float, ...], "pause"]
"""One after the other; the last one stays."""


class Clock(Protocol):
    """Monotonic time, and sleeping by it; what the wrappers need of a clock."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment. Never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return after *seconds* of monotonic time."""


class MonotonicClock:
    """The machine's monotonic clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, kw_only=True)
class DriverTiming:
    """Drivers and wrappers (`backends`)."""

    log_turn_seconds: Pause = 20.0
    """How long an intake log of a local backend may hold records before they are synced and the log is reset, which
    bounds the work of a recovery. Logs that stayed empty for as long are deleted."""
    prune_seconds: Pause = 5.0
    """Between two looks of a local backend at which of its open files were deleted."""
    connect_seconds: Limit = 5.0
    """How long a connection to an S3 backend may take to be made."""
    idle_seconds: Limit = 60.0
    """A connection to an S3 backend that was idle for longer is not used again, since firewalls forget it."""
    settle_seconds: Limit = 1.0
    """Where an S3 server ignores conditions: how long a claim waits for others that read before it wrote. A shorter one
    may let two claims succeed."""
    credential_seconds: Pauses = (60.0, 30.0, 15.0, 8.0, 4.0, 2.0, 1.0)
    """After which an S3 backend asks for keys that expire again: the longest of these that is at most half of the time
    that the key has left."""
    retry_first_seconds: Pause = 0.1
    """Longest pause before the second try of a call; twice as long before each next one."""
    retry_most_seconds: Pause = 5.0
    """Longest pause between two tries, beside what the server asks for."""


DEFAULTS = DriverTiming()
MACHINE = MonotonicClock()
