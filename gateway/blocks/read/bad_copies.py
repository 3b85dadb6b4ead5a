"""Reporting bad copies for repair: each copy once in a while, and not too many in a second.

A read does not wait for a report, nor fail because of one. A copy that is not reported is found by the next read, or by
`fsck`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from gateway.blocks import metrics
from gateway.blocks.types import ReportBadCopy
from gateway.timing import Timing

_log = logging.getLogger(__name__)

REPORTS_PER_SECOND = 20.0
REMEMBERED_MAX = 4_096
"""Reported copies that are remembered, so that they are not reported again at once."""


class BadCopyReporter:
    """Limits the reports of one process."""

    def __init__(self, report: ReportBadCopy | None, timing: Timing) -> None:
        """*report* receives the reports; None drops them."""
        self._report = report
        self._clock = timing.clock.monotonic
        self._again_seconds = timing.blocks.report_again_seconds
        self._reported_s: OrderedDict[tuple[bytes, int], float] = OrderedDict()  # when, the oldest first
        self._allowed = REPORTS_PER_SECOND  # a token bucket that holds the reports of one second
        self._refilled_s = self._clock()

    def report(self, block_id: bytes, backend_id: int, fault: str) -> None:
        """Count the copy of a block on a backend as bad, and report it if that is due. *fault*: `ABSENT` or
        `DAMAGED`."""
        metrics.BAD.add(1, fault)
        if self._report is None or not self._take_report((block_id, backend_id)):
            return
        try:
            self._report(block_id, backend_id, fault)
        except Exception:  # noqa: BLE001 (a failing report must not fail a read)
            _log.exception("a bad copy could not be reported")

    def _take_report(self, copy: tuple[bytes, int]) -> bool:
        now = self._clock()
        reported_s = self._reported_s.get(copy)
        if reported_s is not None and now - reported_s < self._again_seconds:
            return False
        self._allowed = min(REPORTS_PER_SECOND, self._allowed + (now - self._refilled_s) * REPORTS_PER_SECOND)
        self._refilled_s = now
        if self._allowed < 1.0:
            return False
        self._allowed -= 1.0
        self._reported_s[copy] = now
        self._reported_s.move_to_end(copy)
        if len(self._reported_s) > REMEMBERED_MAX:
            self._reported_s.popitem(last=False)
        return True
