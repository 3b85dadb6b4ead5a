"""Telling whoever repairs which copies are no good: each once in a while, and not too many of them.

A read must not wait for that nor fail by it. What is left out is found by the next read, or by `fsck`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from gateway.blocks import metrics
from gateway.blocks.types import ReportBadCopy
from gateway.timing import Timing

_log = logging.getLogger(__name__)

MOST_A_SECOND = 20.0
REMEMBERED = 4_096


class BadCopyReporter:
    """What a process reports."""

    def __init__(self, report: ReportBadCopy | None, timing: Timing) -> None:
        self._report = report
        self._clock = timing.clock.monotonic
        self._again_seconds = timing.blocks.report_again_seconds
        self._told: OrderedDict[tuple[bytes, int], float] = OrderedDict()  # when, oldest first
        self._may = MOST_A_SECOND
        self._counted_s = self._clock()

    def tell(self, block: bytes, backend: int, word: str) -> None:
        """The copy of *block* on *backend* is no good."""
        metrics.BAD.add(1, word)
        if self._report is None or not self._is_due((block, backend)):
            return
        try:
            self._report(block, backend, word)
        except Exception:  # noqa: BLE001 (whatever goes wrong there, a read goes on)
            _log.exception("a copy that is no good could not be reported")

    def _is_due(self, copy: tuple[bytes, int]) -> bool:
        now = self._clock()
        told = self._told.get(copy)
        if told is not None and now - told < self._again_seconds:
            return False
        self._may = min(MOST_A_SECOND, self._may + (now - self._counted_s) * MOST_A_SECOND)
        self._counted_s = now
        if self._may < 1.0:
            return False
        self._may -= 1.0
        self._told[copy] = now
        self._told.move_to_end(copy)
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return True
