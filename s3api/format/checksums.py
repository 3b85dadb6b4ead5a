"""S3's additional checksums: their headers and XML elements, and validating their values. Pure.

The engine computes the checksums of objects. This module computes only those of a request's XML document.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from awscrt import checksums as crt

from gateway.engine.types import Checksum
from s3api.errors import S3Error

DIGEST_BYTES = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8, "SHA1": 20, "SHA256": 32}
"""The supported algorithms and the lengths of their values."""
ELEMENTS = {name: f"Checksum{name}" for name in DIGEST_BYTES}
"""The XML element of each algorithm."""
HEADERS = {f"x-amz-checksum-{name.lower()}": name for name in DIGEST_BYTES}
"""The algorithm of each header."""
COMPOSITE = "COMPOSITE"
"""The type of a checksum of the parts' checksums. FULL_OBJECT is the type of a checksum of the object's bytes."""
FULL_ONLY = {"CRC64NVME"}
COMPOSITE_ONLY = {"SHA1", "SHA256"}
UNSUPPORTED_ALGORITHMS = frozenset({"MD5", "SHA512", "XXHASH3", "XXHASH64", "XXHASH128"})
"""Further algorithms of S3, which are not supported."""
_NOT_VALUES = {"x-amz-checksum-mode", "x-amz-checksum-algorithm", "x-amz-checksum-type"}
SDK_HEADER = "x-amz-sdk-checksum-algorithm"
"""The header in which SDKs repeat the algorithm of a checksum."""

_COMPUTE: dict[str, Callable[[bytes], bytes]] = {
    "CRC32": lambda raw: crt.crc32(raw).to_bytes(4, "big"),
    "CRC32C": lambda raw: crt.crc32c(raw).to_bytes(4, "big"),
    "CRC64NVME": lambda raw: crt.crc64nvme(raw).to_bytes(8, "big"),
    "SHA1": lambda raw: hashlib.sha1(raw, usedforsecurity=False).digest(),
    "SHA256": lambda raw: hashlib.sha256(raw).digest(),
}


def compute(algorithm: str, raw: bytes) -> str:
    """Return the checksum of *raw* in base64."""
    return base64.b64encode(_COMPUTE[algorithm](raw)).decode()


def check_algorithm(algorithm: str, header: str = "x-amz-checksum-algorithm") -> str:
    """Return *algorithm* in upper case. Raises S3Error NotImplemented for an unsupported one, InvalidRequest for an
    unknown one. *header*: where the client named it."""
    name = algorithm.upper()
    if name in UNSUPPORTED_ALGORITHMS:
        raise S3Error("NotImplemented", f"The checksum {name} is not implemented.", Header=header)
    if name not in DIGEST_BYTES:
        raise S3Error(
            "InvalidRequest", f"Value for {header} header is invalid." if header == SDK_HEADER else _UNSUPPORTED
        )
    return name


_UNSUPPORTED = (
    "Checksum algorithm provided is unsupported. Please try again with any of the valid types: "
    f"[{', '.join(sorted(DIGEST_BYTES))}]"
)


def check_value(algorithm: str, value: str, field: str = "header") -> str:
    """Return *value* if it has the form of a checksum of *algorithm*. Raises S3Error InvalidRequest. *field*: where the
    value came from, for the message."""
    if decode_base64(value, DIGEST_BYTES[algorithm]) is None:
        raise S3Error("InvalidRequest", f"Value for x-amz-checksum-{algorithm.lower()} {field} is invalid.")
    return value


def decode_base64(text: str, length: int) -> bytes | None:
    """Decode base64. Returns None if *text* is invalid or does not encode *length* bytes."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == length else None


def content_md5(headers: Mapping[str, str]) -> bytes | None:
    """Return the 16 bytes of Content-MD5, if present. Raises S3Error InvalidDigest."""
    text = headers.get("content-md5")
    if text is None:
        return None
    raw = decode_base64(text.strip(), 16)
    if raw is None:
        raise S3Error("InvalidDigest", **{"Content-MD5": text})
    return raw


