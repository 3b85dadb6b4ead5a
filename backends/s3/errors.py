"""Translate what S3 servers and connections report into `backends.errors`, by tables of S3 codes, of HTTP statuses and
of exception classes.

The client for values returns the server's XML; botocore returns parsed fields; both raise exceptions of their own where
no response came. All of these become an `S3Failure`, and `to_backend_error` turns that into one error that names the
problem, the bucket, and what to do. Of a response, only the code and the message are quoted: the rest of its body may
contain what was signed.
"""

from __future__ import annotations

import html
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import aiohttp

from backends.errors import BackendError, Corrupted, Denied, Full, Misconfigured, NotFound, Unavailable
from backends.s3.connections import ResponseTooLong
from backends.s3.http_client import BodyTooLong, ConnectionCut, MalformedResponse

_FIELD = {name: re.compile(rf"<{name}>([^<]*)</{name}>") for name in ("Code", "Message", "Region")}
_QUOTED_CHARS_MAX = 300
_REGION_CHARS_MAX = 100

_REGION = "the bucket lies in another region, or behind another endpoint"
_SLOW = "it asks for fewer requests"
_ALLOW = (
    "these credentials may not do this; allow s3:ListBucket and s3:GetBucketLocation on the bucket, s3:GetObject, "
    "s3:PutObject and s3:DeleteObject on what is in it"
)
_KEYS = "the access key is not known there; check access_key, the profile or the environment"
_EXPIRED = "the session token is not valid (any more)"
_NO_BUCKET = "there is no such bucket; create it, or set create_bucket, which creates it when the backend is claimed"
_QUOTA = "a quota is used up, or the store is full"
_CLOCK = "the clocks differ too much; set this machine's by NTP"
_ELSEWHERE = "it sends us to another address, where nobody goes with these credentials; name that one as the endpoint"
_NOT_S3 = "its response is not one of S3"
_BODY = "the bytes that arrived there are not those that were sent"

_CODES: dict[str, tuple[type[BackendError], str]] = {
    "NoSuchKey": (NotFound, "no such value"),
    "InvalidRange": (Corrupted, "the value ends before that"),
    # authentication and authorization
    "AccessDenied": (Denied, _ALLOW),
    "AllAccessDisabled": (Denied, "access to the bucket is switched off"),
    "AccountProblem": (Denied, "the account has a problem"),
    "InvalidAccessKeyId": (Denied, _KEYS),
    "InvalidClientTokenId": (Denied, _KEYS),
    "SignatureDoesNotMatch": (Denied, "the secret key does not belong to the access key; check secret_key"),
    "ExpiredToken": (Denied, _EXPIRED),
    "InvalidToken": (Denied, _EXPIRED),
    "TokenRefreshRequired": (Denied, _EXPIRED),
    # configuration
    "NoSuchBucket": (Misconfigured, _NO_BUCKET),
    "InvalidBucketName": (Misconfigured, "it takes no bucket of such a name"),
    "BucketAlreadyExists": (Misconfigured, "the bucket is somebody else's; choose another name"),
    "TooManyBuckets": (Misconfigured, "the account may have no more buckets; name one that exists"),
    "PermanentRedirect": (Misconfigured, _REGION),
    "TemporaryRedirect": (Unavailable, "the bucket is being moved"),
    "AuthorizationHeaderMalformed": (Misconfigured, _REGION),
    "IllegalLocationConstraintException": (Misconfigured, _REGION),
    "InvalidLocationConstraint": (Misconfigured, "it knows no such region"),
    "RequestTimeTooSkewed": (Misconfigured, _CLOCK),
    "RequestExpired": (Misconfigured, _CLOCK),
    "InvalidObjectState": (Misconfigured, "the value lies in an archive; keep this prefix out of such lifecycle rules"),
    "NotImplemented": (Misconfigured, "it does not know this request"),
    # space
    "QuotaExceeded": (Full, _QUOTA),
    "XMinioAdminBucketQuotaExceeded": (Full, _QUOTA),
    "XMinioStorageFull": (Full, _QUOTA),
    "InsufficientStorage": (Full, _QUOTA),
    "StorageFull": (Full, _QUOTA),
    # checksums
    "BadDigest": (Corrupted, _BODY),
    "InvalidDigest": (Corrupted, _BODY),
    "XAmzContentChecksumMismatch": (Corrupted, _BODY),
    "XAmzContentSHA256Mismatch": (Corrupted, _BODY),
    # transient
    "SlowDown": (Unavailable, _SLOW),
    "SlowDownRead": (Unavailable, _SLOW),
    "SlowDownWrite": (Unavailable, _SLOW),
    "Throttling": (Unavailable, _SLOW),
    "ThrottlingException": (Unavailable, _SLOW),
    "RequestLimitExceeded": (Unavailable, _SLOW),
    "TooManyRequests": (Unavailable, _SLOW),
    "TooManyRequestsException": (Unavailable, _SLOW),
    "InternalError": (Unavailable, "it has an error of its own"),
    "ServiceUnavailable": (Unavailable, "it is not available"),
    "RequestTimeout": (Unavailable, "it waited too long for our bytes"),
    "IncompleteBody": (Unavailable, "it did not get all our bytes"),
    "OperationAborted": (Unavailable, "another request for the same thing is under way"),
    "ConditionalRequestConflict": (Unavailable, "another request for the same key is under way"),
}

