"""Verify that a request was signed by the owner of its access key. Pure: no clock, no I/O; results are never cached.

AWS Signature Version 4 is accepted in the Authorization header and in the query, Version 2 in the query only. Source:
the S3 API reference, "Authenticating requests (AWS Signature Version 4)".
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Callable, Mapping
from functools import lru_cache
from hmac import compare_digest
from time import gmtime, strftime
from typing import NamedTuple

from gateway.identity import canonical, sigv2
from gateway.identity.canonical import UNSIGNED_PAYLOAD
from gateway.identity.signature_errors import (
    AccessDeniedError,
    AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError,
    InvalidAccessKeyId,
    InvalidArgumentError,
    InvalidRequest,
    InvalidToken,
    RequestTimeTooSkewed,
    SignatureDoesNotMatch,
    SignatureError,
)
from gateway.identity.sigv4_parse import (
    ParsedSignature,
    PayloadKind,
    SignatureLocation,
    SignedRequest,
    parse_authorization_header,
    parse_content_sha256,
    parse_presigned_query,
    signature_location,
)

__all__ = ["PayloadKind", "SignedRequest", "VerifiedRequest", "is_anonymous", "unsigned_request", "verify"]

SKEW_SECONDS = 15 * 60
EXPIRES_MOST_SECONDS = 7 * 24 * 3600
_ACCESS_KEY = re.compile(r"[\x21-\x7e]{1,128}")
_V2_NOT_SUPPORTED = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
_NO_MATCH = (
    "The request signature we calculated does not match the signature you provided. Check your key and signing method."
)
_UNSIGNED_HEADERS = "There were headers present in the request which were not signed"


class VerifiedRequest(NamedTuple):
    """A request whose signature is valid."""

    access_key: str
    payload: PayloadKind
    sha256: str
    """The signed hash of the body in lower-case hex if `payload` is SIGNED; otherwise empty."""
    signing_key: bytes
    scope: str
    amz_date: str
    signature: str
    """The signature of the request, which seeds those of its chunks."""
    presigned: bool

    def __repr__(self) -> str:
        return f"Verified({self.access_key!r}, {self.payload.name}, {self.scope!r})"


def is_anonymous(request: SignedRequest) -> bool:
    """Whether a request has no signature of any kind. Raises a `SignatureError` if it has two."""
    return signature_location(request) is SignatureLocation.NONE


def unsigned_request(headers: Mapping[str, str]) -> VerifiedRequest:
    """Return how the body of an anonymous request is verified. Raises `InvalidRequest` if its chunks are signed."""
    kind, sha256 = parse_content_sha256(headers.get("x-amz-content-sha256", UNSIGNED_PAYLOAD))
    if kind in (PayloadKind.STREAMING, PayloadKind.STREAMING_TRAILER):
        raise InvalidRequest("The chunks of an anonymous request cannot be signed.")
    return VerifiedRequest("", kind, sha256, b"", "", "", "", False)


def verify(
    request: SignedRequest,
    secret_of: Callable[[str], str | None],
    now: float,
    region: str,
    service: str = "s3",
) -> VerifiedRequest:
    """Verify a request. *secret_of*: returns the secret of an access key, or None. *now*: seconds since 1970.

    Raises a `SignatureError`; for a request without a signature, `AccessDeniedError`."""
    form = signature_location(request)
    if form is SignatureLocation.HEADER:
        return _verify_header(request, request.headers["authorization"], secret_of, now, region, service)
    if form is SignatureLocation.QUERY:
        return _verify_presigned(request, secret_of, now, region, service)
    if form is SignatureLocation.V2_QUERY:
        return _verify_v2_presigned(request, secret_of, now)
    if form is SignatureLocation.V2_HEADER:
        raise InvalidRequest(_V2_NOT_SUPPORTED)
    raise AccessDeniedError("Access Denied: the request is not signed")


def _verify_header(
    request: SignedRequest, header: str, secret_of: Callable[[str], str | None], now: float, region: str, service: str
) -> VerifiedRequest:
    """Verify a request whose signature is in the header Authorization."""
    parsed, signature = parse_authorization_header(header, request.headers, region, service)
    if abs(_seconds(parsed.amz_date, AuthorizationHeaderMalformed) - now) > SKEW_SECONDS:
        raise RequestTimeTooSkewed(
            "The difference between the request time and the current time is too large.",
            RequestTime=parsed.amz_date,
            ServerTime=_iso(now),
            MaxAllowedSkewMilliseconds=str(SKEW_SECONDS * 1000),
        )
    content = request.headers.get("x-amz-content-sha256")
    if content is None:
        raise InvalidRequest("Missing required header for this request: x-amz-content-sha256")
    kind, sha256 = parse_content_sha256(content)
    _check_signed(parsed.signed, request.headers)
    query = canonical.canonical_query(request.raw_query)
    key = _check_signature(request, parsed, signature, query, content, secret_of)
    return VerifiedRequest(parsed.access_key, kind, sha256, key, parsed.scope, parsed.amz_date, signature, False)


def _verify_presigned(
    request: SignedRequest, secret_of: Callable[[str], str | None], now: float, region: str, service: str
) -> VerifiedRequest:
    """Verify a presigned URL: a request whose signature is in its query."""
    (fields, parsed, query), signature = parse_presigned_query(request.raw_query, region, service)
    signed_at, expires_at = _validity(parsed.amz_date, fields["Expires"])
    if not signed_at - SKEW_SECONDS <= now <= expires_at:
        raise _validity_error(signed_at, expires_at, fields["Expires"], now)
    in_query, in_header = fields.get("Content-Sha256"), request.headers.get("x-amz-content-sha256")
    if in_query and in_header and in_query != in_header:
        raise InvalidArgumentError(
            "A header and a parameter of the same name differ.", ArgumentName="x-amz-content-sha256"
        )
    content = in_query or in_header or UNSIGNED_PAYLOAD
    kind, sha256 = parse_content_sha256(content)
    if "Security-Token" in fields:
        raise InvalidToken("The provided token is malformed or otherwise invalid.")
    _check_signed(parsed.signed, request.headers)
    key = _check_signature(request, parsed, signature, query, content, secret_of)
    return VerifiedRequest(parsed.access_key, kind, sha256, key, parsed.scope, parsed.amz_date, signature, True)


def _verify_v2_presigned(request: SignedRequest, secret_of: Callable[[str], str | None], now: float) -> VerifiedRequest:
    """Verify a presigned URL of Version 2. The comparison takes constant time."""
    parsed = sigv2.parse(request, now)
    kind, sha256 = parse_content_sha256(parsed.content_sha256)
    if kind not in (PayloadKind.UNSIGNED, PayloadKind.SIGNED):
        raise InvalidRequest(_V2_NOT_SUPPORTED)  # Version 2 has no signing key for chunks
    expected = sigv2.sign(_secret(parsed.access_key, secret_of), parsed.string_to_sign)
    if not compare_digest(expected.encode(), canonical.to_bytes(parsed.signature)):
        raise SignatureDoesNotMatch(
            _NO_MATCH,
            AWSAccessKeyId=parsed.access_key,
            StringToSign=parsed.string_to_sign,
            SignatureProvided=parsed.signature,
        )
    return VerifiedRequest(parsed.access_key, kind, sha256, b"", "", "", parsed.signature, True)


@lru_cache(256)
def _validity(amz_date: str, expires: str) -> tuple[float, float]:
    """Return the times between which a presigned request is valid, without the allowed clock skew."""
    if not (expires.isascii() and expires.isdigit() and len(expires) < 10):
        raise AuthorizationQueryParametersError("X-Amz-Expires should be a number")
    seconds = int(expires)
    if not 1 <= seconds <= EXPIRES_MOST_SECONDS:
        raise AuthorizationQueryParametersError("X-Amz-Expires must be at least 1 and less than a week (in seconds)")
    signed_at = _seconds(amz_date, AuthorizationQueryParametersError)
    return signed_at, signed_at + seconds


def _validity_error(signed_at: float, expires_at: float, expires: str, now: float) -> AccessDeniedError:
    if signed_at - now > SKEW_SECONDS:
        return AccessDeniedError("Request is not valid yet")
    return AccessDeniedError(
        "Request has expired", **{"X-Amz-Expires": expires, "Expires": _iso(expires_at), "ServerTime": _iso(now)}
    )


@lru_cache(256)
def _seconds(amz_date: str, error: type[SignatureError]) -> float:
    text = amz_date
    year, month, day = int(text[:4]), int(text[4:6]), int(text[6:8])
    hour, minute, second = int(text[9:11]), int(text[11:13]), int(text[13:15])
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        raise error(f"The date '{amz_date}' is not valid.")
    return timegm((year, month, day, hour, minute, second))


def _iso(at: float) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(at))


def _check_signed(signed: tuple[str, ...], headers: Mapping[str, str]) -> None:
    """Check that the signature covers `host` and every x-amz- header, and that each header it covers is present.

    x-amz-content-sha256 is a line of its own in the canonical request. An absent header would be signed like an empty
    one, so that an empty one could be removed in transit."""
    if "host" not in signed:
        raise AccessDeniedError(_UNSIGNED_HEADERS, HeadersNotSigned="host")
    for name in signed:
        if name not in headers:
            raise AccessDeniedError("There were headers signed which are not present in the request", Header=name)
    for name, value in headers.items():
        if not name.startswith("x-amz-"):
            continue
        if name not in signed and name != "x-amz-content-sha256":
            raise AccessDeniedError(_UNSIGNED_HEADERS, HeadersNotSigned=name)
        if not name.startswith("x-amz-meta-") and canonical.has_folded_blanks(value):
            raise InvalidArgumentError(
                "Signatures do not cover how many blanks follow each other in a header; percent-encode them.",
                ArgumentName=name,
            )
    if "x-amz-security-token" in headers:
        raise InvalidToken("The provided token is malformed or otherwise invalid.")


def _secret(access_key: str, secret_of: Callable[[str], str | None]) -> str:
    secret = secret_of(access_key) if _ACCESS_KEY.fullmatch(access_key) else None
    if secret is None:
        raise InvalidAccessKeyId(
            "The AWS Access Key Id you provided does not exist in our records.", AWSAccessKeyId=access_key
        )
    return secret


def _check_signature(
    request: SignedRequest,
    parsed: ParsedSignature,
    signature: str,
    query: str,
    content: str,
    secret_of: Callable[[str], str | None],
) -> bytes:
    """Compare the signature in constant time. Returns the signing key. Raises `SignatureDoesNotMatch`."""
    secret = _secret(parsed.access_key, secret_of)
    canonical_request = canonical.canonical_request(
        request.method,
        canonical.canonical_path(request.raw_path),
        query,
        canonical.canonical_headers(request.headers, parsed.signed),
        parsed.signed_text,
        content,
    )
    to_sign = canonical.string_to_sign(parsed.amz_date, parsed.scope, canonical_request)
    key = canonical.signing_key(secret, parsed.date, parsed.region, parsed.service)
    if not compare_digest(canonical.sign(key, to_sign), signature):
        raise SignatureDoesNotMatch(
            _NO_MATCH,
            AWSAccessKeyId=parsed.access_key,
            StringToSign=to_sign,
            SignatureProvided=signature,
            CanonicalRequest=canonical_request,
        )
    return key
