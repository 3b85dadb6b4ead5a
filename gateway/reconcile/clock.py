"""The time by which work is due: the machine's, but never behind the journal's, and never standing still.

The journal's time does not go back. So where the machine's clock was ahead and has been put right, what the journal
noted lies in the future, for hours or for years; held against the machine's time alone, nothing of it would be due, and
what is damaged would not be mended.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.blocks.working import Tables


class Clock:
    """For one thread."""

    def __init__(
        self,
        store: Tables,
        told_ns: Callable[[], int] = time.time_ns,
        ticking_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """*told_ns*: the machine's time. *ticking_ns*: what tells how much of it has passed, wherever it was put."""
        self._store = store
        self._told_ns = told_ns
        self._ticking_ns = ticking_ns
        self._now_ns, self._ticked_ns = 0, ticking_ns()

    def now_ns(self) -> int:
        """It goes on with the journal's time until the machine's has caught up."""
        ticked_ns = self._ticking_ns()
        rows = self._store.query("SELECT at_ns FROM head")
        journal_ns = int(rows[0][0]) if rows else 0
        self._now_ns = max(self._told_ns(), journal_ns, self._now_ns + ticked_ns - self._ticked_ns)
        self._ticked_ns = ticked_ns
        return self._now_ns
