"""The records of multipart uploads and their parts."""

from __future__ import annotations

from gateway.journal.columns import PartSummary, UploadAt
from gateway.journal.records.base import record


@record(tag=72)
class PartsJoined:
    """The parts *numbers* of an upload became a body that nobody counts yet; it takes their contents over."""

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
    """By the site's clock; 0 in journals of older versions, where it is *at_ns*."""


@record(tag=81)
class PartPut:
    """A part arrived; one of the same number lets go of its content. It holds one count on its own."""

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
    """Completed (with its packed result) or aborted. Parts that still stand wait to be dropped."""

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
    """Parts of an ended upload that nobody took over; they let go of their contents."""

    bucket: str
    key: bytes
    upload: int
    numbers: tuple[int, ...]


@record(tag=84)
class UploadForgotten:
    """An ended upload whose parts are all gone, and with it the answer for a repeat."""

    bucket: str
    key: bytes
    id: int


@record(tag=85, feature=3)
class UploadsAborted:
    """Open uploads of a bucket that is gone (its id, and its name) ended as if aborted; no bucket counts them. Parts
    that still stand wait to be dropped."""

    bucket: int
    name: str
    uploads: tuple[UploadAt, ...]
    at_ns: int
    site_ns: int = 0
    """As in `UploadMade`."""


@record(tag=86, feature=9)
class PartsTakenOver:
    """A body that nobody counts yet takes over the contents of parts of an upload. The parts' rows stand until they are
    dropped, and hold nothing from now on."""

    bucket: str
    key: bytes
    upload: int
    id: int
    size: int
    pieces: bytes
    """packed, as in the body's row; likewise"""
    facts: bytes
    joined: bytes
    """packed ranges, as in the upload's row."""
    with_staged: bool = False
    """Whether the body also takes over what the upload's staged bodies hold; these bodies go."""


@record(tag=87, feature=10)
class PiecesStaged:
    """The upload holds the body *id*, which nobody counted, beside those that it has staged under the same *digest*.
    Bodies that were staged under another digest are let go of."""

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
