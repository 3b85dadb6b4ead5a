"""The findings of a check, as values. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

KEPT = 1_000
"""Findings that a report lists; further ones are only counted."""


class Severity(IntEnum):
    """How bad a finding is."""

    NONE = 0
    WASTE = 1
    """Bytes that nobody needs. They cost disk space and nothing else."""
    UNCHECKED = 2
    """Something could not be checked, so nothing is known about it."""
    WRONG = 3
    """The tables contradict themselves, or a copy is lost or damaged."""


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    severity: Severity
    kind: str
    """A short name that programs look for; it never changes."""
    where: str
    """The row, block or key."""
    what: str
    """A sentence for people."""


@dataclass
class FsckReport:
    """What was checked and found."""

    findings: list[Finding] = field(default_factory=list)
    """The first `KEPT` findings."""
    kinds: Counter[str] = field(default_factory=Counter)
    """How many findings of each kind there are."""
    worst: Severity = Severity.NONE
    counted: Counter[str] = field(default_factory=Counter)
    """How much was checked: `records`, `rows`, `blocks`, `bytes`, `frames`; and `in_flight` for blocks that live
    sessions have written and may still name."""
    unchecked: int = 0
    """Copies that could not be checked, since their backend could not be reached."""
    to_mend: set[tuple[bytes, int]] = field(default_factory=set)
    """Bad copies that were reported for repair: (block id, backend id)."""

    @property
    def status(self) -> int:
        """The worst severity, as a number."""
        return int(self.worst)

    def add(self, severity: Severity, kind: str, where: str, what: str) -> None:
        """Add a finding."""
        self.kinds[kind] += 1
        self.worst = max(self.worst, severity)
        if len(self.findings) < KEPT:
            self.findings.append(Finding(severity, kind, where, what))
