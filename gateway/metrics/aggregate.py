"""The metrics of all processes of a site, added up, in Prometheus's text format.

Each process reports a snapshot every second, and its latest one counts. When a process ends, its counters and
histograms are kept and its gauges are dropped. What a killed process counted since its last snapshot is lost: at most
one second of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from gateway.metrics.instruments import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Summed = dict[str, dict[tuple[str, ...], list[float]]]


class AggregatedMetrics(Collector):
    """The latest snapshot of each process, and the totals of processes that have ended."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}
        self._live: dict[str, Snapshot] = {}
        self._ended: Summed = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def tell(self, process: str, snapshot: Snapshot) -> None:
        """Store the snapshot of what *process* has counted since it started."""
        self._live[process] = snapshot
        for name, facts in snapshot.items():
            self._facts.setdefault(name, facts)

    def end(self, process: str) -> None:
        """*process* has ended: keep its counters and histograms, drop its gauges."""
        for name, labels, numbers in _rows(self._live.pop(process, {})):
            if self._facts[name]["kind"] != "gauge":
                _add(self._ended, name, labels, numbers)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text exposition format."""
        return generate_latest(self._registry)

    def total(self, name: str, *labels: str) -> float:
        """Return the sum of a counter or gauge over all processes and all label values that begin with *labels*."""
        found = self._sums().get(name, {})
        return sum(numbers[0] for key, numbers in found.items() if key[: len(labels)] == labels)

    def collect(self) -> Iterable[Metric]:
        sums = self._sums()
        for name, facts in sorted(self._facts.items()):
            yield _family(name, facts, sums.get(name, {}))

    def _sums(self) -> Summed:
        sums: Summed = {
            name: {labels: list(numbers) for labels, numbers in rows.items()} for name, rows in self._ended.items()
        }
        for snapshot in self._live.values():
            for name, labels, numbers in _rows(snapshot):
                _add(sums, name, labels, numbers, greatest=self._facts[name].get("combine") == "max")
        return sums


def _rows(snapshot: Snapshot) -> Iterator[tuple[str, tuple[str, ...], list[float]]]:
    for name, facts in snapshot.items():
        for labels, numbers in facts["rows"]:
            yield name, tuple(labels), list(numbers)


def _add(sums: Summed, name: str, labels: tuple[str, ...], numbers: list[float], *, greatest: bool = False) -> None:
    there = sums.setdefault(name, {})
    before = there.get(labels)
    if before is None:
        there[labels] = numbers
    elif greatest:
        there[labels] = [max(pair) for pair in zip(before, numbers, strict=True)]
    else:
        there[labels] = [sum(pair) for pair in zip(before, numbers, strict=True)]


def _family(name: str, facts: dict[str, Any], rows: dict[tuple[str, ...], list[float]]) -> Metric:
    if facts["kind"] == "histogram":
        family = HistogramMetricFamily(name, facts["meaning"], labels=facts["labels"])
        for labels, numbers in rows.items():
            family.add_metric(labels, _buckets(facts["bounds"], numbers[:-1]), numbers[-1])
        return family
    made = GaugeMetricFamily if facts["kind"] == "gauge" else CounterMetricFamily
    plain: CounterMetricFamily | GaugeMetricFamily = made(name, facts["meaning"], labels=facts["labels"])
    for labels, numbers in rows.items():
        plain.add_metric(labels, numbers[0])
    return plain


def _buckets(bounds: Iterable[float], counts: list[float]) -> list[tuple[str, float]]:
    """Return cumulative counts, one for each upper bound, as Prometheus expects them."""
    found, below = [], 0.0
    for bound, count in zip((*(repr(float(each)) for each in bounds), "+Inf"), counts, strict=True):
        below += count
        found.append((bound, below))
    return found
