"""Whether a request was signed by who it says, by AWS Signature Version 4: in its header or its query. Pure: no
clock, no I/O. Source: the S3 API reference, "Authenticating requests (AWS Signature Version 4)".
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Callable, Mapping
from email.utils import parsedate
from enum import Enum
from hmac import compare_digest
from time import gmtime, strftime
from typing import NamedTuple
from urllib.parse import unquote

from gateway.identity import canonical
from gateway.identity.canonical import ALGORITHM, UNSIGNED_PAYLOAD
from gateway.identity.signature_errors import (
    AccessDeniedError,
    AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError,
    InvalidAccessKeyId,
    InvalidArgument,
    InvalidRequest,
    InvalidToken,
    RequestTimeTooSkewed,
    SignatureDoesNotMatch,
    SignatureError,
)

SKEW_SECONDS = 15 * 60
EXPIRES_MOST_SECONDS = 7 * 24 * 3600
_HEX64 = re.compile(r"[0-9a-f]{64}")
_DATE = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_ACCESS_KEY = re.compile(r"[\x21-\x7e]{1,128}")
_OLD = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
_UNSIGNED_HEADERS = "There were headers present in the request which were not signed"
_HEX_HASH = re.compile(r"[0-9a-fA-F]{64}")


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


class Verified(NamedTuple):
    """A request whose signature holds."""

    access_key: str
    payload: PayloadKind
    sha256: str
    """The promised hash of the body, lower-case hex, where `payload` is SIGNED; else empty."""
    signing_key: bytes
    scope: str
    amz_date: str
    signature: str
    """The request's own signature, which seeds those of its chunks."""
    presigned: bool

    def __repr__(self) -> str:
        return f"Verified({self.access_key!r}, {self.payload.name}, {self.scope!r})"


class _Claim(NamedTuple):
    """What a request says of its own signature."""

    access_key: str
    date: str
    region: str
    service: str
    scope: str
    signed: list[str]
    signature: str
    amz_date: str


class _Form(Enum):
    """Where a request's signature is."""

    NOWHERE = 0
    HEADER = 1
    QUERY = 2
    OLD = 3
    """AWS's Signature Version 2, which S3 does not take any more."""


def _form(request: SignedRequest) -> _Form:
    query = "&" + request.raw_query
    in_query = any(name in query for name in ("&X-Amz-Algorithm=", "&X-Amz-Credential=", "&X-Amz-Signature="))
    if (header := request.headers.get("authorization")) is not None:
        if in_query:
            raise InvalidArgument(
                "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string "
                "parameter or the Authorization header should be specified",
                ArgumentName="Authorization",
            )
        return _Form.OLD if header.startswith("AWS ") else _Form.HEADER
    if in_query:
        return _Form.QUERY
    return _Form.OLD if "&Signature=" in query and "&AWSAccessKeyId=" in query else _Form.NOWHERE


def is_anonymous(request: SignedRequest) -> bool:
    """No signature of any kind. Raises a `SignatureError` for one of two kinds."""
    return _form(request) is _Form.NOWHERE


def verify(
    request: SignedRequest,
    secret_of: Callable[[str], str | None],
    now: float,
    region: str,
    service: str = "s3",
) -> Verified:
    """Check *request*, at *now* (seconds since 1970), against the secret that *secret_of* knows for an access key.

    Raises a `SignatureError`; an anonymous request is an `AccessDeniedError`."""
    form = _form(request)
    if form is _Form.HEADER:
        return _verify_header(request, request.headers["authorization"], secret_of, now, region, service)
    if form is _Form.QUERY:
        return _verify_query(request, secret_of, now, region, service)
    if form is _Form.OLD:
        raise InvalidRequest(_OLD)
    raise AccessDeniedError("Access Denied: the request is not signed")


# --- the header form --------------------------------------------------------------------------------------------------


