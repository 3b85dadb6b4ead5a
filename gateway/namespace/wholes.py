"""ETag and checksums of an object from those of its parts: combined, its bytes are never read again. Pure.

S3's rules: the ETag is the MD5 of the parts' MD5s with `-N` behind; a COMPOSITE checksum is the checksum of the parts'
checksums, likewise; a FULL_OBJECT one is that of the bytes, which CRCs allow to be combined.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from awscrt import checksums as crc

from gateway.errors import InvalidArgument
from gateway.journal.packed import Checksum

FULL_OBJECT = "FULL_OBJECT"
COMPOSITE = "COMPOSITE"
CRC64NVME = "CRC64NVME"


class PartDigests(Protocol):
    """What of a part enters the whole's digests."""

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


def etag_of(parts: Sequence[PartDigests]) -> str:
    md5s = b"".join(bytes.fromhex(part.etag) for part in parts)
    return f"{hashlib.md5(md5s, usedforsecurity=False).hexdigest()}-{len(parts)}"


def checksums_of(parts: Sequence[PartDigests], algorithm: str, kind: str) -> list[Checksum]:
    """The checksum that the upload asked for, first; and always the bytes' CRC64NVME."""
    values = [int.from_bytes(part.crc64nvme, "big") for part in parts]
    whole = Checksum(CRC64NVME, FULL_OBJECT, _combined(parts, CRC64NVME, values))
    if not algorithm or (algorithm == CRC64NVME and kind != COMPOSITE):
        return [whole]
    return [_asked(parts, algorithm, kind), whole]


def _asked(parts: Sequence[PartDigests], algorithm: str, kind: str) -> Checksum:
    raw = [base64.b64decode(part.checksum) for part in parts]
    if kind == FULL_OBJECT:
        if algorithm not in _CRCS:
            raise InvalidArgument(f"{algorithm} of a whole object cannot be told from its parts")
        return Checksum(
            algorithm, FULL_OBJECT, _combined(parts, algorithm, [int.from_bytes(each, "big") for each in raw])
        )
    return Checksum(algorithm, COMPOSITE, f"{_of(algorithm, b''.join(raw))}-{len(parts)}")


def _of(algorithm: str, value: bytes) -> str:
    if algorithm in _CRCS:
        found = _CRCS[algorithm]
        return _base64(found.of(value).to_bytes(found.width, "big"))
    digest = {"SHA1": hashlib.sha1, "SHA256": hashlib.sha256}.get(algorithm)
    if digest is None:
        raise InvalidArgument(f"{algorithm} is no checksum algorithm")
    return _base64(digest(value).digest())


def _combined(parts: Sequence[PartDigests], algorithm: str, values: list[int]) -> str:
    found = _CRCS[algorithm]
    whole = 0
    for part, value in zip(parts, values, strict=True):
        whole = found.combine(whole, value, part.size)
    return _base64(whole.to_bytes(found.width, "big"))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
