"""The values that the engine takes and returns. They belong to no protocol. Pure.

The protocols above the engine import types of the packages below it from here, and not from those packages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from gateway.access.request import Context
from gateway.journal.columns import Checksum, PartSummary, checksum_kind, first_checksum, kind_names
from gateway.journal.tables import DocumentKind, Versioning
from gateway.namespace.bucket_names import check_bucket_name
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
from gateway.timing import Clock, Timing
from gateway.timing.durations import ConnectionsTiming

__all__ = [
    "NO_CONDITIONS",
    "Body",
    "BucketInfo",
    "Buffer",
    "ByteRange",
    "Caller",
    "Checksum",
    "Clock",
    "Conditions",
    "ConnectionsTiming",
    "DeleteOne",
    "Deleted",
    "DocumentKind",
    "ExpectedDigests",
    "Listed",
    "ListedVersion",
    "ObjectInfo",
    "ObjectMeta",
    "Opened",
    "Page",
    "PartInfo",
    "PartPage",
    "PartSummary",
    "PublicAccessBlock",
    "Stored",
    "Timing",
    "UploadInfo",
    "UploadPage",
    "VersionPage",
    "Versioning",
    "WantedPart",
    "check_bucket_name",
    "checksum_kind",
    "kind_names",
]

Buffer = bytes | bytearray | memoryview


class Caller(NamedTuple):
    """The user for whom an operation runs. A root user may do everything. An anonymous caller has no name and the id
    0."""

    user: str
    user_id: int
    tenant: int
    root: bool
    granted: Mapping[str, int] = MappingProxyType({})
    """The buckets of others in which a policy grants this operation, each with the id of its owner
    (`BucketPolicyOperations.granted_by_policy`)."""
    context: Context | None = None
    """The condition keys of the request that the caller has sent, for policies; None: it has none."""

    def may_use(self, bucket: str, owner: int) -> bool:
        """Whether the operation may use *bucket*, which belongs to the user *owner*."""
        return owner == self.user_id or self.root or self.granted.get(bucket) == owner

    def acting_in(self, bucket: str) -> tuple[int, bool]:
        """Return the user for whom a command on *bucket* runs, and whether that is a root user.

        What a policy grants is done for the bucket's owner. So the command that commits it is refused if the bucket has
        another owner by then, and what is stored belongs to the owner, as with S3's BucketOwnerEnforced."""
        owner = self.granted.get(bucket)
        return (self.user_id, self.root) if owner is None else (owner, False)


class PublicAccessBlock(NamedTuple):
    """What a bucket's PublicAccessBlock blocks. Source: the S3 API reference, PublicAccessBlockConfiguration."""

    block_public_acls: bool
    ignore_public_acls: bool
    block_public_policy: bool
    restrict_public_buckets: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """Preconditions on the current version, or on the version that the request names.

    ETags have no quotes. `*` is the only item of its tuple.

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
class ExpectedDigests:
    """The size and digests that the client declared. They are verified before anything is committed."""

    size: int | None = None
    md5: bytes | None = None
    """Content-MD5, 16 bytes."""
    sha256: str | None = None
    """The payload hash of SigV4, in hex."""
    checksum: tuple[str, str] | None = None
    """(algorithm, base64) from a header. `Body.trailing_checksum` returns one from a trailer."""


class Body:
    """The bytes of a request, and what is known of them only after the last one."""

    def __aiter__(self) -> AsyncIterator[Buffer]:
        raise TypeError(f"{type(self).__name__} does not define __aiter__")

    def trailing_checksum(self) -> tuple[str, str] | None:
        """Return the (algorithm, base64) of a trailer; None if there was none. Valid once the iterator has ended."""
        return None


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """Headers and tags that a client sets on an object."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """content-type, content-encoding, …, and user metadata as `x-amz-meta-…`; lower-case names."""
    tags: Mapping[str, str] = field(default_factory=dict)


class Stored(NamedTuple):
    """The result of a PUT, a copy or a completion."""

    etag: str
    version: str | None
    """S3's version id; None if versioning was never enabled on the bucket."""
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
    """S3's version id; None if versioning was never enabled on the bucket."""
    is_latest: bool
    headers: Mapping[str, str]
    tags_count: int
    checksums: bytes
    """Packed, as in the column of `File`."""
    parts_count: int
    """0 unless the object was uploaded in parts."""
    owner: int

    @property
    def checksum(self) -> Checksum | None:
        """The checksum that responses show. It is unpacked on demand, since few responses show it."""
        return first_checksum(self.checksums)


class Opened(NamedTuple):
    """An object opened for reading: its metadata, the range, and the bytes."""

    info: ObjectInfo
    start: int
    length: int
    part: PartSummary | None
    """The part, if the request named one by number."""
    whole: Buffer | None
    """All bytes of a small range that could be read without waiting; None: read `chunks`."""
    chunks: AsyncIterator[Buffer]
    """The bytes, in pieces of at most one block. Raises `Corrupted` or `Unavailable`, and never yields wrong bytes.
    The caller must close it (`aclose`) unless it reads to the end."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A byte range (RFC 9110 section 14.1.2). `end` is inclusive; None means up to the end. If `start` is None, the
    range is the last `end` bytes."""

    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result of a DELETE."""

    version: str | None
    """The version that was deleted, or the delete marker that was created."""
    marker: bool
    """Whether a delete marker was created or deleted."""


@dataclass(frozen=True, slots=True)
class BucketInfo:
    """A bucket, as listings show it."""

    name: str
    region: str
    made_ns: int
    owner: int
    versioning: int
    """`gateway.journal.tables.Versioning`"""


@dataclass(frozen=True, slots=True)
class WantedPart:
    """A part that a completion names."""

    number: int
    etag: str
    checksum: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class DeleteOne:
    """A key, or a version of it, in a DeleteObjects request."""

    key: bytes
    version: str | None = None
    conditions: Conditions = NO_CONDITIONS
