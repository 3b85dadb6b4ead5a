"""Checksums of parts and of what becomes of them, as S3 itself answered when it was asked."""

from __future__ import annotations

import base64

import pytest
from botocore.exceptions import ClientError

from s3api.format.checksums import compute
from tests.s3api.client import chunks, failed

MIB = 1 << 20
BODIES = [b"a" * (5 * MIB), b"the tail"]
AT = {"Bucket": "bucket", "Key": "k"}


@pytest.fixture
def bare(site, signer):
    """A client that says of checksums only what it is told to, as all did before 2025."""
    return site.boto(request_checksum_calculation="when_required", response_checksum_validation="when_required")


@pytest.fixture
def upload(site, bare):
    """Begin an upload; answers the arguments that name it."""

    async def begin(algorithm: str = "", kind: str = "", key: str = "k") -> dict[str, str]:
        asked = {"ChecksumAlgorithm": algorithm} if algorithm else {}
        asked |= {"ChecksumType": kind} if kind else {}
        begun = await site.call(bare.create_multipart_upload, Bucket="bucket", Key=key, **asked)
        return {"Bucket": "bucket", "Key": key, "UploadId": begun["UploadId"]}

    return begin


@pytest.fixture
def whole(site, bare, upload):
    """Upload *bodies* as one object whose checksum is of the *kind*; answers what the completion answered."""

    async def make(algorithm: str, kind: str, bodies=BODIES, key: str = "k"):
        named = await upload(algorithm, kind, key)
        parts = []
        for number, body in enumerate(bodies, 1):
            value = {f"Checksum{algorithm}": compute(algorithm, body)}
            part = await site.call(bare.upload_part, **named, PartNumber=number, Body=body, **value)
            parts.append({"PartNumber": number, "ETag": part["ETag"], **value})
        return await site.call(bare.complete_multipart_upload, **named, MultipartUpload={"Parts": parts})

    return make


async def refused(site, method, **arguments):
    """The code and the sentence of the error."""
    with pytest.raises(ClientError) as caught:
        await site.call(method, **arguments)
    return failed(caught), caught.value.response["Error"]["Message"]


def composite(algorithm: str, bodies=BODIES) -> str:
    digests = b"".join(base64.b64decode(compute(algorithm, body)) for body in bodies)
    return compute(algorithm, digests)


# --- parts ------------------------------------------------------------------------------------------------------------


async def test_a_part_of_a_composite_whole_brings_its_checksum(site, bare, upload):
    named = await upload("SHA256")
    part = {**named, "PartNumber": 1, "Body": b"x"}
    mismatch = "Checksum Type mismatch occurred, expected checksum Type: sha256, actual checksum Type: "
    assert await refused(site, bare.upload_part, **part) == ("InvalidRequest", mismatch + "null")
    crc = {"ChecksumCRC32": compute("CRC32", b"x")}
    assert await refused(site, bare.upload_part, **part, **crc) == ("InvalidRequest", mismatch + "crc32")
    assert "Parts" not in await site.call(bare.list_parts, **named)
    told = await site.call(bare.upload_part, **part, ChecksumAlgorithm="SHA256")
    assert told["ChecksumSHA256"] == compute("SHA256", b"x")


async def test_what_a_part_announces_behind_its_bytes_is_of_its_uploads_kind(site, signer, upload):
    named = await upload("CRC32C", "FULL_OBJECT")
    body = chunks(b"12345") + f"x-amz-checksum-sha1:{compute('SHA1', b'12345')}\r\n\r\n".encode()
    reply = await signer.request(
        "PUT", "/bucket/k", f"partNumber=1&uploadId={named['UploadId']}", body, "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        x_amz_decoded_content_length="5", x_amz_trailer="x-amz-checksum-sha1",
    )  # fmt: skip
    assert (reply.status, reply.code) == (400, "InvalidRequest")
    assert b"expected checksum Type: crc32c, actual checksum Type: sha1" in reply.body


