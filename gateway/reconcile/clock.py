"""The time by which work is due: the wall clock, but never before the journal's time, and always advancing.

The journal's time never goes back. If the machine's clock was ahead and has been corrected, times in the journal lie in
the future, by hours or by years. Compared with the wall clock alone, none of that work would be due, and damaged copies
would not be repaired.
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
        """Return the later of the wall time and the journal's time. While the journal's is later, the result advances
        with the monotonic clock, until the wall clock has caught up."""
        monotonic = self._clock.monotonic()
        rows = self._store.query("SELECT at_ns FROM head")
        journal_ns = int(rows[0][0]) if rows else 0
        passed_ns = int((monotonic - self._monotonic) * 1e9)
        self._now_ns = max(self._clock.wall_ns(), journal_ns, self._now_ns + passed_ns)
        self._monotonic = monotonic
        return self._now_ns
