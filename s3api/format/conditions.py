"""Parse preconditions and ranges from headers (RFC 9110 sections 13.1 and 14.1). The engine evaluates them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.engine.types import NO_CONDITIONS, ByteRange, Conditions
from s3api.errors import S3Error
from s3api.format.dates import parse_date

_ETAG = re.compile(r'(?P<weak>W/)?"(?P<quoted>[^"]*)"|(?P<bare>[^\s,"]+)')
_RANGE = re.compile(
    r"\s*+bytes\s*+=\s*+(?:(\d{1,19}+)\s*+-\s*+(\d{1,19}+)?|-\s*+(\d{1,19}+))\s*+", re.IGNORECASE | re.ASCII
)
_COPY_RANGE = re.compile(r"bytes=(\d{1,19})-(\d{1,19})", re.ASCII)

ETAG_LIST_CHARS, ETAG_LIST_ENTRIES = 8 << 10, 256
"""The limits of a list of entity tags. S3 itself allows 8 KiB of headers altogether."""
_CONDITIONAL = frozenset({"if-match", "if-none-match", "if-modified-since", "if-unmodified-since"})


def etags(header: str, weak_match: bool) -> tuple[str, ...]:
    """Parse the entity tags of an If-Match or If-None-Match header. S3 clients also send them without quotes.

    Under strong comparison (*weak_match* False) a weak tag keeps its `W/`, so that it matches nothing. Text that is
    neither a tag nor a comma is skipped. Raises S3Error InvalidArgument for a list beyond its limits."""
    if len(header) > ETAG_LIST_CHARS:
        raise S3Error("InvalidArgument", f"A list of entity tags has at most {ETAG_LIST_CHARS} characters.")
    tags = []
    for match in _ETAG.finditer(header):
        tag = match["quoted"] if match["quoted"] is not None else match["bare"]
        tags.append(f"W/{tag}" if match["weak"] and not weak_match else tag)
    if len(tags) > ETAG_LIST_ENTRIES:
        raise S3Error("InvalidArgument", f"A list of entity tags has at most {ETAG_LIST_ENTRIES} entries.")
    # A header without any tag must not become the absence of a condition.
    return tuple(tags) or ("",)


def read_conditions(headers: Mapping[str, str], prefix: str = "") -> Conditions:
    """Return the conditions of a read. *prefix*: `x-amz-copy-source-` for the conditions on a copy's source."""
    if not prefix and _CONDITIONAL.isdisjoint(headers):
        return NO_CONDITIONS
    match, none_match = headers.get(prefix + "if-match"), headers.get(prefix + "if-none-match")
    since, unmodified = headers.get(prefix + "if-modified-since"), headers.get(prefix + "if-unmodified-since")
    if match is None and none_match is None and since is None and unmodified is None:
        return NO_CONDITIONS
    return Conditions(
        if_match=etags(match, weak_match=False) if match is not None else (),
        if_none_match=etags(none_match, weak_match=True) if none_match is not None else (),
        if_modified_since_ns=parse_date(since) if since is not None else None,
        if_unmodified_since_ns=parse_date(unmodified) if unmodified is not None else None,
    )


def write_conditions(headers: Mapping[str, str]) -> Conditions:
    """Return the conditions of PutObject, CopyObject and CompleteMultipartUpload: If-Match with a tag, If-None-Match
    with `*`. Raises S3Error NotImplemented for other values, as S3 does."""
    match, none_match = headers.get("if-match"), headers.get("if-none-match")
    if match is None and none_match is None:
        return NO_CONDITIONS
    if none_match is not None and none_match.strip() != "*":
        raise S3Error("NotImplemented", "If-None-Match of a write takes * only.", Header="If-None-Match")
    return Conditions(
        if_match=etags(match, weak_match=False) if match is not None else (),
        if_none_match=("*",) if none_match is not None else (),
    )


def delete_conditions(headers: Mapping[str, str]) -> Conditions:
    """Return the conditions of DeleteObject: If-Match, x-amz-if-match-size, x-amz-if-match-last-modified-time."""
    match = headers.get("if-match")
    size, modified = headers.get("x-amz-if-match-size"), headers.get("x-amz-if-match-last-modified-time")
    if match is None and size is None and modified is None:
        return NO_CONDITIONS
    return make_delete_conditions(match, size, modified)


def make_delete_conditions(match: str | None, size: str | None, modified: str | None) -> Conditions:
    """Return the conditions of a deletion from texts, as the XML of DeleteObjects has them. Raises S3Error
    InvalidArgument."""
    at_ns = parse_date(modified) if modified is not None else None
    if (modified is not None and at_ns is None) or (size is not None and not (size.isascii() and size.isdigit())):
        raise S3Error("InvalidArgument", "The condition's size or time is invalid.")
    return Conditions(
        if_match=etags(match, weak_match=False) if match is not None else (),
        if_size=int(size) if size is not None else None,
        if_modified_at_ns=at_ns,
    )


def byte_range(header: str) -> ByteRange | None:
    """Parse a Range header. Returns None, which means the whole object, for several ranges, for other units, and for
    invalid headers, which RFC 9110 section 14.2 tells servers to ignore."""
    match = _RANGE.fullmatch(header)
    if match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        return ByteRange(None, int(suffix))
    if last is not None and int(last) < int(first):
        return None
    return ByteRange(int(first), int(last) if last is not None else None)


def copy_range(header: str) -> ByteRange:
    """Parse x-amz-copy-source-range, which must have the form `bytes=first-last`. Raises S3Error InvalidArgument."""
    match = _COPY_RANGE.fullmatch(header)
    if match is None or int(match[2]) < int(match[1]):
        raise S3Error(
            "InvalidArgument",
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the "
            "zero-based offsets of the first and last bytes to copy",
            ArgumentName="x-amz-copy-source-range",
            ArgumentValue=header,
        )
    return ByteRange(int(match[1]), int(match[2]))
