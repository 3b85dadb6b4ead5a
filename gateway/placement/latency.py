"""How long a read from a backend should take: what the topology says, until it has been measured. Pure: no clock.

A read is one wait for its first byte and then a stream, so its time is `first_byte_s + size / bytes_per_s`. Small reads
tell the first, long ones the second; both are decaying averages, in which the last few dozen reads count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.topology import Line

LONG_BYTES = 128 << 10
"""From here on a read says how fast bytes come; below it, how long the first one takes."""
NEWEST_WEIGHT = 0.1
"""The weight of the newest read in an average: after seven more, half of it is left."""

OUTLIER_TIMES = 4.0
"""A read that took longer than so many times the average counts as if it had taken just that."""


class Speed(NamedTuple):
    """What a read takes."""

    first_byte_s: float
    bytes_per_s: float

    def seconds(self, size: int) -> float:
        """For so many bytes."""
        return self.first_byte_s + size / self.bytes_per_s


NEARBY = Speed(0.001, 1e9)
"""Within a cluster, until it was measured."""
UNKNOWN = Speed(1.0, 1e6)
"""Where no line is known, until it was measured."""


def prior(cluster: str | None, home: str, lines: Mapping[frozenset[str], Line]) -> Speed:
    """What the topology lets a reader in *home* expect of *cluster*."""
    if cluster == home:
        return NEARBY
    line = lines.get(frozenset((cluster, home))) if cluster is not None else None
    return UNKNOWN if line is None else Speed(line.latency_seconds, line.bytes_per_second)


class LatencyEstimator:
    """What one process has seen of one backend."""

    __slots__ = ("_first_byte_s", "_first_bytes", "_per_byte_s", "_streams", "prior")

    def __init__(self, expected: Speed) -> None:
        self.prior = expected
        """What counts until there is a measurement."""
        self._first_byte_s = self._per_byte_s = 0.0
        self._first_bytes = self._streams = 0

    @property
    def reads(self) -> int:
        """How many reads were measured."""
        return self._first_bytes + self._streams

    @property
    def speed(self) -> Speed:
        """What to expect of the next read."""
        return Speed(
            self._first_byte_s if self._first_bytes else self.prior.first_byte_s,
            1.0 / self._per_byte_s if self._streams else self.prior.bytes_per_s,
        )

    def record(self, size: int, seconds: float) -> None:
        """A read of *size* bytes took *seconds*."""
        first_byte_s, bytes_per_s = self.speed
        if size < LONG_BYTES:
            waited = max(seconds - size / bytes_per_s, seconds / 2)
            self._first_bytes += 1
            self._first_byte_s = _average(self._first_byte_s, waited, self._first_bytes)
            return
        # A stream that was over before its first byte was expected says that the first byte comes sooner than that.
        streamed = max(seconds - first_byte_s, seconds / 2, 1e-9)
        self._streams += 1
        self._per_byte_s = _average(self._per_byte_s, streamed / size, self._streams)
        if seconds < first_byte_s:
            self._first_bytes += 1
            self._first_byte_s = _average(self._first_byte_s, seconds / 2, self._first_bytes)


def _average(before: float, newest: float, count: int) -> float:
    """The first few count alike, so that the first one alone does not weigh for long. No single one counts for very
    much: who hung once is not expected to hang again."""
    if count > 1:
        newest = min(newest, OUTLIER_TIMES * before)
    return before + (newest - before) * max(NEWEST_WEIGHT, 1.0 / count)
