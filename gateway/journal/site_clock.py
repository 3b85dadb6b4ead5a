"""The site's own clock: how much time has passed, for whatever is deleted because it is old.

The machine's wall clock may be wrong by years, for a while or for good, so a stored wall-clock time that is compared
with "now" could expire everything at once: backups' pins, uploads, what ended sessions left. The site's clock only
goes forward, and by no more than the time that has passed:

- While the machine is up, by CLOCK_BOOTTIME, which counts seconds, sleep included, and which nobody sets.
- While it was off, by what the wall clock says has passed since the clock was last kept, but at most `OFF_MOST_NS`.

So a wrong wall clock costs at most a day, once for each start of the machine. Where a machine was off for longer,
what waits to be deleted is kept for longer. The clock begins with the wall clock's time, so its stamps and those that
older versions took from the journal's time can be compared.

The committer keeps the clock in the journal's file (`clock`, scratch); whoever reads that file, on the same machine,
can tell the time. Times that people see are the wall clock's.
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
"""So much time at most passes while the machine is off."""
KEEP_NS = 3600 * 10**9
"""How often the committer writes down where the clock stands."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Another text after each start of the machine (random(4))."""

_CLOCK = "SELECT site_ns, wall_ns, boot, boot_ns FROM clock"
_HEAD = "SELECT at_ns FROM head"

Query = Callable[[str], Sequence[tuple[Any, ...]]]


class Moment(NamedTuple):
    """What the machine's clocks say."""

    wall_ns: int
    boot: str
    """Which start of the machine this is."""
    boot_ns: int
    """Since then."""


class Anchor(NamedTuple):
    """Where the site's clock stood at some moment: the row of `clock`."""

    site_ns: int
    wall_ns: int
    boot: str
    boot_ns: int

    def at(self, moment: Moment) -> int:
        """The site's time at a later *moment*."""
        if moment.boot == self.boot:
            return self.site_ns + max(0, moment.boot_ns - self.boot_ns)
        return self.site_ns + min(max(0, moment.wall_ns - self.wall_ns), OFF_MOST_NS)


def moments(clock: Clock) -> Callable[[], Moment]:
    """Tells what *clock* says at each call."""
    return lambda: Moment(clock.wall_ns(), _boot(), int(clock.boottime() * 1e9))


@cache
def _boot() -> str:
    """Which start of the machine this is; one of this process's own where the kernel does not tell."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


class SiteClock:
    """The clock, read from the tables at each look."""

    def __init__(self, query: Query, moment: Callable[[], Moment]) -> None:
        """*query* runs a statement on the site's tables; *moment* is one of `moments`."""
        self._query = query
        self._moment = moment

    def now_ns(self) -> int:
        """The site's time, nanoseconds. In a file where no committer kept it yet it is the wall clock's, but at most
        `OFF_MOST_NS` behind the last batch."""
        moment = self._moment()
        for row in self._query(_CLOCK):
            return Anchor._make(row).at(moment)
        for (last_ns,) in self._query(_HEAD):
            return min(moment.wall_ns, int(last_ns) + OFF_MOST_NS)
        return moment.wall_ns


class KeptClock:
    """The clock, as the committer keeps it. Of a file, one at a time."""

    def __init__(self, store: SqliteStore, moment: Callable[[], Moment] | None = None) -> None:
        """*moment* is one of `moments`; None: it is that of the machine's clocks."""
        moment = moment or moments(SystemClock())
        self._store = store
        self._moment = moment
        self._anchor = self._now(SiteClock(store.query, moment).now_ns())
        self._write()

    def now_ns(self) -> int:
        """The site's time, nanoseconds."""
        return self._anchor.at(self._moment())

    def keep(self) -> None:
        """Write down where the clock stands, where that is due. For the thread that writes the store."""
        if self.now_ns() - self._anchor.site_ns >= KEEP_NS:
            self._anchor = self._now(self.now_ns())
            self._write()

    def _now(self, site_ns: int) -> Anchor:
        return Anchor(site_ns, *self._moment())

    def _write(self) -> None:
        with contextlib.suppress(DiskFull):  # the clock is known all the same, until the machine starts again
            self._store.keep_clock(*self._anchor)
