"""What is counted, and the log: plain integers in each process, gathered and shown by one. Knows no other room."""

from gateway.metrics.instruments import Board, Counter, Gauge, Histogram, counter, gauge, histogram

__all__ = ["Board", "Counter", "Gauge", "Histogram", "counter", "gauge", "histogram"]
