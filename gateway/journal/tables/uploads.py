"""The rows of multipart uploads. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from gateway.journal.tables.base import Table


class UploadState(IntEnum):
    """OPEN: it accepts parts. The others: it has ended, and its row is kept for a while for repeated requests."""

    OPEN = 0
    COMPLETED = 1
    ABORTED = 2


class Upload(NamedTuple):
    """A multipart upload."""

    bucket: str
    key: bytes
    id: int
    state: int
    """An `UploadState`. In the stores' primary key this column comes before `key`, so that listings read only open
    uploads."""
    owner: int
    made_ns: int
    ended_ns: int
    parts: int
    """How many rows of `part` it has."""
    checksum: str
    """The checksum algorithm of its parts, or empty."""
    checksum_type: str
    """COMPOSITE, FULL_OBJECT, or empty."""
    headers: bytes
    tags: bytes
    result: bytes
    """packed: `Completed`, the answer to a repeated completion."""
    site_ns: int = 0
    """When it was made or, if it has ended, when it ended, by the site's clock (`site_clock`). Its age counts from
    here."""
    last_part: int = 0
    """While the upload is open: the id of the part that was stored last. If it has not changed since it was read, no
    part was added or replaced. 0: there is no part, or the upload has ended."""
    joined: bytes = b""
    """packed: ranges of the numbers of parts whose contents a body has taken over. Their rows are dropped later, and
    hold no count on their contents any more."""
    staged: bytes = b""
    """packed: `Staged`, the bodies that a completion has made so far to count the runs of copied parts. The upload
    holds them. Empty: none."""


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
    """8 bytes, big-endian: the value is unsigned, and SQLite's integers are signed."""
    checksum: str
    """By the upload's algorithm, base64; or empty."""
    modified_ns: int


class DeletedBucket(NamedTuple):
    """A bucket that was deleted while uploads into it were open. The row exists until the last of them is aborted.

    The row of an upload has the name of its bucket, and by now another bucket may have that name. The upload belongs to
    the bucket of that name with the greatest id below the upload's own id."""

    id: int
    """The bucket's id. Uploads into the bucket have greater ids."""
    name: str
    before: int
    """An id that was drawn when the bucket was deleted. Uploads into the bucket have lesser ids."""
    uploads: int
    """How many uploads are still open."""


UPLOAD = Table("upload", Upload, 3, ("bucket", "state", "key", "id"))
PART = Table("part", Part, 2)
DELETED_BUCKET = Table("gone", DeletedBucket)
