"""The time by which work is due: the wall clock, but never before the journal's time, and always advancing.

The journal's time never goes back. If the machine's clock was ahead and has been corrected, times in the journal lie in
the future, by hours or by years. Compared with the wall clock alone, none of that work would be due, and damaged copies
would not be repaired.
"""

from __future__ import annotations

from gateway.blocks.protocols import Tables
from gateway.timing import Clock


class WorkClock:
    """The time that `due_ns` is compared with. Ages of data (`placed_ns`, expiry) are measured by `SiteClock` instead,
    which a wrong wall clock puts forward by a day at most. For one thread."""

    def __init__(self, store: Tables, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._anchor_ns, self._anchor_monotonic = 0, clock.monotonic()

    def now_ns(self) -> int:
        """Return the later of the wall time and the journal's time. While the journal's is later, the result advances
        with the monotonic clock, until the wall clock has caught up.

        The monotonic clock is read before the others to advance, and after them as an anchor. So a pause between two
        readings never puts this clock ahead of another process's: what one makes due is due for the other at once."""
        monotonic = self._clock.monotonic()
        rows = self._store.query("SELECT at_ns FROM head")
        journal_ns = int(rows[0][0]) if rows else 0
        read_ns = max(self._clock.wall_ns(), journal_ns)
        advanced_ns = self._anchor_ns + int(max(0.0, monotonic - self._anchor_monotonic) * 1e9)
        if read_ns < advanced_ns:
            return advanced_ns
        self._anchor_ns, self._anchor_monotonic = read_ns, self._clock.monotonic()
        return read_ns
