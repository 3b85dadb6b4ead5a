"""Parse the request target into bucket, key and query. Pure.

S3 keys are not paths: `//`, `.`, `..` and `%2F` are literal, so nothing is normalised. In strings, bytes that are not
UTF-8 are represented by surrogates (`surrogateescape`); `to_bytes` restores them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_plus, unquote_to_bytes

from s3api.errors import S3Error

_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
SERVICE, BUCKET, OBJECT = "service", "bucket", "object"
"""The scopes of an operation."""


class RequestTarget(NamedTuple):
    """A parsed request target."""

    path: str
    """The path as the client sent it, which is signed."""
    raw_query: str
    bucket: str
    key: bytes
    query: Mapping[str, str]
    """The decoded query parameters; no name occurs twice."""
    virtual: bool = False
    """Whether the host names the bucket and the path only the key."""

    @property
    def scope(self) -> str:
        if self.key:
            return OBJECT
        return BUCKET if self.bucket else SERVICE


def parse_target(raw: str, virtual: str = "") -> RequestTarget:
    """Parse the request target *raw* in origin form. *virtual*: the bucket that the host names; empty for path style.

    Raises S3Error InvalidURI, InvalidBucketName, and InvalidArgument for a repeated parameter."""
    if "#" in raw or "\x00" in raw:
        raise S3Error("InvalidURI")
    path, _, raw_query = raw.partition("?")
    bucket, key = _split(path, virtual)
    return RequestTarget(path, raw_query, bucket, key, parse_query(raw_query) if raw_query else {}, bool(virtual))


def parse_query(raw: str) -> Mapping[str, str]:
    """Return the decoded query; `+` is a space, as in S3.

    A signature at the end is left out: no operation reads it, and without it the presigned queries that a client
    creates within one second are equal, so that the cache holds them once.

    Raises S3Error InvalidArgument for too many parameters and for a repeated name. Signatures do not cover the order of
    parameters, so the holder of a presigned URL could otherwise choose which of two values applies."""
    rest, found, signature = raw.rpartition("&X-Amz-Signature=")
    if found and "&" not in signature:
        raw = rest
    return _parse_short(raw) if len(raw) <= CACHED_QUERY_CHARS else _parse(raw)


def _parse(raw: str) -> Mapping[str, str]:
    if raw.count("&") >= MAX_PARAMETERS:
        raise S3Error("InvalidArgument", f"A query has at most {MAX_PARAMETERS} parameters.")
    parameters: dict[str, str] = {}
    for pair in raw.split("&"):
        if not pair:
            continue
        name, _, value = pair.partition("=")
        if "%" in name or "+" in name:
            name = unquote_plus(name, errors="surrogateescape")
        if "%" in value or "+" in value:
            value = unquote_plus(value, errors="surrogateescape")
        if name in parameters:
            raise S3Error("InvalidArgument", "A query parameter is given more than once.", ArgumentName=name)
        parameters[name] = value
    return parameters


MAX_PARAMETERS = 200
"""The limit of query parameters. A presigned request may have one for each of its headers, and a dozen others."""
CACHED_QUERY_CHARS = 512
"""Parsed queries up to this length are cached."""
_parse_short = lru_cache(maxsize=1024)(_parse)


def to_bytes(text: str) -> bytes:
    """Return the bytes that the client sent for *text*."""
    return text.encode("utf-8", "surrogateescape")


def _split(path: str, virtual: str) -> tuple[str, bytes]:
    if virtual:
        return virtual, _decode(path[1:])
    if path == "/":
        return "", b""
    bucket, slash, key = path[1:].partition("/")
    if not bucket:
        raise S3Error("InvalidBucketName", BucketName="")
    if "%" in bucket:
        bucket = _decode(bucket).decode("utf-8", "replace")
    if "/" in bucket or not bucket.isascii():
        raise S3Error("InvalidBucketName", BucketName=bucket)
    return bucket, _decode(key) if slash else b""


def _decode(part: str) -> bytes:
    if "%" not in part:
        return part.encode("utf-8", "surrogateescape")
    if _NO_ESCAPE.search(part):
        raise S3Error("InvalidURI")
    return unquote_to_bytes(part)
