"""Which modules still read the machine's clocks or hold durations themselves: none that is not listed here."""

from __future__ import annotations

import re

from tests.endpoint import ROOT

READS = re.compile(
    r"\btime\.(time|time_ns|monotonic|monotonic_ns|clock_gettime)\b|^\w*SECONDS\w* = [\d(]", re.MULTILINE
)
LEFT = {}
"""To be taken off when they take a `Timing`; never to be added to."""


def test_no_other_module_reads_a_clock_or_holds_a_duration() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ("gateway", "backends", "s3api")
        for path in (ROOT / room).rglob("*.py")
        if "timing" not in path.parts and READS.search(path.read_text())
    }
    assert found == LEFT
