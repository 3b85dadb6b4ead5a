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
    planned: int
    """Blocks over which a policy changes."""
    backlog_objects: int
    """Small ones, in packs, that are brought elsewhere."""
    backlog_gib: float
    """Of large objects that are brought elsewhere."""

    def wants(self, name: str) -> bool:
        return self.only.lower() in name.lower()
