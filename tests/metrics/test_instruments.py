"""Counting, and adding up over processes, as Prometheus reads it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import Counter, Gauge, Histogram, Registry
from gateway.metrics.aggregate import AggregatedMetrics
from gateway.metrics.instruments import Snapshot


class Process:
    """A process with its own copy of the same instruments."""

    def __init__(self) -> None:
        self.board = Registry()
        self.hits = self.board.put(Counter("hits_total", "Hits.", ("kind",)))
        self.open = self.board.put(Gauge("open", "Open."))
        self.lag = self.board.put(Gauge("lag", "Lag.", (), "max"))
        self.seconds = self.board.put(Histogram("seconds", "Seconds.", (), (0.1, 1.0)))

    def snapshot(self) -> Snapshot:
        return self.board.snapshot()


def samples(gathered: AggregatedMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = gathered.text().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_of_two_processes_add_up_by_label() -> None:
    one, two = Process(), Process()
    one.hits.add(2, "get")
    two.hits.add(3, "get")
    two.hits.add(1, "put")
    gathered = AggregatedMetrics()
    gathered.tell("a", one.snapshot())
    gathered.tell("b", two.snapshot())
    found = samples(gathered)
    assert found["hits_total", (("kind", "get"),)] == 5
    assert found["hits_total", (("kind", "put"),)] == 1
    assert gathered.total("hits_total") == 6


def test_a_process_that_told_twice_counts_once() -> None:
    one = Process()
    gathered = AggregatedMetrics()
    one.hits.add(2, "get")
    gathered.tell("a", one.snapshot())
    one.hits.add(1, "get")
    gathered.tell("a", one.snapshot())
    assert gathered.total("hits_total") == 3


def test_what_an_ended_process_counted_stays_and_its_gauges_go() -> None:
    one, two = Process(), Process()
    one.hits.add(2, "get")
    one.open.set(7)
    one.seconds.observe(0.5)
    two.open.set(1)
    gathered = AggregatedMetrics()
    gathered.tell("a", one.snapshot())
    gathered.tell("b", two.snapshot())
    gathered.end("a")
    gathered.end("a")
    found = samples(gathered)
    assert found["hits_total", (("kind", "get"),)] == 2
    assert found["open", ()] == 1
    assert found["seconds_count", ()] == 1


def test_of_a_gauge_of_greatest_values_the_greatest_counts() -> None:
    one, two = Process(), Process()
    one.lag.set(0.2)
    two.lag.set(0.1)
    gathered = AggregatedMetrics()
    gathered.tell("a", one.snapshot())
    gathered.tell("b", two.snapshot())
    assert samples(gathered)["lag", ()] == 0.2


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_histogram_counts_at_or_below_each_bound(seen: list[float]) -> None:
    one = Process()
    for value in seen:
        one.seconds.observe(value)
    gathered = AggregatedMetrics()
    gathered.tell("a", one.snapshot())
    found = samples(gathered)
    for bound in (0.1, 1.0):
        expected = sum(value <= bound for value in seen)
        assert found.get(("seconds_bucket", (("le", str(bound)),)), 0) == expected
    assert found.get(("seconds_count", ()), 0) == len(seen)


def test_what_a_process_tells_survives_json() -> None:
    one = Process()
    one.hits.add(2, "get")
    one.seconds.observe(0.5)
    gathered = AggregatedMetrics()
    gathered.tell("a", json.loads(json.dumps(one.snapshot())))
    assert samples(gathered)["hits_total", (("kind", "get"),)] == 2
    assert samples(gathered)["seconds_sum", ()] == 0.5


def test_two_instruments_cannot_share_a_name() -> None:
    board = Process().board
    try:
        board.put(Counter("hits_total", "Again."))
    except ValueError as refused:
        assert "hits_total" in str(refused)
    else:
        raise AssertionError("accepted")