def _verify_header(
    request: SignedRequest, header: str, secret_of: Callable[[str], str | None], now: float, region: str, service: str
) -> Verified:
    claim = _parse_header(header, request.headers, region, service)
    if abs(_seconds(claim.amz_date, AuthorizationHeaderMalformed) - now) > SKEW_SECONDS:
        raise RequestTimeTooSkewed(
            "The difference between the request time and the current time is too large.",
            RequestTime=claim.amz_date,
            ServerTime=_iso(now),
            MaxAllowedSkewMilliseconds=str(SKEW_SECONDS * 1000),
        )
    content = request.headers.get("x-amz-content-sha256")
    if content is None:
        raise InvalidRequest("Missing required header for this request: x-amz-content-sha256")
    kind, sha256 = _payload(content)
    _check_signed(claim.signed, request.headers)
    query = canonical.canonical_query(request.raw_query)
    key = _check(request, claim, query, content, secret_of)
    return Verified(claim.access_key, kind, sha256, key, claim.scope, claim.amz_date, claim.signature, False)


def _parse_header(header: str, headers: Mapping[str, str], region: str, service: str) -> _Claim:
    word, _, rest = header.partition(" ")
    if word != ALGORITHM:
        raise InvalidArgument(f"Unsupported Authorization Type. Please use {ALGORITHM}.", ArgumentName="Authorization")
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
    if not amz_date:
        raise AccessDeniedError("AWS authentication requires a valid Date or x-amz-date header")
    return _claim(
        fields["Credential"], fields["SignedHeaders"], fields["Signature"], amz_date, region, service,
        AuthorizationHeaderMalformed,
    )  # fmt: skip


def _http_date(text: str) -> str:
    """An HTTP date, or ISO 8601's basic form in the Date header, as SigV4 writes it; empty if it is neither."""
    if _DATE.fullmatch(text):
        return text
    try:
        parsed = parsedate(text) if text else None
    except (ValueError, IndexError, TypeError, OverflowError):
        parsed = None  # the standard library promises None for what is no date, and does not always keep to it
    return "" if parsed is None else "{:04}{:02}{:02}T{:02}{:02}{:02}Z".format(*parsed[:6])


def _claim(
    credential: str,
    signed: str,
    signature: str,
    amz_date: str,
    region: str,
    service: str,
    error: type[AuthorizationHeaderMalformed | AuthorizationQueryParametersError],
) -> _Claim:
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
    if not _HEX64.fullmatch(signature):
        raise error(f"{error.prefix}; the Signature is not 64 lower-case hex digits.")
    if not _DATE.fullmatch(amz_date) or amz_date[:8] != date:
        raise error(f'{error.prefix}; incorrect date "{date}" in the Credential of a request of "{amz_date[:16]}".')
    names = signed.split(";")
    if names != sorted(set(names)) or "" in names or signed != signed.lower():
        raise error(f"{error.prefix}; SignedHeaders is not a sorted list of lower-case names.")
    scope = f"{date}/{region}/{service}/aws4_request"
    return _Claim(access_key, date, region, service, scope, names, signature, amz_date)


def _payload(content: str) -> tuple[PayloadKind, str]:
    kind = _KINDS.get(content)
    if kind is not None:
        return kind, ""
    if not _HEX_HASH.fullmatch(content):
        raise InvalidArgument(
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, its -TRAILER, "
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER, or a valid sha256 value.",
            ArgumentName="x-amz-content-sha256",
            ArgumentValue=content[:100],
        )
    return PayloadKind.SIGNED, content.lower()


# --- the query form ---------------------------------------------------------------------------------------------------


def _verify_query(
    request: SignedRequest, secret_of: Callable[[str], str | None], now: float, region: str, service: str
) -> Verified:
    fields = _query_fields(request.raw_query)
    missing = [
        name
        for name in ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature")
        if name not in fields
    ]
    if missing:
        raise AuthorizationQueryParametersError(
            "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
            f"X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters; X-Amz-{missing[0]} is not there."
        )
    if fields["Algorithm"] != ALGORITHM:
        raise AuthorizationQueryParametersError(f"X-Amz-Algorithm only supports {ALGORITHM}")
    claim = _claim(
        fields["Credential"], fields["SignedHeaders"], fields["Signature"], fields["Date"], region, service,
        AuthorizationQueryParametersError,
    )  # fmt: skip
    _check_expiry(claim.amz_date, fields["Expires"], now)
    content = fields.get("Content-Sha256") or request.headers.get("x-amz-content-sha256") or UNSIGNED_PAYLOAD
    kind, sha256 = _payload(content)
    if "Security-Token" in fields:
        raise InvalidToken("The provided token is malformed or otherwise invalid.")
    _check_signed(claim.signed, request.headers)
    query = canonical.canonical_query(request.raw_query, leave_out="X-Amz-Signature")
    key = _check(request, claim, query, content, secret_of)
    return Verified(claim.access_key, kind, sha256, key, claim.scope, claim.amz_date, claim.signature, True)


