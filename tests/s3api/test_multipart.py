"""Uploads in parts, as an SDK and as a bare client see them."""

from __future__ import annotations

import asyncio

import pytest
from botocore.exceptions import ClientError

from s3api.format.checksums import compute
from tests.s3api.client import chunks, failed

MIB = 1 << 20


async def test_an_upload_in_parts_becomes_one_object(s3, site):
    at = {"Bucket": "bucket", "Key": "big/ü"}
    upload = await site.call(
        s3.create_multipart_upload, **at, ChecksumAlgorithm="CRC32", Metadata={"m": "1"}, ContentType="text/x"
    )
    assert (upload["ChecksumAlgorithm"], upload["ChecksumType"]) == ("CRC32", "COMPOSITE")
    named = {**at, "UploadId": upload["UploadId"]}
    bodies = [b"a" * (5 * MIB), b"b" * (5 * MIB), b"c"]
    parts = []
    for number, body in enumerate(bodies, 1):
        part = await site.call(s3.upload_part, **named, PartNumber=number, Body=body, ChecksumAlgorithm="CRC32")
        parts.append({"PartNumber": number, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]})
    listed = await site.call(s3.list_parts, **named, MaxParts=2)
    assert (listed["IsTruncated"], listed["NextPartNumberMarker"]) == (True, 2)
    listed = await site.call(s3.list_parts, **named, PartNumberMarker=2)
    assert [each["Size"] for each in listed["Parts"]] == [1]
    uploads = await site.call(s3.list_multipart_uploads, Bucket="bucket")
    assert [each["Key"] for each in uploads["Uploads"]] == ["big/ü"]
    done = await site.call(s3.complete_multipart_upload, **named, MultipartUpload={"Parts": parts})
    again = await site.call(s3.complete_multipart_upload, **named, MultipartUpload={"Parts": parts})
    assert done["ETag"] == again["ETag"]
    assert done["ETag"].endswith('-3"')
    assert done["ChecksumCRC32"].endswith("-3")
    got = await site.call(s3.get_object, **at, ChecksumMode="ENABLED")
    assert await asyncio.to_thread(got["Body"].read) == b"".join(bodies)
    part = await site.call(s3.get_object, **at, PartNumber=2, ChecksumMode="ENABLED")
    assert part["PartsCount"] == 3
    assert part["ChecksumCRC32"] == parts[1]["ChecksumCRC32"]
    assert await asyncio.to_thread(part["Body"].read) == bodies[1]
    attributes = await site.call(
        s3.get_object_attributes, **at, ObjectAttributes=["ETag", "Checksum", "ObjectParts", "ObjectSize"], MaxParts=2
    )
    assert attributes["ObjectSize"] == 10 * MIB + 1
    assert attributes["ObjectParts"]["TotalPartsCount"] == 3
    assert attributes["ObjectParts"]["IsTruncated"]
    assert [each["ChecksumCRC32"] for each in attributes["ObjectParts"]["Parts"]] == [
        each["ChecksumCRC32"] for each in parts[:2]
    ]


async def test_a_completion_that_does_not_fit_is_refused(s3, site, signer):
    at = {"Bucket": "bucket", "Key": "k"}
    upload = (await site.call(s3.create_multipart_upload, **at))["UploadId"]
    named = {**at, "UploadId": upload}
    etags = [(await site.call(s3.upload_part, **named, PartNumber=number, Body=b"x"))["ETag"] for number in (1, 2)]

    async def complete(*parts):
        with pytest.raises(ClientError) as caught:
            await site.call(
                s3.complete_multipart_upload, **named,
                MultipartUpload={"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in parts]},
            )  # fmt: skip
        return failed(caught)

    assert await complete((1, etags[0]), (2, etags[1])) == "EntityTooSmall"
    assert await complete((2, etags[1]), (1, etags[0])) == "InvalidPartOrder"
    assert await complete((1, '"00000000000000000000000000000000"')) == "InvalidPart"
    assert await complete((3, etags[0])) == "InvalidPart"
    for body in (b"", b"<CompleteMultipartUpload/>", b"<x/>", b"<CompleteMultipartUpload><Part/>"):
        assert (await signer.request("POST", "/bucket/k", f"uploadId={upload}", body)).code == "MalformedXML"
    await site.call(s3.abort_multipart_upload, **named)
    with pytest.raises(ClientError) as caught:
        await site.call(s3.list_parts, **named)
    assert failed(caught) == "NoSuchUpload"


async def test_parts_are_copied_from_objects(s3, site):
    await site.call(s3.put_object, Bucket="bucket", Key="source", Body=b"0123456789")
    at = {"Bucket": "bucket", "Key": "k"}
    named = {**at, "UploadId": (await site.call(s3.create_multipart_upload, **at))["UploadId"]}
    source = {"Bucket": "bucket", "Key": "source"}
    part = await site.call(s3.upload_part_copy, **named, PartNumber=1, CopySource=source, CopySourceRange="bytes=2-4")
    parts = [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]
    await site.call(s3.complete_multipart_upload, **named, MultipartUpload={"Parts": parts})
    got = await site.call(s3.get_object, **at)
    assert await asyncio.to_thread(got["Body"].read) == b"234"
    with pytest.raises(ClientError) as caught:
        await site.call(s3.upload_part_copy, **named, PartNumber=1, CopySource=source, CopySourceRange="bytes=2-")
    assert failed(caught) == "InvalidArgument"


@pytest.mark.parametrize("number", ["0", "10001", "-1", "x", "1e3", ""])
async def test_a_part_number_has_bounds(signer, number):
    reply = await signer.request("PUT", "/bucket/k", f"partNumber={number}&uploadId=u", b"x")
    assert (reply.status, reply.code) == (400, "InvalidArgument")


async def test_a_part_brings_its_checksum_behind_its_bytes(site, signer, s3):
    at = {"Bucket": "bucket", "Key": "k"}
    upload = (await site.call(s3.create_multipart_upload, **at))["UploadId"]
    for value, status in ((compute("CRC32C", b"12345"), 200), (compute("CRC32C", b"other"), 400)):
        body = chunks(b"12345") + f"x-amz-checksum-crc32c:{value}\r\n\r\n".encode()
        reply = await signer.request(
            "PUT", "/bucket/k", f"partNumber=1&uploadId={upload}", body, "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            x_amz_decoded_content_length="5", x_amz_trailer="x-amz-checksum-crc32c",
        )  # fmt: skip
        assert reply.status == status, reply.body


async def test_a_completion_of_ten_thousand_parts_is_read(signer, site):
    upload = (await signer.request("POST", "/bucket/k", "uploads=")).xml("UploadId")
    part = "<Part><PartNumber>{}</PartNumber><ETag>&quot;{:032x}&quot;</ETag><ChecksumSHA256>{}</ChecksumSHA256></Part>"
    checksum = compute("SHA256", b"")
    parts = "".join(part.format(n, n, checksum) for n in range(1, 10_001))
    body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    assert (await signer.request("POST", "/bucket/k", f"uploadId={upload}", body)).code == "InvalidPart"
