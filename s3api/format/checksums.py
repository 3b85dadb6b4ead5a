"""S3's additional checksums: their headers, their values' shapes, and those of a small body at hand. Pure.

The checksums of an object's bytes are computed where the bytes are stored; here only those of a request's XML.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping

from awscrt import checksums as crt

from gateway.journal.columns import Checksum
from s3api.errors import S3Error

DIGEST_BYTES = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8, "SHA1": 20, "SHA256": 32}
"""The algorithms and how long their values are."""
ELEMENTS = {name: f"Checksum{name}" for name in DIGEST_BYTES}
"""The XML element of each."""
HEADERS = {f"x-amz-checksum-{name.lower()}": name for name in DIGEST_BYTES}
"""The header of each."""
COMPOSITE = "COMPOSITE"
"""Made of the parts' checksums, and not of the bytes as FULL_OBJECT is."""
FULL_ONLY = {"CRC64NVME"}
COMPOSITE_ONLY = {"SHA1", "SHA256"}
UNSUPPORTED_ALGORITHMS = frozenset({"MD5", "SHA512", "XXHASH3", "XXHASH64", "XXHASH128"})
"""Algorithms that S3 has besides."""
_NOT_VALUES = {"x-amz-checksum-mode", "x-amz-checksum-algorithm", "x-amz-checksum-type"}
SDK_HEADER = "x-amz-sdk-checksum-algorithm"
"""What SDKs say beside a value, of the algorithm that it is of."""

_COMPUTE: dict[str, Callable[[bytes], bytes]] = {
    "CRC32": lambda raw: crt.crc32(raw).to_bytes(4, "big"),
    "CRC32C": lambda raw: crt.crc32c(raw).to_bytes(4, "big"),
    "CRC64NVME": lambda raw: crt.crc64nvme(raw).to_bytes(8, "big"),
    "SHA1": lambda raw: hashlib.sha1(raw, usedforsecurity=False).digest(),
    "SHA256": lambda raw: hashlib.sha256(raw).digest(),
}


def compute(algorithm: str, raw: bytes) -> str:
    """The checksum of *raw*, base64."""
    return base64.b64encode(_COMPUTE[algorithm](raw)).decode()


def check_algorithm(algorithm: str, header: str = "x-amz-checksum-algorithm") -> str:
    """*algorithm* in upper case. Raises S3Error NotImplemented for one that S3 has besides, else InvalidRequest."""
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
    """*value* as it must look for *algorithm*. Raises S3Error InvalidRequest."""
    if decode_base64(value, DIGEST_BYTES[algorithm]) is None:
        raise S3Error("InvalidRequest", f"Value for x-amz-checksum-{algorithm.lower()} {field} is invalid.")
    return value


def decode_base64(text: str, length: int) -> bytes | None:
    """The *length* bytes that *text* spells; None when it does not."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == length else None


def content_md5(headers: Mapping[str, str]) -> bytes | None:
    """Content-MD5's 16 bytes. Raises S3Error InvalidDigest."""
    text = headers.get("content-md5")
    if text is None:
        return None
    raw = decode_base64(text.strip(), 16)
    if raw is None:
        raise S3Error("InvalidDigest", **{"Content-MD5": text})
    return raw


def requested_checksum(headers: Mapping[str, str]) -> tuple[str | None, tuple[str, str] | None]:
    """What a request says of its body's checksum: (algorithm, (algorithm, value) where the value stands in a header;
    else it comes behind the body).

    x-amz-checksum-algorithm says nothing here, in S3 neither: it belongs to copies and to uploads in parts.

    Raises S3Error InvalidRequest for several of them, unknown ones, names that differ, and a name without a value."""
    found = [name for name in headers if name.startswith("x-amz-checksum-") and name not in _NOT_VALUES]
    trailer = headers.get("x-amz-trailer")
    named = headers.get(SDK_HEADER)
    if not found and trailer is None and named is None:
        return None, None
    names = list(found)
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
    return algorithm, (algorithm, check_value(algorithm, headers[names[0]].strip())) if found else None


def wants_checksum(headers: Mapping[str, str]) -> bool:
    """Whether a read asks for the checksum. Raises S3Error InvalidRequest for a mode that is none."""
    mode = headers.get("x-amz-checksum-mode")
    if mode and mode.upper() != "ENABLED":
        raise S3Error("InvalidRequest", "Value for x-amz-checksum-mode header is invalid.")
    return bool(mode)


def checksum_lines(checksum: Checksum | None) -> str:
    """The headers that show an object's checksum."""
    if checksum is None:
        return ""
    name = checksum.algorithm.lower()
    return f"x-amz-checksum-{name}: {checksum.value}\r\nx-amz-checksum-type: {checksum.type}\r\n"


def checksum_xml(checksum: Checksum | None) -> str:
    """The XML elements that show an object's checksum."""
    if checksum is None:
        return ""
    return f"{value_xml(checksum.algorithm, checksum.value)}<ChecksumType>{checksum.type}</ChecksumType>"


def value_xml(algorithm: str, value: str) -> str:
    """The XML element of a checksum's value alone, as parts have it; nothing where one of the two is empty."""
    if not (algorithm and value):
        return ""
    element = ELEMENTS[algorithm]
    return f"<{element}>{value}</{element}>"


def upload_type(algorithm: str, asked_type: str | None) -> str:
    """COMPOSITE or FULL_OBJECT for an upload in parts. Raises S3Error InvalidRequest for a pair that S3 refuses."""
    if not asked_type:
        return "FULL_OBJECT" if algorithm in FULL_ONLY else "COMPOSITE"
    kind = asked_type.upper()
    if kind not in {"COMPOSITE", "FULL_OBJECT"}:
        raise S3Error("InvalidRequest", "Value for x-amz-checksum-type header is invalid.")
    if (kind == "COMPOSITE" and algorithm in FULL_ONLY) or (kind == "FULL_OBJECT" and algorithm in COMPOSITE_ONLY):
        raise S3Error(
            "InvalidRequest",
            f"The {kind} checksum type cannot be used with the {algorithm.lower()} checksum algorithm.",
        )
    return kind
