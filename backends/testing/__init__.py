"""Backends for tests: values in memory, and a wrapper that injects faults."""
