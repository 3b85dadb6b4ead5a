"""Sign requests, as a client does. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from hmac import digest
from urllib.parse import quote

from gateway.identity import canonical
from gateway.identity.canonical import ALGORITHM, EMPTY_SHA256, UNSIGNED_PAYLOAD


def presign(
    method: str,
    *,
    host: str,
    path: str | bytes,
    access_key: str,
    secret_key: str,
    region: str,
    now: datetime,
    expires: int,
    query: Mapping[str, str] | None = None,
) -> str:
    """Return the path and the query of a presigned request. *path*: not encoded. The URL is valid for *expires* seconds
    from *now* (UTC)."""
    amz_date = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{amz_date[:8]}/{region}/s3/aws4_request"
    fields = {
        **(query or {}),
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{access_key}/{scope}",
        "X-Amz-Date": amz_date,
        "X-Amz-Expires": str(expires),
        "X-Amz-SignedHeaders": "host",
    }
    # The query is sorted as it is signed: by the encoded names and values.
    pairs = sorted((canonical.encode(name), canonical.encode(value)) for name, value in fields.items())
    raw_query = "&".join([f"{name}={value}" for name, value in pairs])
    raw_path = quote(path, safe="/-_.~")
    request = canonical.canonical_request(method, raw_path, raw_query, f"host:{host}\n", "host", UNSIGNED_PAYLOAD)
    key = canonical.signing_key(secret_key, amz_date[:8], region, "s3")
    signature = canonical.sign(key, canonical.string_to_sign(amz_date, scope, request))
    return f"{raw_path}?{raw_query}&X-Amz-Signature={signature}"


def sign_headers(
    method: str,
    *,
    raw_path: str,
    raw_query: str = "",
    headers: Mapping[str, str],
    payload: str = EMPTY_SHA256,
    access_key: str,
    secret_key: str,
    region: str,
    now: datetime,
    service: str = "s3",
) -> dict[str, str]:
    """Return *headers* with the headers of the signature. *headers* have lower-case names and include `host`.
    *payload*: the SHA-256 of the body in hex, or the text that replaces it."""
    amz_date = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{amz_date[:8]}/{region}/{service}/aws4_request"
    signed = {**headers, "x-amz-date": amz_date, "x-amz-content-sha256": payload}
    names = sorted(signed)
    request = canonical.canonical_request(
        method,
        canonical.canonical_path(raw_path),
        canonical.canonical_query(raw_query),
        canonical.canonical_headers(signed, names),
        ";".join(names),
        payload,
    )
    key = canonical.signing_key(secret_key, amz_date[:8], region, service)
    signature = canonical.sign(key, canonical.string_to_sign(amz_date, scope, request))
    signed["authorization"] = (
        f"{ALGORITHM} Credential={access_key}/{scope},SignedHeaders={';'.join(names)},Signature={signature}"
    )
    return signed


END = b"\r\n"
"""Follows the empty chunk of a body without trailers."""


class ChunkSigner:
    """Frames a body as signed chunks (S3 API reference, "Transferring payload in multiple chunks")."""

    def __init__(self, key: bytes, amz_date: str, scope: str, seed: str) -> None:
        self._key = key
        self._prefix = f"{amz_date}\n{scope}\n"
        self._previous = seed

    def chunk(self, data: bytes) -> bytes:
        """Return a framed chunk. An empty one is the last, followed by `END` or by a `trailer`."""
        text = (
            f"AWS4-HMAC-SHA256-PAYLOAD\n{self._prefix}{self._previous}\n{EMPTY_SHA256}\n"
            f"{hashlib.sha256(data).hexdigest()}"
        )
        self._previous = canonical.sign(self._key, text)
        end = b"\r\n" if data else b""
        return f"{len(data):x};chunk-signature={self._previous}\r\n".encode() + data + end

    def trailer(self, lines: Mapping[str, str]) -> bytes:
        """Return the trailers, which follow the empty chunk, with their signature."""
        canonical_lines = "".join(f"{name}:{value}\n" for name, value in lines.items())
        hashed = hashlib.sha256(canonical_lines.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256-TRAILER\n{self._prefix}{self._previous}\n{hashed}"
        signature = digest(self._key, text.encode(), "sha256").hex()
        sent = "".join(f"{name}:{value}\r\n" for name, value in lines.items())
        return f"{sent}x-amz-trailer-signature:{signature}\r\n\r\n".encode()
