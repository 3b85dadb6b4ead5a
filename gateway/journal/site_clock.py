"""The site's own clock. It measures the age of everything that is deleted because it is old.

The machine's wall clock may be wrong by years, for a while or permanently. If stored wall-clock times were compared
with the present one, everything could expire at once: backups' pins, uploads, and the blocks of ended sessions. The
site's clock only goes forward, and by no more than the time that has passed:

- While the machine runs, it advances by CLOCK_BOOTTIME, which counts seconds, includes suspension, and cannot be set.
- For the time that the machine was off, it advances by what the wall clock says has passed since the site's clock was
  last stored, but by at most `OFF_MOST_NS`.

So a wrong wall clock advances the site's clock by at most a day too much, once for each start of the machine. If a
machine was off for longer than a day, what is to be deleted is kept for longer. The clock starts at the wall clock's
time, so its timestamps can be compared with those that older versions took from the journal's time.

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
STORE_INTERVAL_NS = 3600 * 10**9
"""How often the committer stores the clock."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""The contents of this file change with each start of the machine (random(4))."""

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
    """The site's time at some moment, and the readings of the machine's clocks at that moment: the row of `clock`."""

    site_ns: int
    wall_ns: int
    boot: str
    boot_ns: int

    def at(self, now: ClockReadings) -> int:
        """Return the site's time at a later moment, whose readings are *now*."""
        if now.boot == self.boot:
            return self.site_ns + max(0, now.boot_ns - self.boot_ns)
        return self.site_ns + min(max(0, now.wall_ns - self.wall_ns), OFF_MOST_NS)


def clock_reader(clock: Clock) -> Callable[[], ClockReadings]:
    """Return a function that reads the machine's clocks through *clock*."""
    return lambda: ClockReadings(clock.wall_ns(), _boot(), int(clock.boottime() * 1e9))


@cache
def _boot() -> str:
    """Return the kernel's id of this start of the machine. If the kernel has none, it is random for this process."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


class SiteClock:
    """The site's clock for processes that only read it: each call reads the table `clock`."""

    def __init__(self, query: Query, read_clocks: Callable[[], ClockReadings]) -> None:
        """*query* runs a statement on the site's tables. *read_clocks* is made by `clock_reader`."""
        self._query = query
        self._read_clocks = read_clocks

    def now_ns(self) -> int:
        """Return the site's time in nanoseconds. If no committer has stored it in the file yet, it is the wall clock's
        time, but at most `OFF_MOST_NS` later than the last batch."""
        now = self._read_clocks()
        for row in self._query(_CLOCK):
            return ClockAnchor._make(row).at(now)
        for (last_ns,) in self._query(_HEAD):
            return min(now.wall_ns, int(last_ns) + OFF_MOST_NS)
        return now.wall_ns


class CommitterClock:
    """The site's clock for the committer, which also stores it. At most one exists at a time for each file."""

    def __init__(self, store: SqliteStore, read_clocks: Callable[[], ClockReadings] | None = None) -> None:
        """*read_clocks* is made by `clock_reader`; None: it reads the machine's clocks."""
        read_clocks = read_clocks or clock_reader(SystemClock())
        self._store = store
        self._read_clocks = read_clocks
        self._anchor = self._anchor_at(SiteClock(store.query, read_clocks).now_ns())
        self._write()

    def now_ns(self) -> int:
        """Return the site's time in nanoseconds."""
        return self._anchor.at(self._read_clocks())

    def store_if_due(self) -> None:
        """Store the clock if it was last stored `STORE_INTERVAL_NS` ago. Called by the thread that writes the store."""
        if self.now_ns() - self._anchor.site_ns >= STORE_INTERVAL_NS:
            self._anchor = self._anchor_at(self.now_ns())
            self._write()

    def _anchor_at(self, site_ns: int) -> ClockAnchor:
        return ClockAnchor(site_ns, *self._read_clocks())

    def _write(self) -> None:
        with contextlib.suppress(DiskFull):  # the anchor in memory is valid until the machine restarts
            self._store.store_clock(*self._anchor)
