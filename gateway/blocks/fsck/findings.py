"""What a check found, as values. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

KEPT = 1_000
"""Findings that a report lists; the others are only counted."""


class Severity(IntEnum):
    """How bad a finding is."""

    NONE = 0
    WASTE = 1
    """Bytes that nobody needs: they cost disk and nothing else."""
    UNCHECKED = 2
    """Something could not be looked at, so nothing is known of it."""
    WRONG = 3
    """The tables contradict themselves, or a copy is lost or damaged."""


class Finding(NamedTuple):
    severity: Severity
    kind: str
    """A short name that stays: what programs look for."""
    where: str
    """Which row, block or key."""
    what: str
    """A sentence."""


@dataclass
class FsckReport:
    """What was looked at and found."""

    findings: list[Finding] = field(default_factory=list)
    """At most `KEPT` of them, as they were met."""
    kinds: Counter[str] = field(default_factory=Counter)
    """How many of each kind."""
    worst: Severity = Severity.NONE
    counted: Counter[str] = field(default_factory=Counter)
    """How much was looked at: `rows`, `blocks`, `bytes`, `frames`; and `in_flight` for blocks that live sessions have
    written and may still name."""
    unchecked: int = 0
    """Copies of blocks that could not be looked at, since their backend could not be reached."""
    to_mend: set[tuple[bytes, int]] = field(default_factory=set)
    """Copies that were told to whoever mends them: their block, and their backend's id."""

    @property
    def status(self) -> int:
        """How bad the worst finding is, as `Severity` numbers it."""
        return int(self.worst)

    def add(self, severity: Severity, kind: str, where: str, what: str) -> None:
        self.kinds[kind] += 1
        self.worst = max(self.worst, severity)
        if len(self.findings) < KEPT:
            self.findings.append(Finding(severity, kind, where, what))
