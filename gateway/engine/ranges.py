"""Which plain bytes a byte-range names. Pure. RFC 9110 section 14.1.2."""

from __future__ import annotations

from gateway.engine.types import ByteRange
from gateway.errors import InvalidRange


def resolve(wanted: ByteRange | None, size: int) -> tuple[int, int]:
    """(start, length) of *wanted* in an object of *size* bytes; all of it for None.

    Raises `InvalidRange` where no byte of the range exists."""
    if wanted is None:
        return 0, size
    if wanted.start is None:
        length = min(wanted.end or 0, size)
        if length == 0:
            raise InvalidRange(f"bytes=-{wanted.end}", size)
        return size - length, length
    if wanted.start >= size:
        raise InvalidRange(f"bytes={wanted.start}-{'' if wanted.end is None else wanted.end}", size)
    end = size - 1 if wanted.end is None else min(wanted.end, size - 1)
    return wanted.start, end - wanted.start + 1
