"""Preconditions of reads and writes. Pure.

The committer checks those of a write inside the command, so nothing can change between the check and the write.
Sources: RFC 9110 section 13 for reads; the S3 API pages of PutObject, CopyObject, CompleteMultipartUpload and
DeleteObject for writes.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import NoSuchKey, NotModified, PreconditionFailed

SECOND_NS = 1_000_000_000


class Preconditions(NamedTuple):
    """Conditions of a request. ETags have no quotes; `*` matches any. The fields are those of `Conditions` in
    `gateway.engine.types`, in the same order."""

    if_match: tuple[str, ...] = ()
    if_none_match: tuple[str, ...] = ()
    if_modified_since_ns: int | None = None
    if_unmodified_since_ns: int | None = None
    if_size: int | None = None
    if_modified_at_ns: int | None = None
    """Compared to the second."""


class ObjectState(NamedTuple):
    """The values of an existing object that conditions are compared with."""

    etag: str
    size: int
    modified_ns: int


def _names(etags: tuple[str, ...], etag: str) -> bool:
    return "*" in etags or etag in etags


def check_write(conditions: Preconditions | None, key: bytes, current: ObjectState | None) -> None:
    """Check whether a write may replace *current*, which is None if there is no object or a delete marker.

    Raises `PreconditionFailed`. Raises `NoSuchKey`, as S3 does, if the condition requires an object and there is
    none."""
    if conditions is None:
        return
    if current is None:
        if conditions.if_match:
            raise NoSuchKey(key)
        if conditions.if_size is not None or conditions.if_modified_at_ns is not None:
            raise NoSuchKey(key)
        return
    if conditions.if_match and not _names(conditions.if_match, current.etag):
        raise PreconditionFailed("If-Match")
    if conditions.if_none_match and _names(conditions.if_none_match, current.etag):
        raise PreconditionFailed("If-None-Match")
    if conditions.if_unmodified_since_ns is not None and _second(current.modified_ns) > _second(
        conditions.if_unmodified_since_ns
    ):
        raise PreconditionFailed("If-Unmodified-Since")
    _check_exact(conditions, current)


def _check_exact(conditions: Preconditions, current: ObjectState) -> None:
    if conditions.if_size is not None and conditions.if_size != current.size:
        raise PreconditionFailed("x-amz-if-match-size")
    if conditions.if_modified_at_ns is not None and _second(conditions.if_modified_at_ns) != _second(
        current.modified_ns
    ):
        raise PreconditionFailed("x-amz-if-match-last-modified-time")


def _second(at_ns: int) -> int:
    return at_ns // SECOND_NS


def check_read(conditions: Preconditions | None, current: ObjectState) -> None:
    """Check the conditions of a read in the order of RFC 9110, 13.2.2. A date is ignored if its ETag condition is
    given.

    Raises `PreconditionFailed` or `NotModified`. Dates are compared to the second, which is HTTP's resolution."""
    if conditions is None:
        return
    modified = _second(current.modified_ns)
    if conditions.if_match:
        if not _names(conditions.if_match, current.etag):
            raise PreconditionFailed("If-Match")
    elif conditions.if_unmodified_since_ns is not None and modified > _second(conditions.if_unmodified_since_ns):
        raise PreconditionFailed("If-Unmodified-Since")
    if conditions.if_none_match:
        if _names(conditions.if_none_match, current.etag):
            raise NotModified("If-None-Match")
    elif conditions.if_modified_since_ns is not None and modified <= _second(conditions.if_modified_since_ns):
        raise NotModified("If-Modified-Since")


def check_source(conditions: Preconditions | None, current: ObjectState) -> None:
    """Check the conditions on the source of a copy, as for a read. Raises `PreconditionFailed` for each failure, as S3
    does."""
    try:
        check_read(conditions, current)
    except NotModified as unchanged:
        raise PreconditionFailed(f"x-amz-copy-source-{str(unchanged).lower()}") from unchanged
