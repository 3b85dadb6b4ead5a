"""How long a read from a backend is expected to take: estimated by the topology until it is measured. Pure: no clock.

A read is modelled as one wait for its first byte and then a stream, so it takes `first_byte_s + size / bytes_per_s`.
Small reads measure the first term, long reads the second. Both are decaying averages over the last few dozen reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.topology import Line

LONG_BYTES = 128 << 10
"""A read of at least this size measures the throughput; a shorter one measures the wait for the first byte."""
NEWEST_WEIGHT = 0.1
"""Weight of the newest read in an average. Its weight halves after about seven more reads."""

OUTLIER_TIMES = 4.0
"""A read that took longer than this many times the average counts as if it had taken exactly that."""


class Speed(NamedTuple):
    """The two terms of the time of a read."""

    first_byte_s: float
    bytes_per_s: float

    def seconds(self, size: int) -> float:
        """Return the expected time of a read of *size* bytes."""
        return self.first_byte_s + size / self.bytes_per_s


NEARBY = Speed(0.001, 1e9)
"""The estimate for a backend in the same cluster."""
UNKNOWN = Speed(1.0, 1e6)
"""The estimate for a backend to which the topology has no line."""


def prior(cluster: str | None, home: str, lines: Mapping[frozenset[str], Line]) -> Speed:
    """Return what the topology lets a reader in the cluster *home* expect of a backend in *cluster* (None: unknown)."""
    if cluster == home:
        return NEARBY
    line = lines.get(frozenset((cluster, home))) if cluster is not None else None
    return UNKNOWN if line is None else Speed(line.latency_seconds, line.bytes_per_second)


class LatencyEstimator:
    """The measurements of one process for one backend."""

    __slots__ = ("_first_byte_s", "_first_bytes", "_per_byte_s", "_streams", "prior")

    def __init__(self, expected: Speed) -> None:
        self.prior = expected
        """The estimate until there is a measurement."""
        self._first_byte_s = self._per_byte_s = 0.0
        self._first_bytes = self._streams = 0

    @property
    def reads(self) -> int:
        """The number of measured reads."""
        return self._first_bytes + self._streams

    @property
    def speed(self) -> Speed:
        """What to expect of the next read."""
        return Speed(
            self._first_byte_s if self._first_bytes else self.prior.first_byte_s,
            1.0 / self._per_byte_s if self._streams else self.prior.bytes_per_s,
        )

    def record(self, size: int, seconds: float) -> None:
        """Record that a read of *size* bytes took *seconds*."""
        first_byte_s, bytes_per_s = self.speed
        if size < LONG_BYTES:
            waited = max(seconds - size / bytes_per_s, seconds / 2)
            self._first_bytes += 1
            self._first_byte_s = _average(self._first_byte_s, waited, self._first_bytes)
            return
        # A stream that ended before its first byte was expected shows that the first byte comes sooner than that.
        streamed = max(seconds - first_byte_s, seconds / 2, 1e-9)
        self._streams += 1
        self._per_byte_s = _average(self._per_byte_s, streamed / size, self._streams)
        if seconds < first_byte_s:
            self._first_bytes += 1
            self._first_byte_s = _average(self._first_byte_s, seconds / 2, self._first_bytes)


def _average(before: float, newest: float, count: int) -> float:
    """Return the average after the *count*-th measurement.

    The first few measurements weigh the same, so the very first one does not dominate for long. An outlier is clipped:
    a backend that hung once is not expected to hang again."""
    if count > 1:
        newest = min(newest, OUTLIER_TIMES * before)
    return before + (newest - before) * max(NEWEST_WEIGHT, 1.0 / count)
