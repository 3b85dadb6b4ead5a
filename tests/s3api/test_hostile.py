"""Whatever a known client sends, in any header, parameter or body, it gets an answer that blames nobody else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.engine.types import Body, Caller
from gateway.errors import NoSuchBucket
from gateway.identity.canonical import encode as uri_encode
from gateway.timing import parse_timing
from s3api.access_log import AccessRecord
from s3api.operations import ROUTE_ROWS
from s3api.routing import SUBRESOURCES
from s3api.server import make_server
from s3api.settings import S3Settings
from tests.s3api.client import Reply, Signer, parse


class Nothing:
    """An engine with a user and nothing else: it reads every body to its end, and then knows no bucket."""

    def credential(self, _access_key: str) -> tuple[str, Caller]:
        return "secret", Caller("someone", 7, 1, root=False)

    def granted_by_policy(self, *_arguments: Any) -> int:
        return 0

    def public_document(self, *_arguments: Any) -> None:
        return None

    def __getattr__(self, _verb: str) -> Callable[..., Any]:
        async def refuse(*arguments: Any, **_named: Any) -> None:
            for each in arguments:
                if isinstance(each, Body):
                    async for _ in each:
                        pass
                    each.trailing_checksum()
            raise NoSuchBucket("bucket")

        return refuse


class Unobserved:
    """Nobody wants to know of requests."""

    def write(self, seen: AccessRecord) -> None:
        pass


class Wire(asyncio.Transport):
    """The other end of a connection, at hand."""

    def __init__(self, closed: asyncio.Future[None]) -> None:
        super().__init__({"peername": ("192.0.2.1", 1)})
        self.written = bytearray()
        self.closed = closed

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed.done()

    def close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    abort = close

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


TIMING = parse_timing("connections.linger_seconds=0.1")


async def answers(data: bytes, pieces: int = 1, *, half_close: bool = True) -> bytes:
    """Everything that a server answers to *data*, in as many *pieces*; behind it the client closes its half."""
    server = make_server(Nothing(), S3Settings(body_idle_seconds=2), Unobserved(), TIMING)
    connection = server()
    wire = Wire(asyncio.get_running_loop().create_future())
    connection.connection_made(wire)
    step = max(len(data) // pieces, 1)
    for at in range(0, len(data), step):
        await asyncio.sleep(0)
        if not wire.is_closing():
            connection.data_received(data[at : at + step])
    for _ in range(1 if half_close else 500):
        await asyncio.sleep(0)
    if half_close and not wire.is_closing() and connection.eof_received():
        async with asyncio.timeout(60):
            await wire.closed
    connection.connection_lost(None)
    await asyncio.sleep(0)
    return bytes(wire.written)


def check(reply: Reply, method: str) -> None:
    """An answer that a client can live with."""
    assert reply.status < 500 or reply.status == 501, reply.body
    assert reply.headers["x-amz-request-id"]
    if reply.status >= 400 and method != "HEAD":
        assert ElementTree.fromstring(reply.body).findtext("Code")


class Place:
    port = 9000


SIGNER = Signer(Place(), "AKSOMEONE", "secret")
NAMES = sorted(
    SUBRESOURCES
    | {"versionId", "prefix", "delimiter", "marker", "max-keys", "list-type", "continuation-token", "encoding-type",
       "start-after", "key-marker", "version-id-marker", "upload-id-marker", "max-uploads", "max-parts",
       "part-number-marker", "response-content-type", "fetch-owner", "max-buckets"}
)  # fmt: skip
HEADERS = (
    "range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "content-md5",
    "content-type", "expires", "x-amz-acl", "x-amz-checksum-crc32", "x-amz-checksum-sha256", "x-amz-checksum-mode",
    "x-amz-checksum-algorithm", "x-amz-checksum-type", "x-amz-sdk-checksum-algorithm", "x-amz-trailer",
    "x-amz-copy-source", "x-amz-copy-source-range", "x-amz-copy-source-if-match", "x-amz-decoded-content-length",
    "x-amz-if-match-size", "x-amz-if-match-last-modified-time", "x-amz-max-parts", "x-amz-meta-a",
    "x-amz-metadata-directive", "x-amz-mp-object-size", "x-amz-object-attributes", "x-amz-part-number-marker",
    "x-amz-server-side-encryption", "x-amz-storage-class", "x-amz-tagging", "x-amz-tagging-directive", "expect",
    "x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner",
)  # fmt: skip
VALUES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=30).map(str.strip),
    st.sampled_from(["bytes=0-", "*", "1", "-1", "9" * 30, "CRC32", "COMPOSITE", "REPLACE", "bucket/key", "a=b", "url",
                     "2", "ETag", "Sun, 06 Nov 1994 08:49:37 GMT", "x-amz-checksum-crc32", "AAAAAA==", "100-continue"]),
)  # fmt: skip
XML = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda root, inner: f"<{root}>{inner}</{root}>".encode(),
        st.sampled_from(["Delete", "CompleteMultipartUpload", "Tagging", "VersioningConfiguration",
                         "CreateBucketConfiguration", "AccessControlPolicy", "ServerSideEncryptionConfiguration",
                         "PublicAccessBlockConfiguration", "OwnershipControls", "BucketLoggingStatus"]),
        st.recursive(
            st.text(st.characters(codec="utf-8", exclude_categories=("C",), exclude_characters="<&"), max_size=8),
            lambda inner: st.builds(
                lambda name, text: f"<{name}>{text}</{name}>",
                st.sampled_from(["Object", "Key", "Part", "PartNumber", "ETag", "TagSet", "Tag", "Value", "Status",
                                 "Rule", "Size", "LastModifiedTime", "LocationConstraint", "AccessControlList"]),
                inner,
            ),
            max_leaves=6,
        ),
    ),
)  # fmt: skip
PAYLOADS = st.sampled_from(
    [
        None,
        "UNSIGNED-PAYLOAD",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    ]
)


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("asyncio").setLevel(logging.ERROR)


@settings(max_examples=400)
@given(
    st.sampled_from(sorted({row.method for row in ROUTE_ROWS} | {"PATCH", "OPTIONS"})),
    st.sampled_from(["/", "/bucket", "/bucket/key", "/bucket/a%2F%FF//..", "/b%c3"]),
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3),
    st.dictionaries(st.sampled_from(HEADERS), VALUES, max_size=4),
    XML,
    PAYLOADS,
    st.integers(1, 4),
)
def test_a_known_client_is_never_shown_a_mistake_of_ours(method, path, query, headers, body, payload, pieces):
    raw_query = "&".join(f"{uri_encode(name)}={uri_encode(value)}" for name, value in query.items())
    named = {"content-length": str(len(body)), **headers}
    head = SIGNER.head(method, path, raw_query, body, payload, **named)
    reply, _ = parse(asyncio.run(answers(head + body, pieces)).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"), method)
    check(reply, method)


@given(st.binary(max_size=300), st.integers(1, 5))
def test_any_bytes_get_an_answer_or_an_end(data, pieces):
    for prefix in (
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"PUT /bucket/k HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n",
    ):
        raw = asyncio.run(answers(prefix + data, pieces))
        if raw:
            reply, _ = parse(raw, "GET")
            assert reply.status < 500


FRAMES = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from(
            [
                b"5\r\n12345\r\n",
                b"5;chunk-signature=" + b"0" * 64 + b"\r\n12345\r\n",
                b"0\r\n",
                b"\r\n",
                b"x-amz-checksum-crc32:y/U6HA==\r\n",
                b"x-amz-checksum-crc32:rubbish\r\n",
                b"x-amz-meta-a:b\r\n",
                b"fffffffffffffffff\r\n",
            ]
        ),
        max_size=6,
    ).map(b"".join),
)


@given(FRAMES, st.integers(0, 11) | st.just(5), st.integers(1, 6))
def test_any_chunked_body_is_read_or_refused(frames, length, pieces):
    for kind in ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"):
        head = SIGNER.head(
            "PUT", "/bucket/key", "", frames, kind, **{"x-amz-decoded-content-length": str(length),
                                                       "x-amz-trailer": "x-amz-checksum-crc32"},
        )  # fmt: skip
        reply, _ = parse(asyncio.run(answers(head + frames, pieces)))
        check(reply, "PUT")


@given(st.integers(0, 100), st.integers(1, 10))
def test_a_pipeline_is_answered_request_by_request(count, pieces):
    raw = asyncio.run(answers(b"GET /bucket HTTP/1.1\r\nHost: x\r\n\r\n" * count + b"GET /", pieces, half_close=False))
    assert raw.count(b"HTTP/1.1 403 ") == count