async def test_a_part_of_a_whole_that_is_summed_up_as_such_needs_no_checksum(site, bare, upload):
    named = await upload("CRC32C", "FULL_OBJECT")
    part = await site.call(bare.upload_part, **named, PartNumber=1, Body=b"x")
    listed = await site.call(bare.list_parts, **named)
    assert [each["ChecksumCRC32C"] for each in listed["Parts"]] == [compute("CRC32C", b"x")]
    done = await site.call(
        bare.complete_multipart_upload, **named, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    )
    assert (done["ChecksumCRC32C"], done["ChecksumType"]) == (compute("CRC32C", b"x"), "FULL_OBJECT")


async def test_an_upload_that_asked_for_none_takes_parts_with_any_checksum_and_with_none(site, s3, bare, upload):
    named = await upload()
    first = await site.call(s3.upload_part, **named, PartNumber=1, Body=BODIES[0])  # an SDK's own choice
    assert "ChecksumCRC32" in first
    second = await site.call(bare.upload_part, **named, PartNumber=2, Body=BODIES[1])
    assert all("ChecksumCRC32" not in each for each in (await site.call(bare.list_parts, **named))["Parts"])
    parts = [{"PartNumber": 1, "ETag": first["ETag"]}, {"PartNumber": 2, "ETag": second["ETag"]}]
    done = await site.call(bare.complete_multipart_upload, **named, MultipartUpload={"Parts": parts})
    assert (done["ChecksumCRC64NVME"], done["ChecksumType"]) == (compute("CRC64NVME", b"".join(BODIES)), "FULL_OBJECT")