_STATES: dict[int, tuple[type[BackendError], str]] = {
    301: (Misconfigured, _REGION),
    302: (Misconfigured, _ELSEWHERE),
    303: (Misconfigured, _ELSEWHERE),
    307: (Misconfigured, _REGION),
    308: (Misconfigured, _ELSEWHERE),
    401: (Denied, "it does not accept these credentials"),
    403: (Denied, _ALLOW),
    404: (Misconfigured, "what answers there does not seem to be S3, or is another bucket's"),
    405: (Misconfigured, "it does not allow this request"),
    408: (Unavailable, "it waited too long"),
    409: (Unavailable, "another request is in the way"),
    416: (Corrupted, "the value ends before that"),
    425: (Unavailable, _SLOW),
    429: (Unavailable, _SLOW),
    501: (Misconfigured, "it does not know this request"),
    507: (Full, _QUOTA),
}

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""Reasons of an `ssl.SSLError` if the peer does not speak TLS."""

_Row = tuple[tuple[type[BaseException], ...], type[BackendError], str]
_NO_RESPONSE: tuple[_Row, ...] = (
    ((BodyTooLong, ResponseTooLong), Corrupted, "its response is longer than any valid response to that"),
    (
        (ssl.SSLCertVerificationError,),
        Misconfigured,
        "its certificate is not trusted; name the authority that signed it in ca_file",
    ),
    ((socket.gaierror, aiohttp.ClientConnectorDNSError), Unavailable, "its host's name is not known"),
    ((ConnectionRefusedError,), Unavailable, "nobody listens there"),
    ((TimeoutError,), Unavailable, "no answer in time"),
    ((MalformedResponse,), Corrupted, _NOT_S3),
    (
        (ConnectionCut, ConnectionError, aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError),
        Unavailable,
        "the connection was cut",
    ),
)
"""What exceptions mean if no response came, or none that was understood. The first row counts that has a class of the
exception, or of one that it carries (`_carried`)."""


class BucketLocation(NamedTuple):
    """Which bucket an error is about. `name` is the backend's."""

    name: str
    bucket: str
    endpoint: str

    def __str__(self) -> str:
        return f"bucket {self.bucket} at {self.endpoint}"


class S3Failure(NamedTuple):
    """An error response; or, with `status` 0, the exception because of which there was none, and its text."""

    status: int = 0
    code: str = ""
    message: str = ""
    region: str = ""
    retry_after_s: float | None = None
    error: BaseException | None = None


def failure_without_response(error: BaseException) -> S3Failure:
    """Describe an exception of `http_client` or botocore that says why there was no response."""
    source = getattr(error, "kwargs", {}).get("error", "")  # the connection's own error, which botocore leaves out
    return S3Failure(message=" ".join(filter(None, [f"{type(error).__name__}: {error}", str(source)])), error=error)


