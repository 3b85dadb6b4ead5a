"""What a client says of an object besides its bytes: content headers, user metadata, tags; and back again. Pure.

Source: S3's user guide, "Working with object metadata": names and values of user metadata are 2 KiB together, and what
is not ASCII is read as RFC 2047, kept decoded, and encoded so again before it is returned.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from urllib.parse import unquote_plus

from gateway.engine.types import ObjectMeta
from s3api.errors import S3Error

CONTENT_HEADERS = frozenset(
    {"cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires"}
)
META = "x-amz-meta-"
DEFAULT_TYPE = "binary/octet-stream"
_SHOWN = {name: name.title() for name in CONTENT_HEADERS}
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
"""The charsets that an encoded word may name. Python has more: some take quadratic time, and each unknown name that it
looks up costs a search for a module and stays in memory."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MAX_TAGS, TAG_NAME_CHARS, TAG_VALUE_CHARS = 10, 128, 256


def object_meta(headers: Mapping[str, str], metadata_bytes: int, tagging: str | None = None) -> ObjectMeta:
    """The metadata in a request's headers, whose names are lower-case. *tagging*: the value of x-amz-tagging.

    Raises S3Error MetadataTooLarge or InvalidTag."""
    kept: dict[str, str] = {}
    user_bytes = 0
    for name, value in headers.items():
        if name.startswith(META):
            value = decode_words(value)
            user_bytes += len(name) - len(META) + len(value.encode())
            kept[name] = value
        elif name in CONTENT_HEADERS and value:
            kept[name] = value
    if user_bytes > metadata_bytes:
        raise S3Error("MetadataTooLarge", MetadataSizeMaximum=str(metadata_bytes), Size=str(user_bytes))
    _drop_transfer_coding(kept)
    kept.setdefault("content-type", DEFAULT_TYPE)
    return ObjectMeta(kept, parse_tagging(tagging) if tagging else {})


def _drop_transfer_coding(kept: dict[str, str]) -> None:
    """`aws-chunked` says how the bytes travelled, not what they are."""
    encoding = kept.get("content-encoding")
    if encoding is not None and "aws-chunked" in encoding.lower():
        codings = [each.strip() for each in encoding.split(",")]
        rest = ",".join(each for each in codings if each and each.lower() != "aws-chunked")
        if rest:
            kept["content-encoding"] = rest
        else:
            del kept["content-encoding"]


def decode_words(value: str) -> str:
    """User metadata as text, RFC 2047's encoded words decoded. The value itself where one of them cannot be decoded."""
    if not value.isascii() or "=?" not in value:
        return value
    try:
        text = "".join(raw.decode(charset) for raw, charset in _words(value))
    except ValueError:
        return value
    # Decoded, it must still be one header line.
    return value if _CONTROL.search(text) else text


def _words(value: str) -> list[tuple[bytearray, str]]:
    """The pieces of *value*: bytes and their charset. What neighbouring words of one charset hold is one piece, for a
    character may be split between them. Raises ValueError."""
    pieces: list[tuple[bytearray, str]] = []
    at = 0
    for match in _ENCODED_WORD.finditer(value):
        between, charset = value[at : match.start()], match[1].lower()
        if charset not in _CHARSETS:
            raise ValueError(charset)
        # RFC 2047 section 6.2: blanks between two encoded words are not part of the text.
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
    """A header's value whose bytes that are no UTF-8 came as surrogates: then all of it is read as Latin-1."""
    raw = value.encode("utf-8", "surrogateescape")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def encode_words(value: str) -> str:
    """The other way: what is not ASCII as one word of RFC 2047."""
    if value.isascii():
        return value
    return f"=?UTF-8?B?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def meta_lines(headers: Mapping[str, str]) -> str:
    """An object's stored headers as header lines. A value that no header can hold (POSIX may have written it) is
    left out and counted in x-amz-missing-meta, as S3 does."""
    lines = []
    missing = 0
    for name, value in headers.items():
        if name.startswith(META):
            value = encode_words(value)
            shown = name
        else:
            shown = _SHOWN.get(name, name)
        if _UNSAFE.search(value):
            missing += 1
        else:
            lines.append(f"{shown}: {value}\r\n")
    if missing:
        lines.append(f"x-amz-missing-meta: {missing}\r\n")
    return "".join(lines)


OVERRIDES = {f"response-{name}": name for name in CONTENT_HEADERS}


def with_overrides(headers: Mapping[str, str], query: Mapping[str, str]) -> Mapping[str, str]:
    """The stored headers, under GetObject's `response-*` parameters. Raises S3Error InvalidArgument."""
    changed = dict(headers)
    for parameter, name in OVERRIDES.items():
        value = query.get(parameter)
        if value is None:
            continue
        if _UNSAFE.search(value):
            raise S3Error("InvalidArgument", "A header value holds a control character.", ArgumentName=parameter)
        changed[name] = value
    return changed


def parse_tagging(text: str) -> dict[str, str]:
    """x-amz-tagging: a query string of tags. Raises S3Error InvalidArgument or InvalidTag."""
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


_TAG = re.compile(r"[\w\s+\-=.:/@]*")


def check_tags(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Tags within S3's limits: 10 an object, 128 and 256 characters, no name twice. Raises S3Error."""
    if len(pairs) > MAX_TAGS:
        raise S3Error("BadRequest", f"Object tags cannot be greater than {MAX_TAGS}")
    tags: dict[str, str] = {}
    for name, value in pairs:
        if not name or len(name) > TAG_NAME_CHARS or not _TAG.fullmatch(name) or name.startswith("aws:"):
            raise S3Error("InvalidTag", "The TagKey you have provided is invalid", TagKey=name)
        if len(value) > TAG_VALUE_CHARS or not _TAG.fullmatch(value):
            raise S3Error("InvalidTag", "The TagValue you have provided is invalid", TagKey=name, TagValue=value)
        if name in tags:
            raise S3Error("InvalidTag", "Cannot provide multiple Tags with the same key", TagKey=name)
        tags[name] = value
    return tags
