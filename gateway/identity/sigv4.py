"""Whether a request was signed by who it says, by AWS Signature Version 4: in its header or its query. Pure: no
clock, no I/O. Source: the S3 API reference, "Authenticating requests (AWS Signature Version 4)".
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Callable, Mapping
from enum import Enum
from hmac import compare_digest
from typing import NamedTuple
from urllib.parse import unquote

from gateway.identity import canonical
from gateway.identity.canonical import ALGORITHM, UNSIGNED_PAYLOAD
from gateway.identity.signature_errors import (
    AccessDeniedError,
    AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError,
    InvalidAccessKeyId,
    InvalidRequest,
    InvalidToken,
    MissingSecurityHeader,
    RequestTimeTooSkewed,
    SignatureDoesNotMatch,
    SignatureError,
)

SKEW_SECONDS = 15 * 60
EXPIRES_MOST_SECONDS = 7 * 24 * 3600
_HEX64 = re.compile(r"[0-9a-f]{64}")
_DATE = re.compile(r"\d{8}T\d{6}Z")
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


class _Claim(NamedTuple):
    """What a request says of its own signature."""

    access_key: str
    date: str
    region: str
    service: str
    signed: list[str]
    signature: str
    amz_date: str

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


def is_anonymous(request: SignedRequest) -> bool:
    """No signature of any kind."""
    query = request.raw_query
    if "authorization" in request.headers:
        return False
    return "X-Amz-Algorithm=" not in query and "X-Amz-Signature=" not in query and "Signature=" not in query


def verify(
    request: SignedRequest,
    secret_of: Callable[[str], str | None],
    now: float,
    region: str,
    service: str = "s3",
) -> Verified:
    """Check *request*, at *now* (seconds since 1970), against the secret that *secret_of* knows for an access key.

    Raises a `SignatureError`; an anonymous request is an `AccessDeniedError`."""
    header = request.headers.get("authorization")
    if header is not None:
        return _verify_header(request, header, secret_of, now, region, service)
    if "X-Amz-" in request.raw_query:
        return _verify_query(request, secret_of, now, region, service)
    if "Signature=" in request.raw_query and "AWSAccessKeyId=" in request.raw_query:
        raise InvalidRequest(
            "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
        )
    raise AccessDeniedError("Access Denied: the request is not signed")


# --- the header form --------------------------------------------------------------------------------------------------


def _verify_header(
    request: SignedRequest, header: str, secret_of: Callable[[str], str | None], now: float, region: str, service: str
) -> Verified:
    claim = _parse_header(header, request.headers, region, service)
    if abs(_seconds(claim.amz_date, AuthorizationHeaderMalformed) - now) > SKEW_SECONDS:
        raise RequestTimeTooSkewed(
            "The difference between the request time and the current time is too large.", RequestTime=claim.amz_date
        )
    content = request.headers.get("x-amz-content-sha256")
    if content is None:
        raise MissingSecurityHeader(
            "Missing required header for this request: x-amz-content-sha256", MissingHeaderName="x-amz-content-sha256"
        )
    kind, sha256 = _payload(content)
    _check_signed(claim.signed, request.headers)
    query = canonical.canonical_query(request.raw_query)
    key = _check(request, claim, query, content, secret_of)
    return Verified(claim.access_key, kind, sha256, key, claim.scope, claim.amz_date, claim.signature, False)


def _parse_header(header: str, headers: Mapping[str, str], region: str, service: str) -> _Claim:
    word, _, rest = header.partition(" ")
    if word == "AWS":
        raise InvalidRequest(
            "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
        )
    if word != ALGORITHM:
        raise AuthorizationHeaderMalformed(f"The authorization header does not begin with {ALGORITHM}.")
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
    from email.utils import parsedate

    if _DATE.fullmatch(text):
        return text
    parsed = parsedate(text) if text else None
    return "" if parsed is None else "{:04}{:02}{:02}T{:02}{:02}{:02}Z".format(*parsed[:6])


def _claim(
    credential: str,
    signed: str,
    signature: str,
    amz_date: str,
    region: str,
    service: str,
    error: type[SignatureError],
) -> _Claim:
    words = credential.rsplit("/", 4)
    if len(words) != 5 or words[4] != "aws4_request" or not words[0]:
        raise error("The Credential is mal-formed; expecting ACCESS-KEY/YYYYMMDD/REGION/SERVICE/aws4_request.")
    access_key, date, said_region, said_service, _ = words
    if said_region != region:
        raise error(f"The region '{said_region}' is wrong; expecting '{region}'", Region=region)
    if said_service != service:
        raise error(f"The service '{said_service}' is wrong; expecting '{service}'")
    if not _HEX64.fullmatch(signature):
        raise error("The Signature is not 64 lower-case hex digits.")
    if not _DATE.fullmatch(amz_date) or amz_date[:8] != date:
        raise error(f"The date '{date}' of the Credential is not that of the request, '{amz_date[:16]}'.")
    names = signed.split(";")
    if names != sorted(set(names)) or "" in names or signed != signed.lower():
        raise error("SignedHeaders is not a sorted list of lower-case names.")
    return _Claim(access_key, date, said_region, said_service, names, signature, amz_date)


def _payload(content: str) -> tuple[PayloadKind, str]:
    kind = _KINDS.get(content)
    if kind is not None:
        return kind, ""
    if not _HEX_HASH.fullmatch(content):
        raise InvalidRequest(
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, a STREAMING-… value that S3 knows, or a valid sha256 value."
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
    content = request.headers.get("x-amz-content-sha256") or fields.get("Content-Sha256") or UNSIGNED_PAYLOAD
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
        raise AccessDeniedError("Request has expired", **{"X-Amz-Expires": expires})


def _seconds(amz_date: str, error: type[SignatureError]) -> float:
    text = amz_date
    numbers = [int(text[a:b]) for a, b in ((0, 4), (4, 6), (6, 8), (9, 11), (11, 13), (13, 15))]
    year, month, day, hour, minute, second = numbers
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        raise error(f"The date '{amz_date}' is none.")
    try:
        return timegm((year, month, day, hour, minute, second))
    except ValueError:
        raise error(f"The date '{amz_date}' is none.") from None


# --- both -------------------------------------------------------------------------------------------------------------


def _check_signed(signed: list[str], headers: Mapping[str, str]) -> None:
    """`host` and every x-amz- header that came must be signed, and what is signed must have come."""
    if "host" not in signed:
        raise AccessDeniedError(
            "There were headers present in the request which were not signed", HeadersNotSigned="host"
        )
    for name in headers:
        if name.startswith("x-amz-") and name not in signed and name != "x-amz-content-sha256":
            raise AccessDeniedError(
                "There were headers present in the request which were not signed", HeadersNotSigned=name
            )
    if "x-amz-security-token" in headers:
        raise InvalidToken("The provided token is malformed or otherwise invalid.")


def _check(
    request: SignedRequest, claim: _Claim, query: str, content: str, secret_of: Callable[[str], str | None]
) -> bytes:
    """The signing key, once the signature was found to hold."""
    secret = secret_of(claim.access_key)
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