@pytest.mark.parametrize("kind", ["COMPOSITE", "FULL_OBJECT"])
async def test_a_copied_part_tells_the_checksum_that_its_upload_asked_for(site, bare, upload, kind):
    await site.call(bare.put_object, Bucket="bucket", Key="source", Body=b"0123456789")
    named = await upload("CRC32C", kind)
    into = {**named, "PartNumber": 1, "CopySource": "bucket/source"}
    whole = (await site.call(bare.upload_part_copy, **into))["CopyPartResult"]
    assert whole["ChecksumCRC32C"] == compute("CRC32C", b"0123456789")
    part = (await site.call(bare.upload_part_copy, **into, CopySourceRange="bytes=2-4"))["CopyPartResult"]
    assert part["ChecksumCRC32C"] == compute("CRC32C", b"234")
    parts = [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumCRC32C": part["ChecksumCRC32C"]}]
    await site.call(bare.complete_multipart_upload, **named, MultipartUpload={"Parts": parts})
    plain = {**await upload(key="other"), "PartNumber": 1, "CopySource": "bucket/source"}
    copied = (await site.call(bare.upload_part_copy, **plain))["CopyPartResult"]
    assert not [name for name in copied if name.startswith("Checksum")]


# --- completions ------------------------------------------------------------------------------------------------------


async def test_a_composite_whole_is_completed_with_the_checksum_of_each_part(site, bare, upload):
    named = await upload("SHA256")
    tags = [
        (await site.call(bare.upload_part, **named, PartNumber=number, Body=body, ChecksumAlgorithm="SHA256"))["ETag"]
        for number, body in enumerate(BODIES, 1)
    ]
    good = [
        {"PartNumber": number, "ETag": tag, "ChecksumSHA256": compute("SHA256", body)}
        for number, (tag, body) in enumerate(zip(tags, BODIES, strict=True), 1)
    ]

    async def complete(last, **more):
        return await refused(
            site, bare.complete_multipart_upload, **named, MultipartUpload={"Parts": [good[0], last]}, **more
        )

    last = {"PartNumber": 2, "ETag": tags[1]}
    assert await complete(last) == (
        "InvalidRequest",
        (
            "The upload was created using a sha256 checksum. The complete request must include the checksum for each "
            "part. It was missing for part 2 in the request."
        ),
    )
    assert (await complete({**last, "ChecksumSHA256": compute("SHA256", b"")}))[0] == "InvalidPart"
    assert (await complete({**last, "ChecksumCRC32": compute("CRC32", BODIES[1])}))[0] == "InvalidPart"
    assert (await complete({**last, "ChecksumSHA256": "AAAA"}))[0] == "InvalidArgument"
    both = {**good[1], "ChecksumCRC32": compute("CRC32", BODIES[1])}
    assert (await complete(both))[0] == "InvalidArgument"
    assert (await complete(good[1], ChecksumSHA256=compute("SHA256", b"")))[0] == "BadDigest"
    assert await complete(good[1], ChecksumType="FULL_OBJECT") == (
        "InvalidRequest",
        (
            "The upload was created using the COMPOSITE checksum mode. The complete request must use the same "
            "checksum mode."
        ),
    )
    done = await site.call(
        bare.complete_multipart_upload, **named, MultipartUpload={"Parts": good}, ChecksumType="COMPOSITE",
        ChecksumSHA256=composite("SHA256"),
    )  # fmt: skip
    assert done["ChecksumSHA256"] == composite("SHA256") + "-2"


async def test_a_part_that_is_not_so_is_named_in_the_error(site, bare, upload):
    named = await upload()
    tag = (await site.call(bare.upload_part, **named, PartNumber=7, Body=b"x"))["ETag"]
    for parts, number, told in (([(7, tag), (8, tag)], "8", tag), ([(7, '"other"')], "7", '"other"')):
        wanted = {"Parts": [{"PartNumber": each, "ETag": etag} for each, etag in parts]}
        with pytest.raises(ClientError) as caught:
            await site.call(bare.complete_multipart_upload, **named, MultipartUpload=wanted)
        error = caught.value.response["Error"]
        assert (error["Code"], error["PartNumber"], error["ETag"]) == ("InvalidPart", number, told.strip('"'))
        assert error["UploadId"] == named["UploadId"]


async def test_a_kind_of_checksum_is_not_promised_of_an_upload_that_asked_for_none(site, bare, upload):
    named = await upload()
    tag = (await site.call(bare.upload_part, **named, PartNumber=1, Body=b"x"))["ETag"]
    wanted = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    code, sentence = await refused(
        site, bare.complete_multipart_upload, **named, MultipartUpload=wanted, ChecksumType="FULL_OBJECT"
    )
    assert (code, "the null checksum mode" in sentence) == ("InvalidRequest", True)


@pytest.mark.parametrize("algorithm", ["MD5", "SHA512", "XXHASH3", "XXHASH64", "XXHASH128"])
async def test_a_parts_checksum_that_s3_has_besides_is_told_not_to_be_built(signer, upload, algorithm):
    named = await upload()
    part = f"<Part><PartNumber>1</PartNumber><ETag>x</ETag><Checksum{algorithm}>AAAA</Checksum{algorithm}></Part>"
    body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
    reply = await signer.request("POST", "/bucket/k", f"uploadId={named['UploadId']}", body)
    assert (reply.status, reply.code) == (501, "NotImplemented")


async def test_an_upload_is_not_begun_with_a_kind_of_no_checksum_nor_with_one_that_is_unknown(site, bare):
    assert await refused(site, bare.create_multipart_upload, **AT, ChecksumType="COMPOSITE") == (
        "InvalidRequest",
        "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
    )
    assert await refused(site, bare.create_multipart_upload, **AT, ChecksumAlgorithm="TEST") == (
        "InvalidRequest",
        (
            "Checksum algorithm provided is unsupported. Please try again with any of the valid types: "
            "[CRC32, CRC32C, CRC64NVME, SHA1, SHA256]"
        ),
    )


# --- what is shown ----------------------------------------------------------------------------------------------------


async def test_attributes_list_the_parts_of_a_composite_whole_and_count_those_of_another(site, bare, whole):
    asked = {**AT, "ObjectAttributes": ["Checksum", "ObjectParts"]}
    await whole("SHA1", "COMPOSITE")
    found = await site.call(bare.get_object_attributes, **asked)
    assert found["Checksum"] == {"ChecksumSHA1": composite("SHA1"), "ChecksumType": "COMPOSITE"}  # and no "-2"
    assert [(each["ChecksumSHA1"], each["Size"]) for each in found["ObjectParts"]["Parts"]] == [
        (compute("SHA1", body), len(body)) for body in BODIES
    ]
    for algorithm in ("CRC32", "CRC64NVME"):
        await whole(algorithm, "FULL_OBJECT")
        found = await site.call(bare.get_object_attributes, **asked)
        of_all = compute(algorithm, b"".join(BODIES))
        assert found["Checksum"] == {f"Checksum{algorithm}": of_all, "ChecksumType": "FULL_OBJECT"}
        assert found["ObjectParts"] == {"TotalPartsCount": 2}


async def test_a_part_shows_its_checksum_if_the_whole_is_made_of_those(site, bare, whole):
    async def shown(number):
        found = await site.call(bare.head_object, **AT, PartNumber=number, ChecksumMode="ENABLED")
        assert found["ResponseMetadata"]["HTTPStatusCode"] == 206
        return found.get("ChecksumCRC32C"), found.get("ChecksumType")

    await whole("CRC32C", "COMPOSITE")
    assert await shown(2) == (compute("CRC32C", BODIES[1]), "COMPOSITE")
    await whole("CRC32C", "FULL_OBJECT")
    assert await shown(2) == (None, None)
    for kind in ("COMPOSITE", "FULL_OBJECT"):
        await whole("CRC32C", kind, [b"one"])
        assert await shown(1) == (compute("CRC32C", b"one"), kind)


# --- copies of whole objects ------------------------------------------------------------------------------------------


async def copied(site, bare, **more):
    """The checksum that a copy is said to have, there and afterwards."""
    answer = await site.call(bare.copy_object, Bucket="bucket", Key="copy", CopySource="bucket/k", **more)
    told = answer["CopyObjectResult"]
    head = await site.call(bare.head_object, Bucket="bucket", Key="copy", ChecksumMode="ENABLED")
    assert head["ETag"] == told["ETag"]
    names = [name for name in told if name.startswith("Checksum")]
    assert {name: head[name] for name in names} == {name: told[name] for name in names}
    return {name: told[name] for name in names}


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C"])
async def test_the_copy_of_a_composite_whole_shows_the_checksum_of_all_its_bytes(site, bare, whole, algorithm):
    done = await whole(algorithm, "COMPOSITE")
    assert done["ChecksumType"] == "COMPOSITE"
    of_all = compute(algorithm, b"".join(BODIES))
    assert await copied(site, bare) == {f"Checksum{algorithm}": of_all, "ChecksumType": "FULL_OBJECT"}
    found = await site.call(bare.get_object_attributes, Bucket="bucket", Key="copy", ObjectAttributes=["ObjectParts"])
    assert "Parts" not in found["ObjectParts"]


async def test_a_composite_digest_is_copied_as_it_is_until_another_is_asked_for(site, bare, whole):
    await whole("SHA256", "COMPOSITE")
    kept = {"ChecksumSHA256": composite("SHA256") + "-2", "ChecksumType": "COMPOSITE"}
    assert await copied(site, bare) == kept
    of_all = {"ChecksumSHA256": compute("SHA256", b"".join(BODIES)), "ChecksumType": "FULL_OBJECT"}
    assert await copied(site, bare, ChecksumAlgorithm="SHA256") == of_all
    other = {"ChecksumCRC32": compute("CRC32", b"".join(BODIES)), "ChecksumType": "FULL_OBJECT"}
    assert await copied(site, bare, ChecksumAlgorithm="CRC32") == other
