"""Preconditions, judged where nothing can change between looking and doing. Pure.

RFC 9110 section 13 for reads; for writes what S3's PutObject, CopyObject, CompleteMultipartUpload and DeleteObject say.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import NoSuchKey, NotModified, PreconditionFailed

SECOND_NS = 1_000_000_000


class Preconditions(NamedTuple):
    """What must hold. ETags without quotes, `*` for any. The fields of the front desk's `Conditions`, in its order."""

    if_match: tuple[str, ...] = ()
    if_none_match: tuple[str, ...] = ()
    if_modified_since_ns: int | None = None
    if_unmodified_since_ns: int | None = None
    if_size: int | None = None
    if_modified_at_ns: int | None = None
    """To the second."""


class ObjectState(NamedTuple):
    """What conditions look at."""

    etag: str
    size: int
    modified_ns: int


def _names(etags: tuple[str, ...], etag: str) -> bool:
    return "*" in etags or etag in etags


def check_write(asked: Preconditions | None, key: bytes, current: ObjectState | None) -> None:
    """Whether a write may replace *current* (None: nothing, or a delete marker, stands there).

    Raises `PreconditionFailed`, or `NoSuchKey` where If-Match asks for what is absent, as S3 does."""
    if asked is None:
        return
    if current is None:
        if asked.if_match:
            raise NoSuchKey(key)
        if asked.if_size is not None or asked.if_modified_at_ns is not None:
            raise NoSuchKey(key)
        return
    if asked.if_match and not _names(asked.if_match, current.etag):
        raise PreconditionFailed("If-Match")
    if asked.if_none_match and _names(asked.if_none_match, current.etag):
        raise PreconditionFailed("If-None-Match")
    if asked.if_unmodified_since_ns is not None and _second(current.modified_ns) > _second(
        asked.if_unmodified_since_ns
    ):
        raise PreconditionFailed("If-Unmodified-Since")
    _check_exact(asked, current)


def _check_exact(asked: Preconditions, current: ObjectState) -> None:
    if asked.if_size is not None and asked.if_size != current.size:
        raise PreconditionFailed("x-amz-if-match-size")
    if asked.if_modified_at_ns is not None and _second(asked.if_modified_at_ns) != _second(current.modified_ns):
        raise PreconditionFailed("x-amz-if-match-last-modified-time")


def _second(at_ns: int) -> int:
    return at_ns // SECOND_NS


def check_read(asked: Preconditions | None, current: ObjectState) -> None:
    """Whether a read is to be answered, in RFC 9110's order (13.2.2): a date counts only without its ETag condition.

    Raises `PreconditionFailed` or `NotModified`. Dates compare to the second, as HTTP tells them."""
    if asked is None:
        return
    modified = _second(current.modified_ns)
    if asked.if_match:
        if not _names(asked.if_match, current.etag):
            raise PreconditionFailed("If-Match")
    elif asked.if_unmodified_since_ns is not None and modified > _second(asked.if_unmodified_since_ns):
        raise PreconditionFailed("If-Unmodified-Since")
    if asked.if_none_match:
        if _names(asked.if_none_match, current.etag):
            raise NotModified("If-None-Match")
    elif asked.if_modified_since_ns is not None and modified <= _second(asked.if_modified_since_ns):
        raise NotModified("If-Modified-Since")


def check_source(asked: Preconditions | None, current: ObjectState) -> None:
    """Whether a copy may read its source: as a read, but S3 answers `PreconditionFailed` whatever failed."""
    try:
        check_read(asked, current)
    except NotModified as unchanged:
        raise PreconditionFailed(f"x-amz-copy-source-{str(unchanged).lower()}") from unchanged
