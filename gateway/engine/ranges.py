"""Resolve byte ranges (RFC 9110 section 14.1.2). Pure."""

from __future__ import annotations

from gateway.engine.types import ByteRange
from gateway.errors import InvalidArgument, InvalidRange


def resolve(wanted: ByteRange | None, size: int) -> tuple[int, int]:
    """Return (start, length) of *wanted* in an object of *size* bytes; the whole object for None.

    Raises `InvalidRange` if no byte of the range exists."""
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
    """Resolve a range of which every byte must exist, as a copied part requires.

    Raises `InvalidArgument` if a byte of the range does not exist."""
    if wanted is not None and max(wanted.start or 0, wanted.end or 0) >= size:
        raise InvalidArgument(f"Range specified is not valid for source object of size: {size}")
    return resolve(wanted, size)
