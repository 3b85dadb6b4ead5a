"""The durations that the drivers and wrappers decide themselves, with their defaults. One immutable value, injected.

Durations that the caller of a driver knows better (deadlines, timeouts) are arguments of its constructor.
"""

from __future__ import annotations

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


@dataclass(frozen=True, kw_only=True)
class DriverTiming:
    """Drivers and wrappers (`backends`)."""

    log_turn_seconds: Pause = 20.0
    """Of a local backend's intake: after which a log that holds records is synced and reset, which bounds what a
    restoring has to do; and after which logs that nobody needed are given back."""
    prune_seconds: Pause = 5.0
    """Of a local backend: between two looks at which of its open files were deleted."""


DEFAULTS = DriverTiming()
