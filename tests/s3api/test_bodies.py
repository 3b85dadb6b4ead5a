"""An object's bytes on their way in and out: digests, checksums, ranges and conditions."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from types import SimpleNamespace

import pytest

from gateway.identity.sigv4 import PayloadKind, VerifiedRequest
from s3api.format.checksums import compute
from s3api.http.bodies import ChunkedBody
from s3api.settings import S3Settings
from tests.s3api.client import chunks


async def test_a_body_that_is_not_the_signed_one_is_refused(site, signer):
    reply = await signer.request("PUT", "/bucket/k", body=b"12345", payload=hashlib.sha256(b"other").hexdigest())
    assert (reply.status, reply.code) == (400, "XAmzContentSHA256Mismatch")
    assert await site.keys() == []


async def test_content_md5_is_checked_in_form_and_in_fact(signer):
    bad = await signer.request("PUT", "/bucket/k", body=b"1", content_md5="rubbish")
    assert bad.code == "InvalidDigest"
    wrong = await signer.request("PUT", "/bucket/k", body=b"1", content_md5=base64.b64encode(b"0" * 16).decode())
    assert wrong.code == "BadDigest"
    right = base64.b64encode(hashlib.md5(b"1").digest()).decode()
    assert (await signer.request("PUT", "/bucket/k", body=b"1", content_md5=right)).status == 200


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
async def test_a_checksum_is_verified_kept_and_returned(signer, algorithm):
    name = f"x-amz-checksum-{algorithm.lower()}"
    good = compute(algorithm, b"12345")
    reply = await signer.request("PUT", "/bucket/k", body=b"12345", **{name: good})
    assert reply.headers[name] == good
    got = await signer.request("GET", "/bucket/k", x_amz_checksum_mode="ENABLED")
    assert got.headers[name] == good
    assert got.headers["x-amz-checksum-type"] == "FULL_OBJECT"
    part = await signer.request("GET", "/bucket/k", x_amz_checksum_mode="ENABLED", range="bytes=0-3")
    assert name not in part.headers
    whole = await signer.request("GET", "/bucket/k", x_amz_checksum_mode="ENABLED", range="bytes=0-4")
    assert (whole.status, whole.headers[name], whole.headers["x-amz-checksum-type"]) == (206, good, "FULL_OBJECT")
    wrong = await signer.request("PUT", "/bucket/k", body=b"12346", **{name: good})
    assert (wrong.status, wrong.code) == (400, "BadDigest")
    malformed = await signer.request("PUT", "/bucket/k", body=b"12345", **{name: "AAA"})
    assert (malformed.status, malformed.code) == (400, "InvalidRequest")


async def test_a_checksum_is_shown_to_whom_asks_for_it_in_the_one_way_there_is(signer):
    await signer.request("PUT", "/bucket/k", body=b"x")
    for method in ("GET", "HEAD"):
        assert not [name for name in (await signer.request(method, "/bucket/k")).headers if "checksum" in name]
        assert (await signer.request(method, "/bucket/k", x_amz_checksum_mode="INVALID")).status == 400
    assert (await signer.request("GET", "/bucket/k", x_amz_checksum_mode="INVALID")).code == "InvalidRequest"


async def test_an_algorithm_is_named_beside_a_value_and_by_no_other_header(site, signer):
    for named in ("crc32", "SHA256"):
        reply = await signer.request("PUT", "/bucket/k", body=b"x", x_amz_sdk_checksum_algorithm=named)
        assert (reply.status, reply.code) == (400, "InvalidRequest")
        assert b"no corresponding x-amz-checksum-* or x-amz-trailer headers were found" in reply.body
    assert await site.keys() == []
    crc = {"x_amz_checksum_crc32": compute("CRC32", b"x")}
    assert (
        await signer.request("PUT", "/bucket/k", body=b"x", x_amz_sdk_checksum_algorithm="crc32", **crc)
    ).status == 200
    # What begins an upload or a copy says nothing of a body.
    other = await signer.request("PUT", "/bucket/k", body=b"x", x_amz_checksum_algorithm="SHA1", **crc)
    assert "x-amz-checksum-crc32" in other.headers
    alone = await signer.request("PUT", "/bucket/k", body=b"x", x_amz_checksum_algorithm="SHA1")
    assert alone.headers["x-amz-checksum-crc64nvme"] == compute("CRC64NVME", b"x")


async def test_two_checksums_are_one_too_many(signer):
    both = {"x-amz-checksum-crc32": compute("CRC32", b""), "x-amz-checksum-sha1": compute("SHA1", b"")}
    assert (await signer.request("PUT", "/bucket/k", **both)).code == "InvalidRequest"


async def test_a_checksum_behind_the_body_is_verified(site, signer):
    data = b"x" * 100_000
    good = compute("CRC32C", data)
    for value, status in ((good, 200), (compute("CRC32C", b"other"), 400), ("rubbish", 400)):
        body = chunks(data[:65536], data[65536:]) + f"x-amz-checksum-crc32c:{value}\r\n\r\n".encode()
        reply = await signer.request(
            "PUT", "/bucket/k", body=body, payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            content_encoding="aws-chunked", x_amz_decoded_content_length=str(len(data)),
            x_amz_trailer="x-amz-checksum-crc32c",
        )  # fmt: skip
        assert reply.status == status, reply.body
    got = await signer.request("GET", "/bucket/k")
    assert got.body == data
    assert "content-encoding" not in got.headers


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (chunks(b"12345") + b"\r\n", "MalformedTrailerError"),
        (chunks(b"12345") + b"x-amz-checksum-sha1:AAAA\r\n\r\n", "MalformedTrailerError"),
        (chunks(b"1234"), "IncompleteBody"),
        (chunks(b"123456"), "IncompleteBody"),
        (b"5\r\n12345\r\n", "IncompleteBody"),
        (b"zz\r\n12345", "IncompleteBody"),
        (b"3\r\n12345\r\n0\r\n", "IncompleteBody"),
        (b"5\r\n123450\r\n", "IncompleteBody"),
        (b"", "IncompleteBody"),
    ],
)
async def test_a_chunked_body_with_a_flaw_is_refused(site, signer, body, code):
    reply = await signer.request(
        "PUT", "/bucket/k", body=body, payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER", x_amz_decoded_content_length="5",
        x_amz_trailer="x-amz-checksum-crc32", content_length=str(len(body)),
    )  # fmt: skip
    assert reply.code == code
    assert 400 <= reply.status < 500
    assert await site.keys() == []


@pytest.mark.parametrize(
    ("asked", "status", "body", "shown"),
    [
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-2", 206, b"89", "bytes 8-9/10"),
        ("bytes=0-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=0-0,5-5", 200, b"0123456789", None),
        ("bytes=5-2", 200, b"0123456789", None),
    ],
)
async def test_ranges(signer, asked, status, body, shown):
    await signer.request("PUT", "/bucket/k", body=b"0123456789")
    reply = await signer.request("GET", "/bucket/k", range=asked)
    assert (reply.status, reply.body, reply.headers.get("content-range")) == (status, body, shown)
    head = await signer.request("HEAD", "/bucket/k", range=asked)
    assert (head.status, head.headers["content-length"]) == (status, str(len(body)))


@pytest.mark.parametrize("asked", ["bytes=10-", "bytes=-0", "bytes=99-100"])
async def test_a_range_that_is_not_there_is_a_416(signer, asked):
    await signer.request("PUT", "/bucket/k", body=b"0123456789")
    reply = await signer.request("GET", "/bucket/k", range=asked)
    assert (reply.status, reply.code) == (416, "InvalidRange")
    assert reply.headers["content-range"] == "bytes */10"


async def test_a_range_of_what_has_changed_is_all_of_it(signer):
    put = await signer.request("PUT", "/bucket/k", body=b"0123456789")
    for if_range, status in ((put.headers["etag"], 206), ('"other"', 200), ("Sun, 06 Nov 1994 08:49:37 GMT", 200)):
        reply = await signer.request("GET", "/bucket/k", range="bytes=0-1", if_range=if_range)
        assert reply.status == status


async def test_conditions_in_the_order_of_the_rfc(signer):
    etag = (await signer.request("PUT", "/bucket/k", body=b"x")).headers["etag"]
    past, future = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 2044 08:49:37 GMT"
    for headers, status in [
        ({"if_match": etag}, 200), ({"if_match": '"no"'}, 412), ({"if_match": "*"}, 200),
        ({"if_none_match": etag}, 304), ({"if_none_match": '"no"'}, 200), ({"if_none_match": f"W/{etag}"}, 304),
        ({"if_modified_since": future}, 304), ({"if_modified_since": past}, 200),
        ({"if_unmodified_since": past}, 412), ({"if_unmodified_since": future}, 200),
        ({"if_match": etag, "if_unmodified_since": past}, 200),
        ({"if_none_match": '"no"', "if_modified_since": future}, 200),
        ({"if_modified_since": "yesterday"}, 200),
    ]:  # fmt: skip
        for method in ("GET", "HEAD"):
            reply = await signer.request(method, "/bucket/k", **headers)
            assert reply.status == status, headers
            assert status != 304 or "content-length" not in reply.headers


async def test_a_put_can_insist_on_being_the_first(signer):
    assert (await signer.request("PUT", "/bucket/k", body=b"1", if_none_match="*")).status == 200
    assert (await signer.request("PUT", "/bucket/k", body=b"2", if_none_match="*")).code == "PreconditionFailed"
    assert (await signer.request("PUT", "/bucket/k", body=b"2", if_none_match='"x"')).code == "NotImplemented"
    assert (await signer.request("PUT", "/bucket/k", body=b"2", if_match='"x"')).code == "PreconditionFailed"
    assert (await signer.request("DELETE", "/bucket/k", if_match='"x"')).code == "PreconditionFailed"
    assert (await signer.request("GET", "/bucket/k")).body == b"1"


async def test_what_has_not_changed_comes_with_the_headers_a_cache_needs(signer):
    put = await signer.request("PUT", "/bucket/k", body=b"x", cache_control="max-age=5")
    for method in ("GET", "HEAD"):
        reply = await signer.request(method, "/bucket/k", if_none_match=put.headers["etag"])
        assert (reply.status, reply.headers["etag"]) == (304, put.headers["etag"])
        assert reply.headers["cache-control"] == "max-age=5"
        assert "last-modified" in reply.headers


async def test_a_body_of_tiny_chunks_lets_others_run_between_them():
    """One read from the wire may bring a hundred thousand chunks of a byte each."""
    count = 10_000
    wire = b"1\r\nx\r\n" * count + b"0\r\n\r\n"

    class Exchange:
        async def read(self, _idle_seconds: float) -> bytes:
            nonlocal wire
            data, wire = wire, b""
            return data

    payload = VerifiedRequest("AK", PayloadKind.STREAMING_UNSIGNED_TRAILER, "", b"", "", "", "", False)
    call = SimpleNamespace(stream=Exchange(), settings=S3Settings(), headers={})
    body = ChunkedBody(call, payload, count)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(others())
    assert sum([len(data) async for data in body]) == count
    beside.cancel()
    assert turns >= count // 64 - 1
