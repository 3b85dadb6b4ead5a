"""Format and parse HTTP dates. Pure."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

SECOND_NS = 1_000_000_000
DATE_CHARS = 100
"""The longest text that is parsed as a date."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@lru_cache(maxsize=16384)
def http_date(second: int) -> str:
    """Format seconds since the epoch as `Sun, 06 Nov 1994 08:49:37 GMT`, in any locale (RFC 9110 section 5.6.7)."""
    at = time.gmtime(second)
    return (
        f"{_DAYS[at.tm_wday]}, {at.tm_mday:02d} {_MONTHS[at.tm_mon]} {at.tm_year:04d} "
        f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d} GMT"
    )


def parse_date(text: str) -> int | None:
    """Parse an HTTP date, in any of its three forms, or an ISO 8601 date, which SDKs also send. Returns nanoseconds
    since the epoch, or None for an invalid date: a condition with such a date is ignored (RFC 9110 section 13.1)."""
    if len(text) > DATE_CHARS:
        return None
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            return None
    try:
        at = date if date.tzinfo else date.replace(tzinfo=UTC)
        return int(at.timestamp()) * SECOND_NS
    except (ValueError, OverflowError):
        return None
