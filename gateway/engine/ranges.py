"""Which plain bytes a byte-range names. Pure. RFC 9110 section 14.1.2."""

from __future__ import annotations

from gateway.engine.types import ByteRange
from gateway.errors import InvalidArgument, InvalidRange


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


def resolve_whole(wanted: ByteRange | None, size: int) -> tuple[int, int]:
    """As `resolve`, for one who must get every byte that was asked for, as a copy of a part does.

    Raises `InvalidArgument` where any byte of the range is missing."""
    if wanted is not None and max(wanted.start or 0, wanted.end or 0) >= size:
        raise InvalidArgument(f"Range specified is not valid for source object of size: {size}")
    return resolve(wanted, size)
