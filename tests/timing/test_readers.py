"""Which modules still read the machine's clocks or hold durations themselves: none that is not listed here."""

from __future__ import annotations

import re

from tests.endpoint import ROOT

READS = re.compile(
    r"\btime\.(time|time_ns|monotonic|monotonic_ns|clock_gettime)\b|^\w*SECONDS\w* = [\d(]", re.MULTILINE
)
LEFT = {
    "backends/retrying.py",
    "gateway/cli/keeping_house.py",
    "gateway/config/models.py",
    "gateway/config/places.py",
    "gateway/failpoints.py",
    "gateway/identity/sigv4.py",
    "gateway/journal/server.py",
    "gateway/journal/whereabouts.py",
    "gateway/metrics/instruments.py",
    "gateway/metrics/lines.py",
    "gateway/metrics/loop_lag.py",
    "gateway/posix/gateways.py",
    "gateway/posix/looking.py",
    "gateway/site/again.py",
    "gateway/site/fencing.py",
    "gateway/site/guarded.py",
    "gateway/site/standing.py",
    "gateway/site/standings.py",
    "gateway/site/takeover.py",
    "gateway/site/tls.py",
    "gateway/site/upkeep.py",
    "gateway/topology/policies.py",
}
"""To be taken off when they take a `Timing`; never to be added to."""


def test_no_other_module_reads_a_clock_or_holds_a_duration() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ("gateway", "backends", "s3api")
        for path in (ROOT / room).rglob("*.py")
        if path.parent != ROOT / "gateway/timing" and READS.search(path.read_text())
    }
    assert found - LEFT == set(), "take durations and clocks from a Timing (gateway/timing)"
