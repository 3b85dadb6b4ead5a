"""The rows of multipart uploads. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gateway.journal.tables.base import Table


class UploadState(IntEnum):
    """OPEN takes parts; the others only remember their end, until they are forgotten."""

    OPEN = 0
    COMPLETED = 1
    ABORTED = 2


class Upload(NamedTuple):
    """A multipart upload."""

    bucket: str
    key: bytes
    id: int
    state: int
    """Stands in the stores' key before `key`, so that listings meet only the open ones."""
    owner: int
    made_ns: int
    ended_ns: int
    parts: int
    """Part rows that stand."""
    checksum: str
    """The algorithm that its parts carry, or empty."""
    checksum_type: str
    """COMPOSITE, FULL_OBJECT, or empty."""
    headers: bytes
    tags: bytes
    result: bytes
    """packed: `Completed`, so that a repeated completion has its answer."""
    site_ns: int = 0
    """When it was made, or ended if it has, by the site's clock (`site_clock`): from here on it grows old."""
    last_part: int = 0
    """The id of the part that came last, while it is open: none has come or was replaced since this was read if it is
    the same. 0: none has come, or it has ended."""
    joined: bytes = b""
    """packed: ranges of the numbers of parts whose contents a body has taken over. Their rows, which still stand for a
    while, hold nothing."""
    staged: bytes = b""
    """packed: `Staged`, the bodies that a completion has made so far to count the runs of copied parts, and that the
    upload holds. Empty if there are none."""


class Part(NamedTuple):
    upload: int
    number: int
    id: int
    size: int
    shape: int
    content: int
    etag: str
    """The part's MD5, hex."""
    crc64nvme: bytes
    """8 bytes, big-endian: it has no sign, and SQLite's integers do."""
    checksum: str
    """Base64, of the upload's algorithm, or empty."""
    modified_ns: int


class DeletedBucket(NamedTuple):
    """A bucket that is gone while uploads into it were open, until the last of them is cut off.

    An upload's row has its bucket's name, and the name may be another bucket's by now: the upload is of the bucket of
    its name whose id is the last one below its own."""

    id: int
    """The bucket's. Uploads into it have greater ids,"""
    name: str
    before: int
    """and lesser ones than this, which was drawn when the bucket went."""
    uploads: int
    """Those that are still open."""


UPLOAD = Table("upload", Upload, 3, ("bucket", "state", "key", "id"))
PART = Table("part", Part, 2)
DELETED_BUCKET = Table("gone", DeletedBucket)
