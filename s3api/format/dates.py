"""HTTP's dates, both ways. Pure but for the clock that a caller hands in."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

SECOND_NS = 1_000_000_000
DATE_CHARS = 100
"""The longest text that is read as a date."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@lru_cache(maxsize=16384)
def http_date(second: int) -> str:
    """`Sun, 06 Nov 1994 08:49:37 GMT`, whatever the locale. RFC 9110 section 5.6.7."""
    at = time.gmtime(second)
    return (
        f"{_DAYS[at.tm_wday]}, {at.tm_mday:02d} {_MONTHS[at.tm_mon]} {at.tm_year:04d} "
        f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d} GMT"
    )


def parse_date(text: str) -> int | None:
    """Nanoseconds since the epoch of an HTTP date, in any of its three forms, or of an ISO 8601 one, which SDKs send
    as well. None for what is no date: RFC 9110 section 13.1 has such a condition ignored."""
    if len(text) > DATE_CHARS:
        return None
    try:
        found = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            return None
    try:
        at = found if found.tzinfo else found.replace(tzinfo=UTC)
        return int(at.timestamp()) * SECOND_NS
    except (ValueError, OverflowError):
        return None
