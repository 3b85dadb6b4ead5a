"""The site's own clock. It measures the age of everything that is deleted because it is old.

The machine's wall clock may be wrong by years, for a while or for good. If stored wall-clock times were compared with
the present one, everything could expire at once: backups' pins, uploads, and what ended sessions left. The site's clock
only goes forward, and by no more than the time that has passed:

- While the machine runs, it advances by CLOCK_BOOTTIME, which counts seconds, sleep included, and which nobody sets.
- For the time that the machine was off, it advances by what the wall clock says has passed since the site's clock was
  last stored, but by at most `OFF_MOST_NS`.

So a wrong wall clock advances the site's clock by at most a day too much, once for each start of the machine. If a
machine was off for longer than a day, whatever waits to be deleted is kept for longer. The clock begins with the wall
clock's time. So its timestamps can be compared with those that older versions took from the journal's time.

The committer stores the clock in the journal's file (table `clock`, scratch). Any process on the same machine that can
read the file can tell the time. Times that people see are the wall clock's.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.errors import DiskFull
from gateway.timing import Clock, SystemClock

if TYPE_CHECKING:
    from gateway.journal.sqlite.store import SqliteStore

OFF_MOST_NS = 24 * 3600 * 10**9
"""How far the site's clock advances, at most, for the time that the machine was off."""
KEEP_NS = 3600 * 10**9
"""How often the committer stores the clock."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""This file holds another text after each start of the machine (random(4))."""

_CLOCK = "SELECT site_ns, wall_ns, boot, boot_ns FROM clock"
_HEAD = "SELECT at_ns FROM head"

Query = Callable[[str], Sequence[tuple[Any, ...]]]


class ClockReadings(NamedTuple):
    """The readings of the machine's clocks at one time."""

    wall_ns: int
    boot: str
    """The kernel's id of this start of the machine."""
    boot_ns: int
    """Nanoseconds since this start of the machine, by CLOCK_BOOTTIME."""


class ClockAnchor(NamedTuple):
    """The site's time at some moment, with the readings of the machine's clocks then: the row of `clock`."""

    site_ns: int
    wall_ns: int
    boot: str
    boot_ns: int

    def at(self, moment: ClockReadings) -> int:
        """The site's time at a later *moment*."""
        if moment.boot == self.boot:
            return self.site_ns + max(0, moment.boot_ns - self.boot_ns)
        return self.site_ns + min(max(0, moment.wall_ns - self.wall_ns), OFF_MOST_NS)


def clock_reader(clock: Clock) -> Callable[[], ClockReadings]:
    """A function that reads *clock* at each call."""
    return lambda: ClockReadings(clock.wall_ns(), _boot(), int(clock.boottime() * 1e9))


@cache
def _boot() -> str:
    """The kernel's id of this start of the machine; a random one for this process if the kernel has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


class SiteClock:
    """The site's clock for processes that only read it: each call reads the table `clock`."""

    def __init__(self, query: Query, moment: Callable[[], ClockReadings]) -> None:
        """*query* runs a statement on the site's tables; *moment* is one of `clock_reader`."""
        self._query = query
        self._moment = moment

    def now_ns(self) -> int:
        """The site's time in nanoseconds. In a file in which no committer has stored it yet, it is the wall clock's
        time, but at most `OFF_MOST_NS` later than the last batch."""
        moment = self._moment()
        for row in self._query(_CLOCK):
            return ClockAnchor._make(row).at(moment)
        for (last_ns,) in self._query(_HEAD):
            return min(moment.wall_ns, int(last_ns) + OFF_MOST_NS)
        return moment.wall_ns


class CommitterClock:
    """The site's clock for the committer, which also stores it. At most one exists at a time for each file."""

    def __init__(self, store: SqliteStore, moment: Callable[[], ClockReadings] | None = None) -> None:
        """*moment* is one of `clock_reader`; None: it reads the machine's clocks."""
        moment = moment or clock_reader(SystemClock())
        self._store = store
        self._moment = moment
        self._anchor = self._now(SiteClock(store.query, moment).now_ns())
        self._write()

    def now_ns(self) -> int:
        """The site's time in nanoseconds."""
        return self._anchor.at(self._moment())

    def store_if_due(self) -> None:
        """Store the clock if that is due. Called by the thread that writes the store."""
        if self.now_ns() - self._anchor.site_ns >= KEEP_NS:
            self._anchor = self._now(self.now_ns())
            self._write()

    def _now(self, site_ns: int) -> ClockAnchor:
        return ClockAnchor(site_ns, *self._moment())

    def _write(self) -> None:
        with contextlib.suppress(DiskFull):  # the clock is known all the same, until the machine starts again
            self._store.store_clock(*self._anchor)