def failure_in_response(status: int, headers: Mapping[str, str], body: bytes) -> S3Failure:
    """Parse an error response. Header names are in lower case."""
    text = body.decode(errors="replace")
    field = {name: html.unescape(match[1]) if (match := rule.search(text)) else "" for name, rule in _FIELD.items()}
    region = field["Region"] or headers.get("x-amz-bucket-region", "")
    wait_s = retry_after_seconds(headers.get("retry-after"))
    return S3Failure(status, field["Code"], field["Message"], region, retry_after_s=wait_s)


def failure_of_botocore_error(error: BaseException) -> S3Failure:
    """Describe an exception of botocore: an error response, or why there was none."""
    response: dict[str, Any] | None = getattr(error, "response", None)
    if not isinstance(response, dict):
        return failure_without_response(error)
    fault, meta = response.get("Error", {}), response.get("ResponseMetadata", {})
    headers = meta.get("HTTPHeaders", {})
    code, status = str(fault.get("Code", "")), int(meta.get("HTTPStatusCode", 0))
    return S3Failure(
        status,
        "" if code.isdecimal() else code,
        str(fault.get("Message") or ""),
        str(fault.get("Region") or headers.get("x-amz-bucket-region") or ""),
        retry_after_s=retry_after_seconds(headers.get("retry-after")),
    )


def retry_after_seconds(header: str | None) -> float | None:
    """Return a Retry-After in seconds (RFC 9110, 10.2.3); None where there is none, or it is a date."""
    return float(header) if header is not None and header.isdecimal() else None


def to_backend_error(
    failure: S3Failure, location: BucketLocation, key: str | None, cause: BaseException | None
) -> BackendError:
    """Return the error for *failure*, with *cause* as its `__cause__`."""
    kind, meaning = _meaning(failure)
    if kind is NotFound and key is None:
        kind = Misconfigured
    if failure.region and meaning is _REGION:
        region = failure.region[:_REGION_CHARS_MAX]
        meaning = f"the bucket lies in the region {region}; set region = {region!r}"
    quoted = ": ".join(filter(None, [failure.code, failure.message])) if failure.status else ""
    response = f" ({failure.status} {quoted[:_QUOTED_CHARS_MAX]})".replace(" )", ")") if failure.status else ""
    error = kind(f"{location}: {meaning}{response}", backend=location.name, key=key)
    error.retry_after_s = failure.retry_after_s
    error.__cause__ = cause
    return error


def _meaning(failure: S3Failure) -> tuple[type[BackendError], str]:
    if failure.code in _CODES:
        return _CODES[failure.code]
    if failure.status in _STATES:
        return _STATES[failure.status]
    if failure.status >= 500:
        return Unavailable, "it has an error of its own"
    if failure.status:
        return Misconfigured, "it refuses the request"
    if failure.error is not None and (known := _meaning_without_response(failure.error)) is not None:
        return known
    return Unavailable, "no answer: " + failure.message.partition("\n")[0][:_QUOTED_CHARS_MAX]


def _meaning_without_response(error: BaseException) -> tuple[type[BackendError], str] | None:
    """Return the meaning by the classes of *error* and of those that it carries; None where no class is known."""
    from botocore.parsers import ResponseParserError  # a slow import, which is done before any request

    carried = list(_carried(error))
    if any(isinstance(each, ssl.SSLError) and getattr(each, "reason", "") in _NO_TLS for each in carried):
        return Misconfigured, "it does not speak TLS; is it http:// instead of https://?"
    of_botocore: _Row = ((ResponseParserError,), Corrupted, _NOT_S3)
    for classes, kind, meaning in (*_NO_RESPONSE, of_botocore):
        if any(isinstance(each, classes) for each in carried):
            return kind, meaning
    return None


def _carried(error: object) -> Iterator[BaseException]:
    """Yield *error* and the errors that it carries: botocore names one in `kwargs`, aiohttp in `os_error`."""
    while isinstance(error, BaseException):
        yield error
        error = getattr(error, "kwargs", {}).get("error") or getattr(error, "os_error", None)
