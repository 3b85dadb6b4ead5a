"""What a request says of its own signature, read and checked for its form: in its header or its query. Pure, and no
secret is known here. Source: the S3 API reference, "Authenticating requests (AWS Signature Version 4)".
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
    """How a request's body is vouched for: x-amz-content-sha256."""

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
    """Lower-case names; several of one name joined by commas."""
    virtual_bucket: str = ""
    """The bucket, where the host names it and not the path."""


class ParsedSignature(NamedTuple):
    """What a request says of its own signature, but for the signature itself."""

    access_key: str
    date: str
    region: str
    service: str
    scope: str
    signed: tuple[str, ...]
    signed_text: str
    """The same as on the wire."""
    amz_date: str


class PresignedQuery(NamedTuple):
    """What a presigned query says, but for its signature."""

    fields: Mapping[str, str]
    """The X-Amz- parameters, without that prefix."""
    claim: ParsedSignature
    canonical_query: str


DATE_CHARS = 100
"""The longest text that is read as a date."""
REMEMBERED_CHARS = 512
"""What is read again with each request of a key and a second is read once, unless it is longer: what is remembered is
bounded in bytes, whatever clients send. It is the reading that is remembered, never whether a signature holds."""
REMEMBERED = 1024


class SignatureLocation(Enum):
    """Where a request's signature is."""

    NONE = 0
    HEADER = 1
    QUERY = 2
    V2_HEADER = 3
    """AWS's Signature Version 2, which is not taken there."""
    V2_QUERY = 4


def has_sigv2_query(raw_query: str) -> bool:
    """Whether the query is signed by Signature Version 2."""
    query = "&" + raw_query
    return "&Signature=" in query and "&AWSAccessKeyId=" in query


def signature_location(request: SignedRequest) -> SignatureLocation:
    """Where the signature is. Raises `InvalidArgumentError` if it is in two places."""
    query = "&" + request.raw_query
    # The one that SDKs write first is looked for first.
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
    """The claim in an authorization header, and its signature. Raises a `SignatureError` unless it is whole and meant
    for us."""
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
    read = _claim_short if len(header) <= REMEMBERED_CHARS else _claim
    claim = read(credential, signed, amz_date, region, service, AuthorizationHeaderMalformed)
    return claim, _signature(fields["Signature"], AuthorizationHeaderMalformed)


def _http_date(text: str) -> str:
    """An HTTP date, or ISO 8601's basic form in the Date header, as SigV4 writes it; empty if it is neither."""
    if _DATE.fullmatch(text):
        return text
    try:
        parsed = parsedate(text) if 0 < len(text) <= DATE_CHARS else None
    except (ValueError, IndexError, TypeError, OverflowError):
        parsed = None  # the standard library promises None for what is no date, and does not always keep to it
    return "" if parsed is None else "{:04}{:02}{:02}T{:02}{:02}{:02}Z".format(*parsed[:6])


def _claim(
    credential: str,
    signed: str,
    amz_date: str,
    region: str,
    service: str,
    error: type[AuthorizationHeaderMalformed | AuthorizationQueryParametersError],
) -> ParsedSignature:
    """What both forms say of themselves, checked for its form and for being meant for us; else raises *error*."""
    words = credential.rsplit("/", 4)
    if len(words) != 5 or words[4] != "aws4_request" or not words[0]:
        raise error(
            f"{error.prefix}; the Credential is mal-formed; expecting "
            '"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request".'
        )
    access_key, date, said_region, said_service, _ = words
    if said_region != region:
        raise error(f"{error.prefix}; the region '{said_region}' is wrong; expecting '{region}'", Region=region)
    if said_service != service:
        raise error(f'{error.prefix}; incorrect service "{said_service}". This endpoint belongs to "{service}".')
    if not _DATE.fullmatch(amz_date) or amz_date[:8] != date:
        raise error(f'{error.prefix}; incorrect date "{date}" in the Credential of a request of "{amz_date[:16]}".')
    names = signed.split(";")
    if names != sorted(set(names)) or "" in names or signed != signed.lower():
        raise error(f"{error.prefix}; SignedHeaders is not a sorted list of lower-case names.")
    scope = f"{date}/{region}/{service}/aws4_request"
    return ParsedSignature(access_key, date, region, service, scope, tuple(names), signed, amz_date)


_claim_short = lru_cache(REMEMBERED)(_claim)


def _signature(text: str, error: type[AuthorizationHeaderMalformed | AuthorizationQueryParametersError]) -> str:
    if not _HEX64.fullmatch(text):
        raise error(f"{error.prefix}; the Signature is not 64 lower-case hex digits.")
    return text


def parse_presigned_query(raw_query: str, region: str, service: str) -> tuple[PresignedQuery, str]:
    """What a presigned query says, and its signature. Raises a `SignatureError` unless it is whole and meant for us."""
    rest, found, signature = raw_query.rpartition("&X-Amz-Signature=")
    if not found or "&" in signature:
        rest, signature = _without_signature(raw_query)
    read = _presigned_short if len(rest) <= REMEMBERED_CHARS else _presigned
    return read(rest, region, service), _signature(signature, AuthorizationQueryParametersError)


def _without_signature(raw_query: str) -> tuple[str, str]:
    """The query without its signature, wherever in it that stands."""
    items = raw_query.split("&")
    signatures = [item for item in items if item.startswith("X-Amz-Signature=")]
    if not signatures:
        raise _missing("Signature")
    items.remove(signatures[0])
    return "&".join(items), signatures[0].partition("=")[2]


def _presigned(rest: str, region: str, service: str) -> PresignedQuery:
    fields = _query_fields(rest)
    for name in _QUERY_NAMES:
        if name not in fields:
            raise _missing(name)
    if fields["Algorithm"] != ALGORITHM:
        raise AuthorizationQueryParametersError(f"X-Amz-Algorithm only supports {ALGORITHM}")
    error = AuthorizationQueryParametersError
    claim = _claim(fields["Credential"], fields["SignedHeaders"], fields["Date"], region, service, error)
    return PresignedQuery(fields, claim, canonical_query(rest))


_presigned_short = lru_cache(REMEMBERED)(_presigned)


def _query_fields(rest: str) -> dict[str, str]:
    """The X-Amz- parameters of a query whose signature was taken out, without that prefix."""
    fields: dict[str, str] = {}
    for item in rest.split("&"):
        if item.startswith("X-Amz-"):
            name, _, value = item[6:].partition("=")
            if name in fields or name == "Signature":
                raise AuthorizationQueryParametersError(f"X-Amz-{name} is given more than once.")
            # As `canonical_query` reads it.
            fields[name] = unquote_plus(value) if "%" in value or "+" in value else value
    return fields


def _missing(name: str) -> AuthorizationQueryParametersError:
    return AuthorizationQueryParametersError(
        "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
        f"X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters; X-Amz-{name} is not there."
    )


def parse_content_sha256(content: str) -> tuple[PayloadKind, str]:
    """What x-amz-content-sha256 says, and the hash if it is one. Raises `InvalidArgumentError`."""
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
