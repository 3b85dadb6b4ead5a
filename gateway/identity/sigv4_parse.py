"""Parse the signature of a request, in its header or its query, and check its syntax. Pure; no secret is needed.

Source: the S3 API reference, "Authenticating requests (AWS Signature Version 4)".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate
from enum import Enum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_plus

from gateway.identity.canonical import ALGORITHM, UNSIGNED_PAYLOAD, canonical_query
from gateway.identity.signature_errors import (
    AccessDeniedError,
    AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError,
    InvalidArgumentError,
)

_HEX64 = re.compile(r"[0-9a-f]{64}")
_HEX_HASH = re.compile(r"[0-9a-fA-F]{64}")
_DATE = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_QUERY_NAMES = ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders")


class PayloadKind(Enum):
    """How the request's body is verified: the value of x-amz-content-sha256."""

    UNSIGNED = UNSIGNED_PAYLOAD
    SIGNED = "a hash"
    STREAMING = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    STREAMING_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
    STREAMING_UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


_KINDS = {kind.value: kind for kind in PayloadKind if kind is not PayloadKind.SIGNED}


class SignedRequest(NamedTuple):
    """A request as plain values."""

    method: str
    raw_path: str
    """As on the wire, without the query."""
    raw_query: str
    """As on the wire, without the question mark."""
    headers: Mapping[str, str]
    """By lower-case name; the values of a repeated header are joined by commas."""
    virtual_bucket: str = ""
    """The bucket, if the host names it and not the path."""


class ParsedSignature(NamedTuple):
    """The fields of a request's signature, without the signature itself."""

    access_key: str
    date: str
    region: str
    service: str
    scope: str
    signed: tuple[str, ...]
    signed_text: str
    """`signed` as on the wire."""
    amz_date: str


class PresignedQuery(NamedTuple):
    """The parsed query of a presigned request, without its signature."""

    fields: Mapping[str, str]
    """The X-Amz- parameters, without that prefix."""
    signature_fields: ParsedSignature
    canonical_query: str


DATE_CHARS = 100
"""Longer texts are not parsed as a date."""
CACHED_CHARS_MOST = 512
"""Parsing results of texts up to this length are cached, since the same key sends the same text with many requests of a
second. The limit bounds the cache in bytes. Only parsing is cached, never whether a signature is valid."""
CACHE_ENTRIES = 1024


class SignatureLocation(Enum):
    """Where the signature of a request is."""

    NONE = 0
    HEADER = 1
    QUERY = 2
    V2_HEADER = 3
    """AWS's Signature Version 2, which is not supported there."""
    V2_QUERY = 4


def has_sigv2_query(raw_query: str) -> bool:
    """Whether the query is signed by Signature Version 2."""
    query = "&" + raw_query
    return "&Signature=" in query and "&AWSAccessKeyId=" in query


def signature_location(request: SignedRequest) -> SignatureLocation:
    """Return where the signature is. Raises `InvalidArgumentError` if there are two."""
    query = "&" + request.raw_query
    # The parameter that SDKs write first is searched first.
    in_query = "&X-Amz-Algorithm=" in query or "&X-Amz-Signature=" in query or "&X-Amz-Credential=" in query
    header = request.headers.get("authorization", "").strip()
    old_in_query = has_sigv2_query(request.raw_query)
    if header or (in_query and old_in_query):
        if in_query or old_in_query:
            raise InvalidArgumentError(
                "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string "
                "parameter or the Authorization header should be specified",
                ArgumentName="Authorization",
            )
        return SignatureLocation.V2_HEADER if header.startswith("AWS ") else SignatureLocation.HEADER
    if in_query:
        return SignatureLocation.QUERY
    return SignatureLocation.V2_QUERY if old_in_query else SignatureLocation.NONE


def parse_authorization_header(
    header: str, headers: Mapping[str, str], region: str, service: str
) -> tuple[ParsedSignature, str]:
    """Parse an Authorization header. Returns its fields and the signature. Raises a `SignatureError` unless it is
    complete and meant for this endpoint."""
    word, _, rest = header.partition(" ")
    if word != ALGORITHM:
        raise InvalidArgumentError(
            f"Unsupported Authorization Type. Please use {ALGORITHM}.", ArgumentName="Authorization"
        )
    fields: dict[str, str] = {}
    for item in rest.split(","):
        name, equals, value = item.strip().partition("=")
        if not equals or name in fields:
            raise AuthorizationHeaderMalformed("The authorization header is malformed.")
        fields[name] = value
    if fields.keys() != {"Credential", "SignedHeaders", "Signature"}:
        raise AuthorizationHeaderMalformed(
            "The authorization header needs exactly Credential, SignedHeaders and Signature."
        )
    amz_date = headers.get("x-amz-date") or _http_date(headers.get("date", ""))
    if not _DATE.fullmatch(amz_date):
        raise AccessDeniedError("AWS authentication requires a valid Date or x-amz-date header")
    credential, signed = fields["Credential"], fields["SignedHeaders"]
    read = _parse_fields_cached if len(header) <= CACHED_CHARS_MOST else _parse_fields
    parsed = read(credential, signed, amz_date, region, service, AuthorizationHeaderMalformed)
    return parsed, _check_hex_signature(fields["Signature"], AuthorizationHeaderMalformed)


