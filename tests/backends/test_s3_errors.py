"""What S3 servers say, and what it means: from the body of an answer, and from botocore's fields."""

from __future__ import annotations

import socket
import ssl

import aiohttp
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError
from hypothesis import given
from hypothesis import strategies as st

from backends import errors
from backends.s3.connections import ResponseTooLong
from backends.s3.errors import (
    BucketLocation,
    S3Failure,
    failure_in_response,
    failure_of_botocore_error,
    failure_without_response,
    retry_after_seconds,
    to_backend_error,
)
from backends.s3.http_client import BodyTooLong, ConnectionCut, HttpError, MalformedResponse

WHERE = BucketLocation("far", "bkt", "http://h:9000")

MEANINGS: list[tuple[int, str, type[errors.BackendError]]] = [
    (404, "NoSuchKey", errors.NotFound),
    (404, "NoSuchBucket", errors.Misconfigured),
    (404, "", errors.Misconfigured),
    (403, "AccessDenied", errors.Denied),
    (403, "InvalidAccessKeyId", errors.Denied),
    (403, "SignatureDoesNotMatch", errors.Denied),
    (400, "ExpiredToken", errors.Denied),
    (401, "", errors.Denied),
    (403, "", errors.Denied),
    (403, "QuotaExceeded", errors.Full),
    (403, "RequestTimeTooSkewed", errors.Misconfigured),
    (403, "InvalidObjectState", errors.Misconfigured),
    (301, "PermanentRedirect", errors.Misconfigured),
    (400, "AuthorizationHeaderMalformed", errors.Misconfigured),
    (400, "InvalidArgument", errors.Misconfigured),
    (400, "BadDigest", errors.Corrupted),
    (400, "XAmzContentSHA256Mismatch", errors.Corrupted),
    (400, "RequestTimeout", errors.Unavailable),
    (416, "InvalidRange", errors.Corrupted),
    (409, "OperationAborted", errors.Unavailable),
    (429, "", errors.Unavailable),
    (500, "InternalError", errors.Unavailable),
    (502, "", errors.Unavailable),
    (503, "SlowDown", errors.Unavailable),
    (503, "SomethingNew", errors.Unavailable),
    (507, "", errors.Full),
    (507, "XMinioStorageFull", errors.Full),
    (501, "NotImplemented", errors.Misconfigured),
]


def refused(status: int, code: str, message: str = "why &amp; how") -> S3Failure:
    """What an error in a body says."""
    page = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message><Key>k</Key></Error>"
    return failure_in_response(status, {}, page.encode(errors="replace") if code else b"")


@pytest.mark.parametrize(("status", "code", "kind"), MEANINGS)
def test_each_answer_has_one_word_by_either_client(status: int, code: str, kind: type[errors.BackendError]) -> None:
    theirs = ClientError(
        {
            "Error": {"Code": code or str(status), "Message": "why & how"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        },
        "PutObject",
    )
    for said, cause in ((refused(status, code), OSError()), (failure_of_botocore_error(theirs), theirs)):
        assert (said.status, said.code) == (status, code)
        made = to_backend_error(said, WHERE, "k", cause)
        assert type(made) is kind
        assert made.__cause__ is cause
        assert (made.backend, made.key) == ("far", "k")
        assert "bucket bkt at http://h:9000" in str(made)
        if code:
            assert f"({status} {code}: why & how)" in str(made)


def test_a_missing_value_without_a_key_is_no_missing_value() -> None:
    assert type(to_backend_error(refused(404, "NoSuchKey"), WHERE, None, OSError())) is errors.Misconfigured


def test_no_answer_is_unavailable_and_a_pause_is_read() -> None:
    said = failure_of_botocore_error(ConnectTimeoutError(endpoint_url="http://h:9000"))
    assert said.status == 0
    assert type(to_backend_error(said, WHERE, None, OSError())) is errors.Unavailable
    headers = ["7", "0", None, "Sat, 21 Nov 2026 12:00:00 GMT", "-1", "1e9", ""]
    assert [retry_after_seconds(header) for header in headers] == [7.0, 0.0, None, None, None, None, None]


WITHOUT_RESPONSE: list[tuple[BaseException, type[errors.BackendError], str]] = [
    (BodyTooLong(5), errors.Corrupted, "longer than any valid response"),
    (ConnectionClosedError(error=ResponseTooLong("x"), endpoint_url="u"), errors.Corrupted, "longer than any valid"),
    (ssl.SSLCertVerificationError(1, "x"), errors.Misconfigured, "is not trusted"),
    (socket.gaierror(-2, "x"), errors.Unavailable, "host's name is not known"),
    (ConnectionRefusedError(111, "x"), errors.Unavailable, "nobody listens there"),
    (EndpointConnectionError(error=ConnectionRefusedError(), endpoint_url="u"), errors.Unavailable, "nobody listens"),
    (ConnectTimeoutError(error=aiohttp.ConnectionTimeoutError(), endpoint_url="u"), errors.Unavailable, "in time"),
    (ReadTimeoutError(error=TimeoutError(), endpoint_url="u"), errors.Unavailable, "no answer in time"),
    (aiohttp.SocketTimeoutError(), errors.Unavailable, "no answer in time"),
    (MalformedResponse("x"), errors.Corrupted, "not one of S3"),
    (ResponseParserError("x"), errors.Corrupted, "not one of S3"),
    (ConnectionCut("x"), errors.Unavailable, "the connection was cut"),
    (ConnectionClosedError(error=aiohttp.ServerDisconnectedError(), endpoint_url="u"), errors.Unavailable, "was cut"),
    (MalformedResponse("a Content-Length of 'TimedOut'"), errors.Corrupted, "not one of S3"),
    (HttpError("certificate verify failed"), errors.Unavailable, "no answer: HttpError: certificate verify failed"),
]


@pytest.mark.parametrize(("error", "kind", "meaning"), WITHOUT_RESPONSE)
def test_an_exception_is_judged_by_its_class_and_not_by_its_text(
    error: BaseException, kind: type[errors.BackendError], meaning: str
) -> None:
    made = to_backend_error(failure_of_botocore_error(error), WHERE, "k", error)
    assert type(made) is kind
    assert meaning in str(made)


def test_a_peer_without_tls_is_found_by_the_reason_of_the_tls_error() -> None:
    error = ssl.SSLError(1, "x")
    error.reason = "WRONG_VERSION_NUMBER"
    for each in (error, SSLError(error=error, endpoint_url="u")):
        made = to_backend_error(failure_of_botocore_error(each), WHERE, "k", each)
        assert type(made) is errors.Misconfigured
        assert "does not speak TLS" in str(made)


@given(st.text(max_size=300))
def test_whatever_is_said_becomes_an_error_of_ours_of_bounded_length(text: str) -> None:
    for said in (failure_without_response(OSError(text)), refused(400, "Odd", text)):
        made = to_backend_error(said, WHERE, "k", OSError())
        assert isinstance(made, errors.BackendError)
        assert len(str(made)) < 600