def _query_fields(raw_query: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for item in raw_query.split("&"):
        if item.startswith("X-Amz-"):
            name, _, value = item[6:].partition("=")
            if name in fields:
                raise AuthorizationQueryParametersError(f"X-Amz-{name} is given more than once.")
            fields[name] = unquote(value) if "%" in value else value
    return fields


def _check_expiry(amz_date: str, expires: str, now: float) -> None:
    if not (expires.isascii() and expires.isdigit() and len(expires) < 10):
        raise AuthorizationQueryParametersError("X-Amz-Expires should be a number")
    seconds = int(expires)
    if not 1 <= seconds <= EXPIRES_MOST_SECONDS:
        raise AuthorizationQueryParametersError("X-Amz-Expires must be at least 1 and less than a week (in seconds)")
    signed_at = _seconds(amz_date, AuthorizationQueryParametersError)
    if signed_at - now > SKEW_SECONDS:
        raise AccessDeniedError("Request is not valid yet")
    if now > signed_at + seconds:
        raise AccessDeniedError(
            "Request has expired",
            **{"X-Amz-Expires": expires, "Expires": _iso(signed_at + seconds), "ServerTime": _iso(now)},
        )


def _seconds(amz_date: str, error: type[SignatureError]) -> float:
    text = amz_date
    year, month, day = int(text[:4]), int(text[4:6]), int(text[6:8])
    hour, minute, second = int(text[9:11]), int(text[11:13]), int(text[13:15])
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        raise error(f"The date '{amz_date}' is none.")
    return timegm((year, month, day, hour, minute, second))


def _iso(at: float) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(at))


# --- both -------------------------------------------------------------------------------------------------------------


def _check_signed(signed: list[str], headers: Mapping[str, str]) -> None:
    """`host` and every x-amz- header that came must be signed. (x-amz-content-sha256 is a line of its own in what is
    signed.)"""
    if "host" not in signed:
        raise AccessDeniedError(_UNSIGNED_HEADERS, HeadersNotSigned="host")
    for name in headers:
        if name.startswith("x-amz-") and name not in signed and name != "x-amz-content-sha256":
            raise AccessDeniedError(_UNSIGNED_HEADERS, HeadersNotSigned=name)
    if "x-amz-security-token" in headers:
        raise InvalidToken("The provided token is malformed or otherwise invalid.")


def _check(
    request: SignedRequest, claim: _Claim, query: str, content: str, secret_of: Callable[[str], str | None]
) -> bytes:
    """The signing key, once the signature was found to hold; compared in constant time."""
    secret = secret_of(claim.access_key) if _ACCESS_KEY.fullmatch(claim.access_key) else None
    if secret is None:
        raise InvalidAccessKeyId(
            "The AWS Access Key Id you provided does not exist in our records.", AWSAccessKeyId=claim.access_key
        )
    asked = canonical.canonical_request(
        request.method,
        canonical.canonical_path(request.raw_path),
        query,
        canonical.canonical_headers(request.headers, claim.signed),
        ";".join(claim.signed),
        content,
    )
    to_sign = canonical.string_to_sign(claim.amz_date, claim.scope, asked)
    key = canonical.signing_key(secret, claim.date, claim.region, claim.service)
    if not compare_digest(canonical.sign(key, to_sign), claim.signature):
        raise SignatureDoesNotMatch(
            "The request signature we calculated does not match the signature you provided. Check your key and "
            "signing method.",
            AWSAccessKeyId=claim.access_key,
            StringToSign=to_sign,
            SignatureProvided=claim.signature,
            CanonicalRequest=asked,
        )
    return key
