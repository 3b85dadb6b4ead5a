"""Metrics and the log. Each process counts in plain numbers; the supervisor adds them up and serves them."""

from gateway.metrics.instruments import Counter, Gauge, Histogram, Registry, counter, gauge, histogram

__all__ = ["Counter", "Gauge", "Histogram", "Registry", "counter", "gauge", "histogram"]
