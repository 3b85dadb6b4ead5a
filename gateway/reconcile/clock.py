"""The time by which work is due: the machine's, but never behind the journal's, and never standing still.

The journal's time does not go back. So where the machine's clock was ahead and has been put right, what the journal
noted lies in the future, for hours or for years; held against the machine's time alone, nothing of it would be due, and
what is damaged would not be mended.
"""

from __future__ import annotations

from gateway.blocks.protocols import Tables
from gateway.timing import Clock


class JournalClock:
    """For one thread."""

    def __init__(self, store: Tables, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._now_ns, self._monotonic = 0, clock.monotonic()

    def now_ns(self) -> int:
        """The later of the machine's wall time and the journal's; where that is the journal's, it goes on with the
        machine's monotonic clock until the wall clock has caught up."""
        monotonic = self._clock.monotonic()
        rows = self._store.query("SELECT at_ns FROM head")
        journal_ns = int(rows[0][0]) if rows else 0
        passed_ns = int((monotonic - self._monotonic) * 1e9)
        self._now_ns = max(self._clock.wall_ns(), journal_ns, self._now_ns + passed_ns)
        self._monotonic = monotonic
        return self._now_ns
