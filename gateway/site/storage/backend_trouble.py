"""What is wrong with a backend, as one process has found it, or as several have."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple


class BackendTrouble(NamedTuple):
    """What is wrong with one backend. Travels from each process to the supervisor as a JSON object."""

    why: str
    unavailable: bool
    """The backend does not answer, or nothing may be written there. False: it is used, but not as it should be."""
    since_ns: int = 0
    """Since when, by the wall clock, in nanoseconds; 0 if that is not known."""


class CombinedTrouble(NamedTuple):
    """What several processes have found to be wrong with one backend."""

    unavailable: bool
    """Whether any process reports that. Processes differ for some seconds, until each has checked the backend."""
    since_ns: int
    """The earliest time that a process reports; 0 if none does."""
    reasons: Mapping[str, tuple[str, ...]]
    """Each reason, with the names of the processes that report it."""

    @property
    def since(self) -> str:
        """The time as text (RFC 3339, seconds, UTC); empty if it is not known."""
        return (
            datetime.fromtimestamp(self.since_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if self.since_ns else ""
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the trouble as plain values, for JSON."""
        reasons = [{"why": why, "reported_by": list(names)} for why, names in self.reasons.items()]
        return {"up": not self.unavailable, "since": self.since or None, "reasons": reasons}

    def to_text(self) -> str:
        """Return the trouble as a phrase for people."""
        state = "UNAVAILABLE" if self.unavailable else "DEGRADED"
        since = f" since {self.since}" if self.since else ""
        whys = "; ".join(f"{why} (reported by {', '.join(names)})" for why, names in self.reasons.items())
        return f"{state}{since}: {whys}"


def combined(by_process: Mapping[str, Mapping[str, BackendTrouble]]) -> dict[str, CombinedTrouble]:
    """Combine what processes report. *by_process*: by name of the process, its troubles by name of the backend."""
    found: dict[str, dict[str, BackendTrouble]] = {}
    for process, troubles in by_process.items():
        for backend, trouble in troubles.items():
            found.setdefault(backend, {})[process] = trouble
    return {backend: _combine(reports) for backend, reports in found.items()}


def _combine(reports: Mapping[str, BackendTrouble]) -> CombinedTrouble:
    unavailable = any(each.unavailable for each in reports.values())
    counted = {process: each for process, each in reports.items() if each.unavailable == unavailable}
    reasons: dict[str, tuple[str, ...]] = {}
    for process, each in sorted(counted.items()):
        reasons[each.why] = (*reasons.get(each.why, ()), process)
    since = [each.since_ns for each in counted.values() if each.since_ns]
    return CombinedTrouble(unavailable, min(since, default=0), reasons)
