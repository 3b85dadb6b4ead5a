"""Limits how often one message is logged: a condition that lasts is not logged each time that something meets it."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from gateway.timing import Clock

MESSAGES_MAX = 1_000
"""Messages that are remembered. The one that was logged the longest ago is forgotten first."""
LINES_MAX = 10
"""How many lines with different arguments one message may have in each interval."""


class _Logged(NamedTuple):
    at: float
    """When the interval began, by the monotonic clock."""
    texts: frozenset[str]
    """The texts that were logged in it."""
    left_out: int


class RepeatedLines:
    """Decides which lines are logged. Used under the lock of a logging handler."""

    def __init__(self, clock: Clock, interval_seconds: float) -> None:
        self._monotonic, self._interval_seconds = clock.monotonic, interval_seconds
        self._logged: OrderedDict[tuple[str, str], _Logged] = OrderedDict()

    def count_left_out(self, logger: str, message: str, text: str) -> int | None:
        """Return how many lines of this message were left out since the last one, if the line is to be logged now; None
        if it is left out.

        *message*: the message without its arguments. *text*: with them. The same text is logged once in each interval,
        and at most `LINES_MAX` texts of one message are."""
        key, now = (logger, message), self._monotonic()
        before = self._logged.pop(key, None)
        if before is None or now - before.at >= self._interval_seconds:
            left_out = 0 if before is None else before.left_out
            self._remember(key, _Logged(now, frozenset({text}), 0))
            return left_out
        if text in before.texts or len(before.texts) >= LINES_MAX:
            self._remember(key, before._replace(left_out=before.left_out + 1))
            return None
        self._remember(key, before._replace(texts=before.texts | {text}))
        return 0

    def _remember(self, key: tuple[str, str], logged: _Logged) -> None:
        self._logged[key] = logged
        if len(self._logged) > MESSAGES_MAX:
            self._logged.popitem(last=False)
