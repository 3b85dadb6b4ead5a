"""Results of listings, as plain values for the engine and its callers. Pure.

Values of which a page has thousands are named tuples, which are made from a row several times faster than dataclasses.
The keys of a listing stay rows of the store, which the formatter of a page reads directly. `Page.keys` makes them named
tuples for callers that want single keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gateway.journal.columns import checksum_kind, kind_names

ListedRow = tuple[bytes, int, str, int, int, bytes | None]
"""A name in its directory, size, ETag, modified (ns), owner, and what begins with the kind of the checksum
(see `gateway.journal.columns.checksum_kind`; None as well as empty for none)."""


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
    checksum: bytes | None
    """What begins with the kind of the checksum, as in `ListedRow`."""


@dataclass(frozen=True)
class Page:
    """One page of a listing: keys and rolled-up prefixes, each in byte order; both count against the limit."""

    groups: list[tuple[bytes, list[ListedRow]]]
    """The keys: directory by directory, in order, each with what stands in it. A directory may come again."""
    prefixes: list[bytes]
    next: bytes | None
    """The last key or prefix of this page when there is more: what `after` takes to go on behind it."""

    @property
    def count(self) -> int:
        """Keys and prefixes."""
        return sum(len(rows) for _, rows in self.groups) + len(self.prefixes)

    @cached_property
    def keys(self) -> list[Listed]:
        """The keys singly."""
        return list(self._listed())

    def _listed(self) -> Iterator[Listed]:
        for path, rows in self.groups:
            for name, size, etag, modified_ns, owner, checksum in rows:
                yield Listed(path + name, size, etag, modified_ns, owner, *kind_names(checksum_kind(checksum)))


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