def _http_date(text: str) -> str:
    """Return a Date header as an x-amz-date. It may be an HTTP date or in the basic form of ISO 8601, as in SigV4.
    Empty if it is neither."""
    if _DATE.fullmatch(text):
        return text
    try:
        parsed = parsedate(text) if 0 < len(text) <= DATE_CHARS else None
    except (ValueError, IndexError, TypeError, OverflowError):
        parsed = None  # documented to return None for an invalid date, but raises these for some
    return "" if parsed is None else "{:04}{:02}{:02}T{:02}{:02}{:02}Z".format(*parsed[:6])


def _parse_fields(
    credential: str,
    signed: str,
    amz_date: str,
    region: str,
    service: str,
    error: type[AuthorizationHeaderMalformed | AuthorizationQueryParametersError],
) -> ParsedSignature:
    """Check the fields that both forms have. Raises *error* if they are malformed or not meant for this endpoint."""
    words = credential.rsplit("/", 4)
    if len(words) != 5 or words[4] != "aws4_request" or not words[0]:
        raise error(
            f"{error.prefix}; the Credential is mal-formed; expecting "
            '"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request".'
        )
    access_key, date, given_region, given_service, _ = words
    if given_region != region:
        raise error(f"{error.prefix}; the region '{given_region}' is wrong; expecting '{region}'", Region=region)
    if given_service != service:
        raise error(f'{error.prefix}; incorrect service "{given_service}". This endpoint belongs to "{service}".')
    if not _DATE.fullmatch(amz_date) or amz_date[:8] != date:
        raise error(f'{error.prefix}; incorrect date "{date}" in the Credential of a request of "{amz_date[:16]}".')
    names = signed.split(";")
    if names != sorted(set(names)) or "" in names or signed != signed.lower():
        raise error(f"{error.prefix}; SignedHeaders is not a sorted list of lower-case names.")
    scope = f"{date}/{region}/{service}/aws4_request"
    return ParsedSignature(access_key, date, region, service, scope, tuple(names), signed, amz_date)


_parse_fields_cached = lru_cache(CACHE_ENTRIES)(_parse_fields)


def _check_hex_signature(
    text: str, error: type[AuthorizationHeaderMalformed | AuthorizationQueryParametersError]
) -> str:
    if not _HEX64.fullmatch(text):
        raise error(f"{error.prefix}; the Signature is not 64 lower-case hex digits.")
    return text


def parse_presigned_query(raw_query: str, region: str, service: str) -> tuple[PresignedQuery, str]:
    """Parse a presigned query. Returns its fields and the signature. Raises a `SignatureError` unless it is complete
    and meant for this endpoint."""
    rest, found, signature = raw_query.rpartition("&X-Amz-Signature=")
    if not found or "&" in signature:
        rest, signature = _without_signature(raw_query)
    read = _parse_query_cached if len(rest) <= CACHED_CHARS_MOST else _parse_query
    return read(rest, region, service), _check_hex_signature(signature, AuthorizationQueryParametersError)


def _without_signature(raw_query: str) -> tuple[str, str]:
    """Return the query without its signature, and the signature, wherever in the query it is."""
    items = raw_query.split("&")
    signatures = [item for item in items if item.startswith("X-Amz-Signature=")]
    if not signatures:
        raise _missing("Signature")
    items.remove(signatures[0])
    return "&".join(items), signatures[0].partition("=")[2]


def _parse_query(rest: str, region: str, service: str) -> PresignedQuery:
    fields = _query_fields(rest)
    for name in _QUERY_NAMES:
        if name not in fields:
            raise _missing(name)
    if fields["Algorithm"] != ALGORITHM:
        raise AuthorizationQueryParametersError(f"X-Amz-Algorithm only supports {ALGORITHM}")
    error = AuthorizationQueryParametersError
    parsed = _parse_fields(fields["Credential"], fields["SignedHeaders"], fields["Date"], region, service, error)
    return PresignedQuery(fields, parsed, canonical_query(rest))


_parse_query_cached = lru_cache(CACHE_ENTRIES)(_parse_query)


def _query_fields(rest: str) -> dict[str, str]:
    """Return the X-Amz- parameters of a query without its signature, without that prefix."""
    fields: dict[str, str] = {}
    for item in rest.split("&"):
        if item.startswith("X-Amz-"):
            name, _, value = item[6:].partition("=")
            if name in fields or name == "Signature":
                raise AuthorizationQueryParametersError(f"X-Amz-{name} is given more than once.")
            # Decoded as `canonical_query` does.
            fields[name] = unquote_plus(value) if "%" in value or "+" in value else value
    return fields


def _missing(name: str) -> AuthorizationQueryParametersError:
    return AuthorizationQueryParametersError(
        "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
        f"X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters; X-Amz-{name} is missing."
    )


def parse_content_sha256(content: str) -> tuple[PayloadKind, str]:
    """Return the meaning of x-amz-content-sha256, and the hash if it is one. Raises `InvalidArgumentError`."""
    kind = _KINDS.get(content)
    if kind is not None:
        return kind, ""
    if not _HEX_HASH.fullmatch(content):
        raise InvalidArgumentError(
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, its -TRAILER, "
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER, or a valid sha256 value.",
            ArgumentName="x-amz-content-sha256",
            ArgumentValue=content[:100],
        )
    return PayloadKind.SIGNED, content.lower()
