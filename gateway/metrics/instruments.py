"""Counters, gauges and histograms as plain numbers in dictionaries: counting costs well under a microsecond.

A module that has something to count makes its instruments at import, by the functions below; they stand on the
process's board. `Board.snapshot` is what a process tells the supervisor each second (see `gathering`).
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
"""By instrument: what it is, and its rows (label values, numbers). Plain values that JSON knows."""


class Instrument:
    """What all kinds share: a name, what it means, the names of its labels."""

    kind = ""

    def __init__(self, name: str, meaning: str, labels: Labels) -> None:
        self.name = name
        self.meaning = meaning
        self.labels = labels

    def rows(self) -> list[list[Any]]:
        """Label values and numbers: one, or of a histogram its counts and the sum."""
        raise TypeError("an instrument tells its own rows")

    def facts(self) -> dict[str, Any]:
        """What this is, for who adds it up."""
        return {"kind": self.kind, "meaning": self.meaning, "labels": self.labels}


class Counter(Instrument):
    """Only grows."""

    kind = "counter"

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        super().__init__(name, meaning, labels)
        self.values: dict[Labels, float] = {}

    def add(self, by: float = 1, *labels: str) -> None:
        self.values[labels] = self.values.get(labels, 0) + by

    def reach(self, total: float, *labels: str) -> None:
        """It stands at *total*, which somebody else counted in this process."""
        self.values[labels] = total

    def rows(self) -> list[list[Any]]:
        return [[labels, [value]] for labels, value in self.values.items()]


class Gauge(Instrument):
    """Goes up and down. Over processes, values of the same labels are summed, or the greatest counts."""

    kind = "gauge"

    def __init__(self, name: str, meaning: str, labels: Labels = (), combine: Combine = "sum") -> None:
        super().__init__(name, meaning, labels)
        self.combine = combine
        self.values: dict[Labels, float] = {}

    def set(self, value: float, *labels: str) -> None:
        self.values[labels] = value

    def only(self, values: Mapping[str, float]) -> None:
        """Of its one label these values, and of no others: an alarm over what is gone ends."""
        self.values = {(label,): value for label, value in values.items()}

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "combine": self.combine}

    def rows(self) -> list[list[Any]]:
        return [[labels, [value]] for labels, value in self.values.items()]


class Histogram(Instrument):
    """How many observations fell at or below each bound, and their sum."""

    kind = "histogram"

    def __init__(
        self, name: str, meaning: str, labels: Labels = (), bounds: tuple[float, ...] = LATENCY_SECONDS
    ) -> None:
        super().__init__(name, meaning, labels)
        self.bounds = bounds
        self.values: dict[Labels, list[float]] = {}
        """A count for each bound, one for what is above all of them, and the sum."""

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


class Board:
    """All instruments of a process, by name."""

    def __init__(self) -> None:
        self.instruments: dict[str, Instrument] = {}

    def put(self, instrument: I) -> I:
        """Add it. Raises `ValueError` if the name is taken."""
        if instrument.name in self.instruments:
            raise ValueError(f"there is an instrument {instrument.name} already")
        self.instruments[instrument.name] = instrument
        return instrument

    def snapshot(self) -> Snapshot:
        """Everything that was counted so far, as plain values."""
        return {name: {**each.facts(), "rows": each.rows()} for name, each in self.instruments.items()}


BOARD = Board()
"""This process's."""


def counter(name: str, meaning: str, labels: Labels = ()) -> Counter:
    """A counter on this process's board; its name ends in `_total`."""
    return BOARD.put(Counter(name, meaning, labels))


def gauge(name: str, meaning: str, labels: Labels = (), combine: Combine = "sum") -> Gauge:
    """A gauge on this process's board."""
    return BOARD.put(Gauge(name, meaning, labels, combine))


def histogram(name: str, meaning: str, labels: Labels = (), bounds: tuple[float, ...] = LATENCY_SECONDS) -> Histogram:
    """A histogram on this process's board; of seconds, unless its bounds say otherwise."""
    return BOARD.put(Histogram(name, meaning, labels, bounds))
