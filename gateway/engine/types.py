"""What goes over the front desk's counter: plain values, neither S3's nor POSIX's. Pure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.journal.columns import Checksum, PartSummary, first_checksum
from gateway.namespace.read.pages import (
    Listed,
    ListedVersion,
    Page,
    PartInfo,
    PartPage,
    UploadInfo,
    UploadPage,
    VersionPage,
)

__all__ = [
    "NO_CONDITIONS", "Body", "BucketInfo", "Buffer", "ByteRange", "Caller", "Conditions", "DeleteOne", "Deleted",
    "Listed", "ListedVersion", "Meta", "ObjectInfo", "Opened", "Page", "PartInfo", "PartPage", "Promised", "Stored",
    "UploadInfo", "UploadPage", "VersionPage", "WantedPart",
]  # fmt: skip

Buffer = bytes | bytearray | memoryview


class Caller(NamedTuple):
    """Who asks: a user that identity has verified. `root` may do everything."""

    user: str
    user_id: int
    tenant: int
    root: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """Preconditions on the current (or the named) version. ETags without quotes; `*` stands alone in the tuple.

    RFC 9110 section 13; for writes, S3's PutObject, CopyObject, CompleteMultipartUpload and DeleteObject.
    """

    if_match: tuple[str, ...] = ()
    if_none_match: tuple[str, ...] = ()
    if_modified_since_ns: int | None = None
    if_unmodified_since_ns: int | None = None
    if_size: int | None = None
    """DeleteObject's x-amz-if-match-size."""
    if_modified_at_ns: int | None = None
    """DeleteObject's x-amz-if-match-last-modified-time, compared to the second."""


NO_CONDITIONS = Conditions()


@dataclass(frozen=True, slots=True)
class Promised:
    """What the client says that its bytes are; checked before anything is committed."""

    size: int | None = None
    md5: bytes | None = None
    """Content-MD5, 16 bytes."""
    sha256: str | None = None
    """SigV4's payload hash, hex."""
    checksum: tuple[str, str] | None = None
    """(algorithm, base64), known in advance; a trailer's is told by `TrailingChecksum`."""


class Body:
    """Bytes on their way in, and what is known of them only behind the last one."""

    def __aiter__(self) -> AsyncIterator[Buffer]:
        raise TypeError("a body gives its own iterator")

    def trailing_checksum(self) -> tuple[str, str] | None:
        """(algorithm, base64) that came behind the bytes, None if none did. Valid once the iterator has ended."""
        return None


@dataclass(frozen=True, slots=True)
class Meta:
    """What a client says of an object besides its bytes."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """content-type, content-encoding, …, and user metadata as `x-amz-meta-…`; lower-case names."""
    tags: Mapping[str, str] = field(default_factory=dict)


class Stored(NamedTuple):
    """What a PUT, copy or completion answers."""

    etag: str
    version: str | None
    """S3's version id; None where the bucket never had versioning."""
    size: int
    modified_ns: int
    checksum: Checksum | None


class ObjectInfo(NamedTuple):
    """One version of an object."""

    key: bytes
    size: int
    etag: str
    modified_ns: int
    version: str | None
    """As `Stored.version`."""
    is_latest: bool
    headers: Mapping[str, str]
    tags_count: int
    checksums: bytes
    """packed, as in `File`"""
    parts_count: int
    """0 unless it was uploaded in parts."""
    owner: int

    @property
    def checksum(self) -> Checksum | None:
        """The one to show. Few ask, so it is unpacked for them alone."""
        return first_checksum(self.checksums)


class Opened(NamedTuple):
    """An object opened for reading: its facts, the plain range that will come, and the bytes."""

    info: ObjectInfo
    start: int
    length: int
    part: PartSummary | None
    """The part that was asked for by number."""
    whole: Buffer | None
    """All the bytes, where they were at hand at once (small ranges); otherwise read `chunks`."""
    chunks: AsyncIterator[Buffer]
    """The bytes, in pieces of at most a block; fails with `Corrupted` or `Unavailable`, never with wrong bytes.
    Must be closed (`aclose`) when it is not read to its end."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """RFC 9110's byte-range: `start` None is a suffix of `end` bytes; `end` is inclusive, None to the end."""

    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a DELETE answers."""

    version: str | None
    """The version that went, or the delete marker that was made."""
    marker: bool
    """A delete marker was made, or one was deleted."""


@dataclass(frozen=True, slots=True)
class BucketInfo:
    name: str
    region: str
    made_ns: int
    owner: int
    versioning: int
    """`gateway.journal.tables.Versioning`"""


@dataclass(frozen=True, slots=True)
class WantedPart:
    """A part as a completion names it."""

    number: int
    etag: str
    checksum: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class DeleteOne:
    """One of DeleteObjects' keys."""

    key: bytes
    version: str | None = None
    conditions: Conditions = NO_CONDITIONS
