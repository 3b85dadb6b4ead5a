"""Compute an object's ETag and checksums from those of its parts, without reading its bytes. Pure.

S3's rules: the ETag is the MD5 of the parts' MD5s, followed by `-N` for N parts. A COMPOSITE checksum is the checksum
of the parts' checksums, with the same suffix. A FULL_OBJECT checksum is that of all bytes; CRCs can be combined to it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from awscrt import checksums as crc

from gateway.errors import InvalidArgument
from gateway.journal.columns import Checksum

FULL_OBJECT = "FULL_OBJECT"
COMPOSITE = "COMPOSITE"
CRC64NVME = "CRC64NVME"


class PartDigests(Protocol):
    """The values of a part that the object's digests are computed from."""

    @property
    def size(self) -> int: ...
    @property
    def etag(self) -> str: ...
    @property
    def crc64nvme(self) -> bytes: ...
    @property
    def checksum(self) -> str: ...


class _Crc(NamedTuple):
    width: int
    of: Callable[[bytes], int]
    combine: Callable[[int, int, int], int]


_CRCS = {
    "CRC32": _Crc(4, crc.crc32, crc.combine_crc32),
    "CRC32C": _Crc(4, crc.crc32c, crc.combine_crc32c),
    CRC64NVME: _Crc(8, crc.crc64nvme, crc.combine_crc64nvme),
}


def multipart_etag(parts: Sequence[PartDigests]) -> str:
    md5s = b"".join(bytes.fromhex(part.etag) for part in parts)
    return f"{hashlib.md5(md5s, usedforsecurity=False).hexdigest()}-{len(parts)}"


def multipart_checksums(parts: Sequence[PartDigests], algorithm: str, kind: str) -> list[Checksum]:
    """Return the checksum that the upload was created with, if any, and then the CRC64NVME of all bytes."""
    whole = Checksum(CRC64NVME, FULL_OBJECT, _combine_crcs(CRC64NVME, ((part.crc64nvme, part.size) for part in parts)))
    if not algorithm or (algorithm == CRC64NVME and kind != COMPOSITE):
        return [whole]
    return [_requested_checksum(parts, algorithm, kind), whole]


def _requested_checksum(parts: Sequence[PartDigests], algorithm: str, kind: str) -> Checksum:
    if kind == FULL_OBJECT:
        if not can_combine(algorithm):
            raise InvalidArgument(f"{algorithm} of a whole object cannot be told from its parts")
        return combine_checksums(algorithm, [(part.checksum, part.size) for part in parts])
    raw = b"".join(base64.b64decode(part.checksum) for part in parts)
    return Checksum(algorithm, COMPOSITE, f"{_compute_checksum(algorithm, raw)}-{len(parts)}")


def combine_checksums(algorithm: str, stretches: Iterable[tuple[str, int]]) -> Checksum:
    """Return the checksum of all bytes. *stretches*: checksum (base64) and size in bytes of each range, in order.

    Only for algorithms that `can_combine` accepts."""
    return Checksum(
        algorithm, FULL_OBJECT, _combine_crcs(algorithm, ((base64.b64decode(value), size) for value, size in stretches))
    )


def can_combine(algorithm: str) -> bool:
    """Return whether the checksum of all bytes can be computed from those of ranges: for CRCs, but no digests."""
    return algorithm in _CRCS


def _compute_checksum(algorithm: str, value: bytes) -> str:
    if algorithm in _CRCS:
        found = _CRCS[algorithm]
        return _base64(found.of(value).to_bytes(found.width, "big"))
    digest = {"SHA1": hashlib.sha1, "SHA256": hashlib.sha256}.get(algorithm)
    if digest is None:
        raise InvalidArgument(f"{algorithm} is no checksum algorithm")
    return _base64(digest(value).digest())


def _combine_crcs(algorithm: str, stretches: Iterable[tuple[bytes, int]]) -> str:
    found = _CRCS[algorithm]
    whole = 0
    for value, size in stretches:
        whole = found.combine(whole, int.from_bytes(value, "big"), size)
    return _base64(whole.to_bytes(found.width, "big"))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
