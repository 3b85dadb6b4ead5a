"""The clocks: wall time, monotonic time, boot time, and sleeping."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from backends.timing import MonotonicClock

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # a client may run where there is none


class Clock(Protocol):
    """Reads the time and sleeps. Safe to use from any thread, but for `sleep`, which needs an event loop."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 (UTC). May jump in either direction when an operator or NTP sets the machine's
        clock."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment. Never goes back; stands still while the machine is suspended."""

    def boottime(self) -> float:
        """Seconds since the machine was booted. Never goes back; includes the time that the machine was suspended."""

    async def sleep(self, seconds: float) -> None:
        """Return after *seconds* of monotonic time."""


class SystemClock(MonotonicClock):
    """The machine's clocks."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def boottime(self) -> float:
        return time.clock_gettime(_BOOTTIME)


class Offsets(NamedTuple):
    """How far the clocks of a process are ahead of the machine's, in seconds."""

    wall_seconds: float = 0.0
    """Negative where the process's clock is behind."""
    monotonic_seconds: float = 0.0
    boottime_seconds: float = 0.0


class OffsetClock(MonotonicClock):
    """The machine's clocks, each shifted by what `offsets` says at that moment. Sleeps are not affected."""

    def __init__(self, offsets: Callable[[], Offsets]) -> None:
        self._offsets = offsets

    def wall_ns(self) -> int:
        return time.time_ns() + int(self._offsets().wall_seconds * 1e9)

    def monotonic(self) -> float:
        return time.monotonic() + self._offsets().monotonic_seconds

    def boottime(self) -> float:
        return time.clock_gettime(_BOOTTIME) + self._offsets().boottime_seconds


class OffsetsFile:
    """Offsets that a file holds, read again whenever the file was replaced; none while there is no such file.

    The writer must replace the file atomically (write another one and rename it)."""

    def __init__(self, path: str, parse: Callable[[str], Offsets]) -> None:
        """*parse* raises `ValueError`, which the reader of a clock gets, for what is no offset."""
        self._path = path
        self._parse = parse
        self._seen: tuple[tuple[int, int, int], Offsets] | None = None  # one value, so that threads need no lock

    def __call__(self) -> Offsets:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return Offsets()
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        seen = self._seen
        if seen is None or seen[0] != version:
            with open(self._path, encoding="utf-8") as file:
                seen = self._seen = (version, self._parse(file.read()))
        return seen[1]
