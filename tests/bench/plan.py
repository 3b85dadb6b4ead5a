"""What a run of the benchmarks was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    only: str
    """Only rows whose name has this word in it; empty for all."""
    runs: int
    seconds: float
    keys: int
    listed: int

    def wants(self, name: str) -> bool:
        return self.only.lower() in name.lower()
