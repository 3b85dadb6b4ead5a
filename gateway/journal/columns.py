"""The values of packed columns: small tuples, stored as msgpack arrays. New fields come last. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack


class Extent(NamedTuple):
    """A range of plain bytes, and the frames of a block that contain it."""

    block: bytes
    offset: int
    """The position of its first frame in the sealed block, in bytes."""
    frame: int
    """The index of its first frame in the block."""
    length: int
    """In plain bytes."""


class Piece(NamedTuple):
    """A slice of a run, in plain bytes."""

    run: int
    offset: int
    length: int


class Rewritten(NamedTuple):
    """An extent of a run, and its copy in a new pack."""

    run: int
    nth: int
    """The index of the extent in the run."""
    before: Extent
    """The extent as it was when it was read."""
    after: Extent


class PartSummary(NamedTuple):
    """A part of a completed object."""

    number: int
    size: int
    etag: str
    crc64nvme: int
    checksum: str


class UploadAt(NamedTuple):
    """An upload in a bucket that the context names."""

    key: bytes
    id: int


class Staged(NamedTuple):
    """Staged bodies: those that an upload holds until its completion takes over what they hold
    (`namespace/commands/complete_prepared.py`)."""

    digest: bytes = b""
    """BLAKE2b-128 over all pieces whose runs the completion needs to be counted."""
    bodies: tuple[int, ...] = ()
    """Their ids. The n-th body has the n-th slice of these pieces."""


class Checksum(NamedTuple):
    """A checksum of a whole object, as S3 shows it."""

    algorithm: str
    """CRC32, CRC32C, CRC64NVME, SHA1 or SHA256."""
    type: str
    """COMPOSITE or FULL_OBJECT."""
    value: str
    """Base64, followed by `-N` if it is composite."""


class Completed(NamedTuple):
    """The answer to a completed upload, stored for repeated requests."""

    etag: str
    version: int
    null: bool
    checksum: Checksum | None
    digest: bytes
    """BLAKE2b-128 over the part list of the request: a repeated request must have the same."""
    size: int = 0


def pack(value: Any) -> bytes:
    """Encode *value* with msgpack; tuples become arrays."""
    return msgpack.packb(value)  # type: ignore[no-any-return]


def unpack(packed: bytes) -> Any:
    """Decode a packed column, arrays as tuples. Returns None for an empty column."""
    return msgpack.unpackb(packed, use_list=False, strict_map_key=False) if packed else None


def pack_map(values: Mapping[Any, Any]) -> bytes:
    """Encode a map for a packed column; the empty map becomes the empty column."""
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
    """Encode ascending *numbers* for a packed column, as a list of [first, last] of each range without a gap."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return pack_list(map(tuple, ranges))


def in_ranges(number: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether *number* is in the unpacked *ranges* of `pack_ranges`."""
    at = bisect_right(ranges, (number, _ABOVE)) - 1
    return at >= 0 and number <= ranges[at][1]


_ABOVE = 1 << 63

FIRST_BLOCK_SQL = "substr({}, 5, 24)"
"""In SQL, the block id of the first of a column's packed extents, if they are fewer than sixteen: it follows the head
of the array, the head of its first element and the two bytes before a blob of 24. If there are more, the result is not
the id of a block."""


UNPACKED_AT_ONCE = 32 << 10
"""The most bytes that are unpacked in one call, during which no other thread can run."""


def unpack_pieces(packed: bytes) -> list[Piece]:
    """Decode pieces. If there are many, they are decoded one by one, so that other threads can run in between."""
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
    """Return the first checksum of a packed column, None if it has none."""
    checksums = unpack_checksums(packed)
    return checksums[0] if checksums else None


def unpack_checksums(packed: bytes) -> list[Checksum]:
    return [Checksum._make(each) for each in unpack(packed) or ()]


PACKED_AT_ONCE = 1_000
"""The most tuples that are packed in one call, during which no other thread can run."""


def pack_list(values: Iterable[tuple[Any, ...]]) -> bytes:
    """Encode tuples for a packed column; no tuple becomes the empty column. Many tuples are encoded one by one, so that
    other threads can run in between: encoding 100,000 in one call would delay them."""
    listed = list(values)
    if len(listed) <= PACKED_AT_ONCE:
        return pack(listed) if listed else b""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(len(listed))
    for each in listed:
        packer.pack(each)
    return packer.bytes()  # type: ignore[no-any-return]


CHECKSUM_KIND_BYTES = 24
"""The greatest length of a kind."""


def checksum_kind(packed: bytes | None) -> bytes:
    """Return the prefix of packed checksums that contains the algorithm and the type of the first one; empty if there
    is none. *packed* may be cut after `CHECKSUM_KIND_BYTES`. `kind_names` decodes the result."""
    if not packed:
        return b""
    # an array of arrays of short texts, each preceded by one byte with its length
    middle = 3 + (packed[2] & 31)
    return packed[: middle + 1 + (packed[middle] & 31)]


def kind_names(kind: bytes) -> tuple[str, str]:
    """Return the algorithm and the type of a kind; both empty for an empty kind."""
    if not kind:
        return "", ""
    middle = 3 + (kind[2] & 31)
    return kind[3:middle].decode(), kind[middle + 1 :].decode()
