"""Until when a restored site keeps the data that its original wrote after the backup."""

from __future__ import annotations

from gateway.journal.site_clock import SiteClock, clock_reader
from gateway.journal.whereabouts import RESTORE_PIN
from gateway.site.storage.keyring import JournalTables
from gateway.timing import Clock


def newer_kept_until_ns(rows: JournalTables, clock: Clock) -> int | None:
    """Return until when, by the wall clock, a restored site deletes nothing; None if it deletes as usual."""
    now_ns = SiteClock(rows.query, clock_reader(clock)).now_ns()
    pinned = "SELECT until_ns FROM pin WHERE id = ? AND until_ns > ?"
    for (until_ns,) in rows.query(pinned, (RESTORE_PIN, now_ns)):
        return clock.wall_ns() + int(until_ns) - now_ns
    return None
