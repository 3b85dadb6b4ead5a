"""The destination host of a request: a single value, which is signed and which names the bucket. Pure.

RFC 9112 section 3.2: a client sends Host in every HTTP/1.1 request, identical to the authority of an absolute-form
target. A request whose two hosts differ is rejected: the signature would cover one of them while the other names the
bucket, and a proxy might use either.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from s3api.errors import S3Error

_AUTHORITY = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._~%-]{1,64})?\])(?::[0-9]{0,5})?")
"""A name, an IPv4 address, or an IPv6 address in brackets; then an optional port, which may be empty. User information
is an error (RFC 9110 section 4.2.4)."""
_AUTHORITY_CHARS = 400


class Destination(NamedTuple):
    """The destination of a request."""

    authority: str
    """Host and port, as they are signed; empty for an HTTP/1.0 request without a Host header."""
    origin: str
    """Path and query as the client sent them."""


def destination(raw: str, host: str | None, version: tuple[int, int]) -> Destination:
    """Return the destination of the request target *raw* with the Host header *host* in this version of HTTP.

    Raises S3Error BadRequest for a missing, malformed or contradictory host, InvalidURI for a target that is neither
    in origin form nor in absolute form."""
    if host is None and version >= (1, 1):
        raise S3Error("BadRequest", "The request has no Host header.")
    if host is not None:
        _check(host)
    if raw.startswith("/"):
        return Destination(host or "", raw)
    authority, origin = _absolute(raw)
    _check(authority)
    if host is not None and host.lower() != authority.lower():
        raise S3Error("BadRequest", "The request target and the Host header name different hosts.")
    return Destination(host if host is not None else authority, origin)


def logged_path(raw: str) -> str:
    """Return the path of the request target *raw* for logs. Query and authority are left out, since a client may have
    put a secret into either. Empty for an invalid target."""
    try:
        origin = raw if raw.startswith("/") else _absolute(raw)[1]
    except S3Error:
        return ""
    return origin.partition("?")[0]


def _absolute(raw: str) -> tuple[str, str]:
    """Split a target in absolute form (RFC 9112 section 3.2.2) into its authority, and its path and query."""
    scheme, mark, rest = raw.partition("://")
    if not mark or scheme.lower() not in {"http", "https"}:
        raise S3Error("InvalidURI")
    ends = [at for at in (rest.find("/"), rest.find("?")) if at >= 0]
    cut = min(ends) if ends else len(rest)
    path = rest[cut:]
    return rest[:cut], (path if path.startswith("/") else "/" + path)


def _check(authority: str) -> None:
    if len(authority) > _AUTHORITY_CHARS or _AUTHORITY.fullmatch(authority) is None:
        raise S3Error("BadRequest", "The request names a host that is not valid.")


def virtual_bucket(authority: str, base_domains: tuple[str, ...]) -> str:
    """Return the bucket that *authority* names below one of *base_domains*; empty for a path-style request."""
    return _virtual_bucket(authority, base_domains) if base_domains else ""


@lru_cache(maxsize=256)
def _virtual_bucket(authority: str, base_domains: tuple[str, ...]) -> str:
    # A trailing dot makes a DNS name absolute; it is still the same name.
    name = authority.partition(":")[0].lower().removesuffix(".")
    if name in base_domains:
        return ""
    # One base domain may be a subdomain of another: the longest match determines the bucket.
    matching = [domain for domain in base_domains if name.endswith("." + domain)]
    return name[: -len(max(matching, key=len)) - 1] if matching else ""
