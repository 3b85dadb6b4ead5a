"""Parse and format an object's metadata: content headers, user metadata and tags. Pure.

`gateway.engine.metadata_rules` has the limits. Non-ASCII user metadata comes in encoded words (RFC 2047), is stored
decoded, and is returned in encoded words. Source: S3 user guide, "Working with object metadata".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from urllib.parse import unquote_plus

from gateway.engine.metadata_rules import (
    CONTENT_HEADERS,
    TAGS_MOST,
    USER_METADATA_BYTES_MOST,
    USER_METADATA_PREFIX,
    is_tag_name,
    is_tag_value,
    user_metadata_bytes,
)
from gateway.engine.types import ObjectMeta
from s3api.errors import S3Error

DEFAULT_TYPE = "binary/octet-stream"
_CANONICAL_NAMES = {name: name.title() for name in CONTENT_HEADERS}
_UNSAFE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ENCODED_WORD = re.compile(r"=\?([\w-]+)\?([BbQq])\?([^?]*)\?=", re.ASCII)
_CHARSETS = frozenset(
    {
        "utf-8", "us-ascii", "ascii", "utf-16", "iso-8859-1", "latin-1", "iso-2022-jp", "shift_jis", "euc-jp", "gb2312",
        "gbk", "gb18030", "big5", "euc-kr", "koi8-r", "koi8-u",
        *(f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16)),
        *(f"windows-125{page}" for page in range(9)),
    }
)  # fmt: skip
"""The charsets that an encoded word may name. Python supports more, but some take quadratic time, and each lookup of an
unknown name searches for a module and leaves the name in memory."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def object_meta(headers: Mapping[str, str], tagging: str | None = None) -> ObjectMeta:
    """Return the metadata in a request's headers, which have lower-case names. *tagging*: the value of x-amz-tagging.

    Raises S3Error MetadataTooLarge, InvalidTag, InvalidArgument."""
    kept: dict[str, str] = {}
    user_bytes = 0
    for name, value in headers.items():
        if name.startswith(USER_METADATA_PREFIX):
            value = decode_words(value)
            user_bytes += user_metadata_bytes(name, value)
            kept[name] = value
        elif name in CONTENT_HEADERS and value:
            kept[name] = value
    if user_bytes > USER_METADATA_BYTES_MOST:
        raise S3Error("MetadataTooLarge", MetadataSizeMaximum=str(USER_METADATA_BYTES_MOST), Size=str(user_bytes))
    _drop_transfer_coding(kept)
    kept.setdefault("content-type", DEFAULT_TYPE)
    return ObjectMeta(kept, parse_tagging(tagging) if tagging else {})


def _drop_transfer_coding(kept: dict[str, str]) -> None:
    """Remove `aws-chunked` from the content encoding, since it describes the transfer and not the object."""
    encoding = kept.get("content-encoding")
    if encoding is not None and "aws-chunked" in encoding.lower():
        codings = [each.strip() for each in encoding.split(",")]
        rest = ",".join(each for each in codings if each and each.lower() != "aws-chunked")
        if rest:
            kept["content-encoding"] = rest
        else:
            del kept["content-encoding"]


def decode_words(value: str) -> str:
    """Return user metadata with its encoded words (RFC 2047) decoded, or unchanged if one of them is invalid."""
    if not value.isascii() or "=?" not in value:
        return value
    try:
        text = "".join(raw.decode(charset) for raw, charset in _words(value))
    except ValueError:
        return value
    # Decoded, it must still be one header line.
    return value if _CONTROL.search(text) else text


