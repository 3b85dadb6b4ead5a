"""The values inside packed columns: small tuples, stored as msgpack arrays, new fields last. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack


class Extent(NamedTuple):
    """A stretch of plain bytes, and the frames of a block that hold it."""

    block: bytes
    offset: int
    """Where its first frame begins in the sealed block, in bytes."""
    frame: int
    """The number of its first frame in the block."""
    length: int
    """Plain bytes."""


class Piece(NamedTuple):
    """A slice of a run, in plain bytes."""

    run: int
    offset: int
    length: int


class Rewritten(NamedTuple):
    """An extent of a run, and its copy in a new pack."""

    run: int
    nth: int
    """Which of the run's extents."""
    before: Extent
    """As it was read."""
    after: Extent


class PartSummary(NamedTuple):
    """What a completed object remembers of each of its parts."""

    number: int
    size: int
    etag: str
    crc64nvme: int
    checksum: str


class UploadAt(NamedTuple):
    """An upload in a bucket that is known."""

    key: bytes
    id: int


class Staged(NamedTuple):
    """Bodies that an upload holds until its completion takes over what they hold (`namespace/preparing.py`)."""

    digest: bytes = b""
    """BLAKE2b-128 over all pieces that the completion needs counted."""
    bodies: tuple[int, ...] = ()
    """Their ids. The n-th holds the n-th slice of these pieces."""


class Checksum(NamedTuple):
    """A checksum of a whole object, as S3 shows it."""

    algorithm: str
    """CRC32, CRC32C, CRC64NVME, SHA1 or SHA256."""
    type: str
    """COMPOSITE or FULL_OBJECT."""
    value: str
    """Base64, with `-N` behind it when composite."""


class Completed(NamedTuple):
    """What a completion answered."""

    etag: str
    version: int
    null: bool
    checksum: Checksum | None
    digest: bytes
    """BLAKE2b-128 over the part list that was asked for: a repeat must ask for the same."""
    size: int = 0


def pack(value: Any) -> bytes:
    """*value* as msgpack; tuples become arrays."""
    return msgpack.packb(value)  # type: ignore[no-any-return]


def unpack(packed: bytes) -> Any:
    """The value in *packed*, arrays as tuples; None for an empty column."""
    return msgpack.unpackb(packed, use_list=False, strict_map_key=False) if packed else None


def pack_map(values: Mapping[Any, Any]) -> bytes:
    """A map for a packed column; the empty map is the empty column."""
    return pack(dict(values)) if values else b""


def unpack_map(packed: bytes) -> dict[Any, Any]:
    return unpack(packed) or {}


def unpack_extents(packed: bytes) -> list[Extent]:
    return [Extent._make(each) for each in unpack(packed) or ()]


def unpack_rewritten(packed: bytes) -> list[Rewritten]:
    return [
        Rewritten(run, nth, Extent._make(before), Extent._make(after))
        for run, nth, before, after in unpack(packed) or ()
    ]


def pack_ranges(numbers: Iterable[int]) -> bytes:
    """Ascending *numbers* for a packed column, as a list of [first, last] of each stretch without a gap."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return pack_list(map(tuple, ranges))


def in_ranges(number: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether *number* is one of those that were packed; *ranges*: unpacked."""
    at = bisect_right(ranges, (number, _ABOVE)) - 1
    return at >= 0 and number <= ranges[at][1]


_ABOVE = 1 << 63

FIRST_BLOCK_SQL = "substr({}, 5, 24)"
"""In SQL, the block of the first of a column's packed extents, where they are less than sixteen: an array's head, its
first element's head, the two bytes before a blob of 24. Of more extents it is no block's id."""


UNPACKED_AT_ONCE = 32 << 10
"""How many bytes are unpacked in one call at most, which no other thread interrupts."""


def unpack_pieces(packed: bytes) -> list[Piece]:
    """Many of them are unpacked one after the other, so that other threads can run in between."""
    if len(packed) <= UNPACKED_AT_ONCE:
        return [Piece._make(each) for each in unpack(packed) or ()]
    unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=len(packed))
    unpacker.feed(packed)
    return [Piece._make(unpacker.unpack()) for _ in range(unpacker.read_array_header())]


def unpack_staged(packed: bytes) -> Staged:
    return Staged._make(unpack(packed) or Staged())


def unpack_parts(packed: bytes) -> list[PartSummary]:
    return [PartSummary._make(each) for each in unpack(packed) or ()]


def first_checksum(packed: bytes) -> Checksum | None:
    """The first checksum in a file's packed column."""
    found = unpack_checksums(packed)
    return found[0] if found else None


def unpack_checksums(packed: bytes) -> list[Checksum]:
    return [Checksum._make(each) for each in unpack(packed) or ()]


PACKED_AT_ONCE = 1_000
"""How many tuples are packed in one call at most, which no other thread interrupts."""


def pack_list(values: Iterable[tuple[Any, ...]]) -> bytes:
    """A list of tuples for a packed column; none is the empty column. Packs one tuple after the other, so that other
    threads can run in between: packing 100,000 in one call would keep them waiting."""
    listed = list(values)
    if len(listed) <= PACKED_AT_ONCE:
        return pack(listed) if listed else b""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(len(listed))
    for each in listed:
        packer.pack(each)
    return packer.bytes()  # type: ignore[no-any-return]


CHECKSUM_KIND_BYTES = 24
"""A kind's greatest length."""


def checksum_kind(packed: bytes | None) -> bytes:
    """Of packed checksums, or of no less than their first `CHECKSUM_KIND_BYTES`, what tells the first one's algorithm
    and type; empty where there is none. See `kind_names`."""
    if not packed:
        return b""
    # an array of arrays of short texts: a byte of length before each
    middle = 3 + (packed[2] & 31)
    return packed[: middle + 1 + (packed[middle] & 31)]


def kind_names(kind: bytes) -> tuple[str, str]:
    """Algorithm and type of a kind; empty for none."""
    if not kind:
        return "", ""
    middle = 3 + (kind[2] & 31)
    return kind[3:middle].decode(), kind[middle + 1 :].decode()
