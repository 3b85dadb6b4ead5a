"""The records of multipart uploads and their parts."""

from __future__ import annotations

from gateway.journal.columns import PartSummary, UploadAt
from gateway.journal.records.base import record


@record(tag=72)
class PartsJoined:
    """The parts *numbers* of an upload became the body *id*, whose reference count is 0. The body takes over the counts
    on their contents."""

    bucket: str
    key: bytes
    upload: int
    id: int
    numbers: tuple[int, ...]
    facts: tuple[PartSummary, ...]


@record(tag=80)
class UploadMade:
    bucket: str
    key: bytes
    id: int
    owner: int
    checksum: str
    checksum_type: str
    headers: bytes
    tags: bytes
    at_ns: int
    site_ns: int = 0
    """By the site's clock; 0 in journals of older versions: then it is *at_ns*."""


@record(tag=81)
class PartPut:
    """A part was stored. It holds one count on its content. A part that had the same number released its content."""

    bucket: str
    key: bytes
    upload: int
    number: int
    id: int
    size: int
    shape: int
    content: int
    etag: str
    crc64nvme: int
    checksum: str
    at_ns: int


@record(tag=82)
class UploadEnded:
    """An upload was completed, with its packed result, or aborted. Parts that it still has are dropped later."""

    bucket: str
    key: bytes
    id: int
    state: int
    result: bytes
    at_ns: int
    site_ns: int = 0
    """As in `UploadMade`."""


@record(tag=83)
class PartsDropped:
    """Parts of an ended upload were dropped. Those that no body had taken over released their contents."""

    bucket: str
    key: bytes
    upload: int
    numbers: tuple[int, ...]


@record(tag=84)
class UploadForgotten:
    """The row of an ended upload without parts was dropped, and with it the answer to a repeated completion."""

    bucket: str
    key: bytes
    id: int


@record(tag=85, feature=3)
class UploadsAborted:
    """Open uploads of a deleted bucket were aborted; no bucket counts them any more. *bucket* is the bucket's id,
    *name* its name. Parts that they still have are dropped later."""

    bucket: int
    name: str
    uploads: tuple[UploadAt, ...]
    at_ns: int
    site_ns: int = 0
    """As in `UploadMade`."""


@record(tag=86, feature=9)
class PartsTakenOver:
    """The body *id*, whose reference count is 0, took over the counts on the contents of an upload's parts. The rows of
    the parts exist until they are dropped, and hold no count from now on."""

    bucket: str
    key: bytes
    upload: int
    id: int
    size: int
    pieces: bytes
    """packed, as in the body's row."""
    facts: bytes
    """packed, as the column `parts` of the body's row."""
    joined: bytes
    """packed ranges, as in the upload's row."""
    with_staged: bool = False
    """Whether the body also takes over what the upload's staged bodies hold. These bodies are dropped then."""


@record(tag=87, feature=10)
class PiecesStaged:
    """The upload now holds the body *id*, whose reference count was 0, in addition to those that it has staged under
    the same *digest*. Bodies that were staged under another digest were released."""

    bucket: str
    key: bytes
    upload: int
    digest: bytes
    id: int


UploadRecord = (
    PartsTakenOver
    | PartsJoined
    | UploadMade
    | PartPut
    | UploadEnded
    | PartsDropped
    | UploadForgotten
    | UploadsAborted
    | PiecesStaged
)
