"""Counters, gauges and histograms as plain numbers in dictionaries: counting costs well under a microsecond.

A module makes its instruments when it is imported, by the functions below, which add them to the registry of the
process. Each process reports `Registry.snapshot` to the supervisor every second (see `aggregate.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

LATENCY_SECONDS = (
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

Labels = tuple[str, ...]
Combine = Literal["sum", "max"]
Snapshot = dict[str, dict[str, Any]]
"""Maps an instrument's name to its description and its rows (label values, numbers). JSON can hold all of it."""


class Instrument:
    """The base of all kinds: a name, a meaning (Prometheus's HELP text), and the names of the labels."""

    kind = ""

    def __init__(self, name: str, meaning: str, labels: Labels) -> None:
        self.name = name
        self.meaning = meaning
        self.labels = labels

    def rows(self) -> list[list[Any]]:
        """Return pairs of label values and numbers. A histogram has a number for each bucket, and the sum; others
        have one."""
        raise TypeError(f"{type(self).__name__} does not define rows()")

    def facts(self) -> dict[str, Any]:
        """Return the description that `aggregate.py` needs to add rows of several processes up."""
        return {"kind": self.kind, "meaning": self.meaning, "labels": self.labels}


class Counter(Instrument):
    """A number that only grows."""

    kind = "counter"

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        super().__init__(name, meaning, labels)
        self.values: dict[Labels, float] = {}

    def add(self, by: float = 1, *labels: str) -> None:
        self.values[labels] = self.values.get(labels, 0) + by

    def reach(self, total: float, *labels: str) -> None:
        """Set the counter to *total*, which another component of this process has counted."""
        self.values[labels] = total

    def rows(self) -> list[list[Any]]:
        return [[labels, [value]] for labels, value in self.values.items()]


class Gauge(Instrument):
    """A number that goes up and down. Values of several processes are summed, or the greatest one is taken."""

    kind = "gauge"

    def __init__(self, name: str, meaning: str, labels: Labels = (), combine: Combine = "sum") -> None:
        super().__init__(name, meaning, labels)
        self.combine = combine
        self.values: dict[Labels, float] = {}

    def set(self, value: float, *labels: str) -> None:
        self.values[labels] = value

    def only(self, values: Mapping[str, float]) -> None:
        """Replace all values of a gauge with one label, so that label values that no longer exist disappear."""
        self.values = {(label,): value for label, value in values.items()}

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "combine": self.combine}

    def rows(self) -> list[list[Any]]:
        return [[labels, [value]] for labels, value in self.values.items()]


class Histogram(Instrument):
    """Counts of observations in buckets, and their sum."""

    kind = "histogram"

    def __init__(
        self, name: str, meaning: str, labels: Labels = (), bounds: tuple[float, ...] = LATENCY_SECONDS
    ) -> None:
        super().__init__(name, meaning, labels)
        self.bounds = bounds
        self.values: dict[Labels, list[float]] = {}
        """A count for each bound, a count for what is above the last bound, and the sum."""

    def observe(self, value: float, *labels: str) -> None:
        row = self.values.get(labels)
        if row is None:
            row = self.values[labels] = [0] * (len(self.bounds) + 1) + [0.0]
        row[bisect_left(self.bounds, value)] += 1
        row[-1] += value

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "bounds": self.bounds}

    def rows(self) -> list[list[Any]]:
        return [[labels, list(row)] for labels, row in self.values.items()]


I = TypeVar("I", bound=Instrument)  # noqa: E741


class Registry:
    """The instruments of a process, by name."""

    def __init__(self) -> None:
        self.instruments: dict[str, Instrument] = {}

    def put(self, instrument: I) -> I:
        """Add *instrument* and return it. Raises `ValueError` if the name is taken."""
        if instrument.name in self.instruments:
            raise ValueError(f"an instrument with the name {instrument.name} already exists")
        self.instruments[instrument.name] = instrument
        return instrument

    def snapshot(self) -> Snapshot:
        """Return everything that was counted so far, as plain values."""
        return {name: {**each.facts(), "rows": each.rows()} for name, each in self.instruments.items()}


REGISTRY = Registry()
"""The registry of this process."""


def counter(name: str, meaning: str, labels: Labels = ()) -> Counter:
    """Add a counter to the registry of this process. Its name ends in `_total`."""
    return REGISTRY.put(Counter(name, meaning, labels))


def gauge(name: str, meaning: str, labels: Labels = (), combine: Combine = "sum") -> Gauge:
    """Add a gauge to the registry of this process."""
    return REGISTRY.put(Gauge(name, meaning, labels, combine))


def histogram(name: str, meaning: str, labels: Labels = (), bounds: tuple[float, ...] = LATENCY_SECONDS) -> Histogram:
    """Add a histogram to the registry of this process. It counts seconds, unless *bounds* are given."""
    return REGISTRY.put(Histogram(name, meaning, labels, bounds))
