"""What listings answer: plain values, shared by the front desk and whoever shows them. Pure.

What comes by the thousand is a named tuple: it is made straight from a row, several times faster than a dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Listed(NamedTuple):
    """One key of a listing."""

    key: bytes
    size: int
    etag: str
    modified_ns: int
    owner: int
    checksum_algorithm: str
    checksum_type: str


class ListedVersion(NamedTuple):
    """One version, or delete marker, of a listing of versions."""

    key: bytes
    version: str
    is_latest: bool
    marker: bool
    size: int
    etag: str
    modified_ns: int
    owner: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing: keys and rolled-up prefixes, each in byte order; both count against the limit."""

    keys: list[Listed]
    prefixes: list[bytes]
    next: bytes | None
    """The last key or prefix of this page when there is more: what `after` takes to go on behind it."""


@dataclass(frozen=True, slots=True)
class VersionPage:
    versions: list[ListedVersion]
    prefixes: list[bytes]
    next_key: bytes | None
    next_version: str | None


class UploadInfo(NamedTuple):
    key: bytes
    upload: str
    owner: int
    made_ns: int
    checksum: str
    checksum_type: str


@dataclass(frozen=True, slots=True)
class UploadPage:
    uploads: list[UploadInfo]
    prefixes: list[bytes]
    next_key: bytes | None
    next_upload: str | None


class PartInfo(NamedTuple):
    number: int
    size: int
    etag: str
    modified_ns: int
    checksum: str
    """Base64, of the upload's algorithm; empty for none."""


@dataclass(frozen=True, slots=True)
class PartPage:
    upload: UploadInfo
    parts: list[PartInfo]
    next_number: int | None