def _words(value: str) -> list[tuple[bytearray, str]]:
    """Split *value* into pieces of bytes with their charset. Neighbouring words of one charset form one piece, since a
    character may be split between them. Raises ValueError."""
    pieces: list[tuple[bytearray, str]] = []
    at = 0
    for match in _ENCODED_WORD.finditer(value):
        between, charset = value[at : match.start()], match[1].lower()
        if charset not in _CHARSETS:
            raise ValueError(charset)
        # RFC 2047 section 6.2: white space between two encoded words is not part of the text.
        adjoins = bool(at) and (not between or between.isspace())
        if not adjoins:
            pieces.append((bytearray(between.encode()), "ascii"))
        if not adjoins or pieces[-1][1] != charset:
            pieces.append((bytearray(), charset))
        encoded = match[3]
        if match[2] in "Bb":
            pieces[-1][0].extend(base64.b64decode(encoded + "=" * (-len(encoded) % 4)))
        else:
            pieces[-1][0].extend(binascii.a2b_qp(encoded, header=True))
        at = match.end()
    return [*pieces, (bytearray(value[at:].encode()), "ascii")]


def as_text(value: str) -> str:
    """Decode a header's value, in which aiohttp has replaced invalid UTF-8 by surrogates. A value with such bytes is
    decoded as Latin-1."""
    raw = value.encode("utf-8", "surrogateescape")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def encode_words(value: str) -> str:
    """Return *value* as one encoded word (RFC 2047) if it is not ASCII."""
    if value.isascii():
        return value
    return f"=?UTF-8?B?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def meta_lines(headers: Mapping[str, str]) -> str:
    """Return an object's stored headers as header lines. As in S3, a value that a header cannot contain (the file API
    may have stored it) is left out and counted in x-amz-missing-meta."""
    lines = []
    missing = 0
    for name, value in headers.items():
        if name.startswith(USER_METADATA_PREFIX):
            value = encode_words(value)
            shown = name
        else:
            shown = _CANONICAL_NAMES.get(name, name)
        if _UNSAFE.search(value):
            missing += 1
        else:
            lines.append(f"{shown}: {value}\r\n")
    if missing:
        lines.append(f"x-amz-missing-meta: {missing}\r\n")
    return "".join(lines)


OVERRIDES = {f"response-{name}": name for name in CONTENT_HEADERS}


def with_overrides(headers: Mapping[str, str], query: Mapping[str, str]) -> Mapping[str, str]:
    """Return the stored headers with those that GetObject's `response-*` parameters replace. Raises S3Error
    InvalidArgument."""
    changed = dict(headers)
    for parameter, name in OVERRIDES.items():
        value = query.get(parameter)
        if value is None:
            continue
        if _UNSAFE.search(value):
            raise S3Error("InvalidArgument", "The header value contains a control character.", ArgumentName=parameter)
        changed[name] = value
    return changed


def parse_tagging(text: str) -> dict[str, str]:
    """Parse x-amz-tagging, a query string of tags. Raises S3Error InvalidArgument, InvalidTag."""
    pairs = []
    for pair in text.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            pairs.append((unquote_plus(name, errors="replace"), unquote_plus(value, errors="replace")))
    if len(dict(pairs)) < len(pairs):
        raise S3Error(
            "InvalidArgument",
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag "
            "name duplicates.",
            ArgumentName="x-amz-tagging",
        )
    return check_tags(pairs)


BUCKET_TAGS_MOST = 50
"""The most tags of a bucket (S3 API reference, PutBucketTagging)."""


def check_tags(pairs: list[tuple[str, str]], most: int = TAGS_MOST, owner: str = "Object") -> dict[str, str]:
    """Return the tags as a dictionary. *owner*: what has the tags, for the message. Raises S3Error BadRequest for more
    than *most* tags, InvalidTag for an invalid or repeated one."""
    if len(pairs) > most:
        raise S3Error("BadRequest", f"{owner} tags cannot be greater than {most}")
    tags: dict[str, str] = {}
    for name, value in pairs:
        if not is_tag_name(name):
            raise S3Error("InvalidTag", "The TagKey you have provided is invalid", TagKey=name)
        if not is_tag_value(value):
            raise S3Error("InvalidTag", "The TagValue you have provided is invalid", TagKey=name, TagValue=value)
        if name in tags:
            raise S3Error("InvalidTag", "Cannot provide multiple Tags with the same key", TagKey=name)
        tags[name] = value
    return tags