class RequestedChecksum(NamedTuple):
    """The checksum that a request declares for its body."""

    algorithm: str | None
    """The algorithm; None if the request declares no checksum."""
    value: tuple[str, str] | None
    """(algorithm, base64) if a header contains the value; None if the value comes in the trailer."""


def requested_checksum(headers: Mapping[str, str]) -> RequestedChecksum:
    """Return the checksum that the headers declare for the request's body.

    x-amz-checksum-algorithm is ignored here, as in S3: it applies to copies and to multipart uploads.

    Raises S3Error InvalidRequest for several checksums, an unknown algorithm, names that differ, and an algorithm
    without a value; NotImplemented for an unsupported algorithm."""
    given = [name for name in headers if name.startswith("x-amz-checksum-") and name not in _NOT_VALUES]
    trailer = headers.get("x-amz-trailer")
    named = headers.get(SDK_HEADER)
    if not given and trailer is None and named is None:
        return RequestedChecksum(None, None)
    names = list(given)
    if trailer is not None:
        names += [each.strip().lower() for each in trailer.split(",") if each.strip()]
    if len(names) > 1:
        raise S3Error(
            "InvalidRequest", "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
        )
    algorithm = check_algorithm(named, SDK_HEADER) if named is not None else None
    if not names:
        raise S3Error(
            "InvalidRequest",
            f"{SDK_HEADER} specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.",
        )
    if names[0] not in HEADERS:
        check_algorithm(names[0].removeprefix("x-amz-checksum-"), "x-amz-trailer")
        raise S3Error("InvalidRequest", f"The checksum {names[0]} is not supported.")
    if algorithm is not None and algorithm != HEADERS[names[0]]:
        raise S3Error("InvalidRequest", f"Value for {SDK_HEADER} header is invalid.")
    algorithm = HEADERS[names[0]]
    value = (algorithm, check_value(algorithm, headers[names[0]].strip())) if given else None
    return RequestedChecksum(algorithm, value)


def wants_checksum(headers: Mapping[str, str]) -> bool:
    """Return whether a read requests the checksum. Raises S3Error InvalidRequest for an invalid x-amz-checksum-mode."""
    mode = headers.get("x-amz-checksum-mode")
    if mode and mode.upper() != "ENABLED":
        raise S3Error("InvalidRequest", "Value for x-amz-checksum-mode header is invalid.")
    return bool(mode)


def checksum_lines(checksum: Checksum | None) -> str:
    """Return the header lines with an object's checksum."""
    if checksum is None:
        return ""
    name = checksum.algorithm.lower()
    return f"x-amz-checksum-{name}: {checksum.value}\r\nx-amz-checksum-type: {checksum.type}\r\n"


def checksum_xml(checksum: Checksum | None) -> str:
    """Return the XML elements with an object's checksum."""
    if checksum is None:
        return ""
    return f"{value_xml(checksum.algorithm, checksum.value)}<ChecksumType>{checksum.type}</ChecksumType>"


def value_xml(algorithm: str, value: str) -> str:
    """Return the XML element with a checksum's value only, as for parts; empty if *algorithm* or *value* is empty."""
    if not (algorithm and value):
        return ""
    element = ELEMENTS[algorithm]
    return f"<{element}>{value}</{element}>"


def upload_type(algorithm: str, requested_type: str | None) -> str:
    """Return the checksum type of a multipart upload, COMPOSITE or FULL_OBJECT. Raises S3Error InvalidRequest if the
    algorithm does not support the requested type."""
    if not requested_type:
        return "FULL_OBJECT" if algorithm in FULL_ONLY else "COMPOSITE"
    kind = requested_type.upper()
    if kind not in {"COMPOSITE", "FULL_OBJECT"}:
        raise S3Error("InvalidRequest", "Value for x-amz-checksum-type header is invalid.")
    if (kind == "COMPOSITE" and algorithm in FULL_ONLY) or (kind == "FULL_OBJECT" and algorithm in COMPOSITE_ONLY):
        raise S3Error(
            "InvalidRequest",
            f"The {kind} checksum type cannot be used with the {algorithm.lower()} checksum algorithm.",
        )
    return kind
