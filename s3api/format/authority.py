"""The host that a request is for: one value, which is signed and which names the bucket. Pure.

RFC 9112 section 3.2: a client sends Host in every HTTP/1.1 request, identical to the authority of an absolute-form
target. A request whose two hosts differ is refused: its signature would cover one of them while the other names the
bucket, and a proxy in front might look at either.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from s3api.errors import S3Error

_AUTHORITY = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._~%-]{1,64})?\])(?::[0-9]{0,5})?")
"""A name or an IPv4 address, or an IPv6 address in brackets; then a port, which may be empty. No user information:
RFC 9110 section 4.2.4 has it treated as an error."""
_LONGEST = 400


class Destination(NamedTuple):
    """Where a request is sent."""

    authority: str
    """Host and port as they are signed; empty for a request of HTTP/1.0 that names no host."""
    origin: str
    """Path and query, as on the wire."""


def destination(raw: str, host: str | None, version: tuple[int, int]) -> Destination:
    """The destination of the request target *raw* that came with the Host header *host* in this version of HTTP.

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
        raise S3Error("BadRequest", "The request target names another host than the Host header.")
    return Destination(host if host is not None else authority, origin)


def logged_path(raw: str) -> str:
    """The path of the request target *raw*, for logs: without its query and its authority, for a client may have put a
    secret into either. Empty for a target of neither form."""
    try:
        origin = raw if raw.startswith("/") else _absolute(raw)[1]
    except S3Error:
        return ""
    return origin.partition("?")[0]


def _absolute(raw: str) -> tuple[str, str]:
    """Authority, and path and query, of a target in absolute form (RFC 9112 section 3.2.2)."""
    scheme, mark, rest = raw.partition("://")
    if not mark or scheme.lower() not in {"http", "https"}:
        raise S3Error("InvalidURI")
    ends = [at for at in (rest.find("/"), rest.find("?")) if at >= 0]
    cut = min(ends) if ends else len(rest)
    path = rest[cut:]
    return rest[:cut], (path if path.startswith("/") else "/" + path)


def _check(authority: str) -> None:
    if len(authority) > _LONGEST or _AUTHORITY.fullmatch(authority) is None:
        raise S3Error("BadRequest", "The request names a host that is not valid.")


def virtual_bucket(authority: str, base_domains: tuple[str, ...]) -> str:
    """The bucket that *authority* names under one of *base_domains*; empty for path style, as if it is one of them."""
    return _virtual_bucket(authority, base_domains) if base_domains else ""


@lru_cache(maxsize=256)
def _virtual_bucket(authority: str, base_domains: tuple[str, ...]) -> str:
    # A dot at the end makes a DNS name absolute; it is the same name.
    name = authority.partition(":")[0].lower().removesuffix(".")
    if name in base_domains:
        return ""
    # One base domain may lie beneath another: the longest names the bucket.
    fitting = [domain for domain in base_domains if name.endswith("." + domain)]
    return name[: -len(max(fitting, key=len)) - 1] if fitting else ""
