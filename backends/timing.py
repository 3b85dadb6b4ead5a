"""Durations that drivers and wrappers choose themselves, with their defaults. One immutable value, injected.

Durations that the caller of a driver chooses (deadlines, timeouts) are arguments of its constructor.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

Pause: TypeAlias = Annotated[float, "pause"]
"""Seconds of waiting before something is repeated. A shorter one only costs more processor time."""
Limit: TypeAlias = Annotated[float, "limit"]
"""Seconds after which something is given up, or counts as settled. A shorter one makes a busy machine fail."""
Pauses: TypeAlias = Annotated[tuple[float, ...], "pause"]
"""Pauses one after the other; the last one repeats."""


class Clock(Protocol):
    """Monotonic time, and sleep by it: what the wrappers need of a clock."""

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
    """How long a write-ahead log of a local backend may hold records before their files are synced and the log is
    reset, which bounds the work of a recovery. Logs that stayed empty for as long are deleted."""
    prune_seconds: Pause = 5.0
    """Between two checks of a local backend which of its open files were deleted."""
    connect_seconds: Limit = 5.0
    """How long connecting to an S3 backend may take."""
    idle_seconds: Limit = 60.0
    """A connection to an S3 backend that was idle for longer is not used again, since firewalls drop idle ones."""
    settle_seconds: Limit = 1.0
    """On an S3 server that ignores conditional headers: how long a claim waits for other claims that read the marker
    before it wrote its own. A shorter one may let two claims succeed."""
    credential_seconds: Pauses = (60.0, 30.0, 15.0, 8.0, 4.0, 2.0, 1.0)
    """How long an S3 backend uses credentials that expire before it asks the provider again: the longest of these that
    is at most half of the credentials' remaining lifetime."""
    retry_first_seconds: Pause = 0.1
    """The longest pause before the second try of a call. It doubles before each further try."""
    retry_most_seconds: Pause = 5.0
    """The longest pause between two tries, without the Retry-After of the server."""


DEFAULTS = DriverTiming()
MACHINE = MonotonicClock()
