"""Particulars of S3's answers that suites and old clients look at: one sentence for each."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from botocore.auth import HmacV1QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from s3api.ops.subresources import FIXED
from tests.s3api.client import Signer, encode

MIB = 1 << 20


def failed(caught) -> tuple[int, str]:
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


async def refused(site, method, **arguments) -> tuple[int, str]:
    with pytest.raises(ClientError) as caught:
        await site.call(method, **arguments)
    return failed(caught)


# --- who asks ---------------------------------------------------------------------------------------------------------


def changed(signer, **after: str) -> bytes:
    """A signed GET of the bucket whose headers were *changed* behind the signing."""
    behind = {name.replace("_", "-"): value for name, value in after.items()}
    return encode("GET", "/bucket", signer.signed("GET", "/bucket") | behind)


@pytest.mark.parametrize(
    ("header", "value", "status", "code"),
    [
        ("authorization", "", 403, "AccessDenied"),
        ("authorization", "AWS someone:c2lnbmF0dXJl", 400, "InvalidRequest"),
        ("authorization", "Bearer token", 400, "InvalidArgument"),
        ("authorization", "AWS4-HMAC-SHA256 nonsense", 400, "AuthorizationHeaderMalformed"),
        ("x_amz_date", "", 403, "AccessDenied"),
        ("x_amz_date", "yesterday", 403, "AccessDenied"),
        ("x_amz_date", "2026-11-21T09:00:00Z", 403, "AccessDenied"),
        ("x_amz_date", "19500707T215304Z", 400, "AuthorizationHeaderMalformed"),
    ],
)
async def test_a_signature_that_cannot_be_read_is_the_clients_mistake(signer, header, value, status, code):
    reply = await signer.send(changed(signer, **{header: value}))
    assert (reply.status, reply.code) == (status, code)


@pytest.mark.parametrize(("minutes", "status"), [(-14, 200), (14, 200), (-16, 403), (16, 403)])
async def test_clocks_may_differ_by_a_quarter_of_an_hour(signer, minutes, status):
    headers = signer.signed("HEAD", "/bucket", at=datetime.now(UTC) + timedelta(minutes=minutes))
    assert (await signer.send(encode("HEAD", "/bucket", headers), "HEAD")).status == status


async def test_nobody_in_particular_may_change_an_answers_headers(signer):
    reply = await signer.send(b"GET /bucket/k?response-content-type=text/html HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (reply.status, reply.code) == (400, "InvalidRequest")


async def test_an_expected_owner_is_who_owns_the_bucket_or_nothing_is_done(site, signer):
    owner = (await signer.request("GET", "/bucket", "acl=")).xml("Owner/ID")
    put = await signer.request("PUT", "/bucket/k", body=b"x", x_amz_expected_bucket_owner=owner)
    assert put.status == 200
    other = await signer.request("PUT", "/bucket/other", body=b"x", x_amz_expected_bucket_owner="123456789012")
    assert (other.status, other.code) == (403, "AccessDenied")
    assert await site.keys() == [b"k"]
    for source, status in ((owner, 200), ("123456789012", 403)):
        copied = await signer.request(
            "PUT", "/bucket/copy", x_amz_copy_source="bucket/k", x_amz_source_expected_bucket_owner=source
        )
        assert copied.status == status
    assert (await signer.request("HEAD", "/absent", x_amz_expected_bucket_owner=owner)).status == 404


async def test_owners_have_a_name_to_show(site, signer, s3):
    await signer.request("PUT", "/bucket/k", body=b"x")
    upload = (await site.call(s3.create_multipart_upload, Bucket="bucket", Key="u"))["UploadId"]
    shown = [
        (await site.call(s3.list_buckets))["Owner"],
        (await site.call(s3.get_bucket_acl, Bucket="bucket"))["Grants"][0]["Grantee"],
        (await site.call(s3.get_object_acl, Bucket="bucket", Key="k"))["Owner"],
        (await site.call(s3.list_objects, Bucket="bucket"))["Contents"][0]["Owner"],
        (await site.call(s3.list_objects_v2, Bucket="bucket", FetchOwner=True))["Contents"][0]["Owner"],
        (await site.call(s3.list_object_versions, Bucket="bucket"))["Versions"][0]["Owner"],
        (await site.call(s3.list_multipart_uploads, Bucket="bucket"))["Uploads"][0]["Initiator"],
        (await site.call(s3.list_parts, Bucket="bucket", Key="u", UploadId=upload))["Owner"],
    ]
    assert {(each["DisplayName"], len(each["ID"])) for each in shown} == {("alice", 64)}
    assert "Owner" not in (await site.call(s3.list_objects_v2, Bucket="bucket"))["Contents"][0]


HOISTED = {
    "x-amz-meta-Colour": "grün", "x-amz-storage-class": "STANDARD", "x-amz-acl": "private", "x-amz-tagging": "a=b",
    "x-amz-checksum-crc32": "AAAAAA==", "x-amz-sdk-checksum-algorithm": "CRC32",
}  # fmt: skip


async def put_presigned(signer, body: bytes = b"x", **query: str):
    return await signer.follow("PUT", signer.presigned("PUT", "/bucket/k", **query), body)


async def test_headers_that_a_presigned_address_has_in_its_query_count(site, signer, s3):
    assert (await put_presigned(signer, **HOISTED)).status == 200
    found = await site.call(s3.get_object, Bucket="bucket", Key="k")
    assert (found["Metadata"], found["TagCount"]) == ({"colour": "=?UTF-8?B?Z3LDvG4=?="}, 1)
    copied = await put_presigned(signer, b"", **{"x-amz-copy-source": "bucket/k"})
    assert (copied.status, copied.code) == (400, "InvalidRequest")  # onto itself: a copy, and not an empty object
    assert (await signer.request("GET", "/bucket/k")).body == b"x"


@pytest.mark.parametrize(
    ("name", "value", "status", "code"),
    [
        ("x-amz-acl", "public-read", 501, "NotImplemented"),
        ("x-amz-storage-class", "GLACIER", 501, "NotImplemented"),
        ("x-amz-server-side-encryption-customer-algorithm", "AES256", 501, "NotImplemented"),
        ("x-amz-expected-bucket-owner", "123456789012", 403, "AccessDenied"),
        ("x-amz-meta-a\r\nx-evil", "1", 400, "InvalidArgument"),
        ("x-amz-meta-a", "1\r\nx-evil: 1", 400, "InvalidArgument"),
    ],
)
async def test_what_a_presigned_address_asks_for_in_vain_is_refused(site, signer, name, value, status, code):
    reply = await put_presigned(signer, **{name: value})
    assert (reply.status, reply.code) == (status, code)
    assert await site.keys() == []


@pytest.mark.parametrize("name", ["%78-amz-acl", "x%2Damz%2Dacl"])
async def test_whoever_has_a_presigned_address_takes_nothing_out_of_it_by_an_escape(site, signer, name):
    target = signer.presigned("PUT", "/bucket/k", **{"x-amz-acl": "public-read"})
    assert "&x-amz-acl=" in target
    reply = await signer.follow("PUT", target.replace("&x-amz-acl=", f"&{name}="), b"x")
    assert (reply.status, reply.code) == (501, "NotImplemented")
    assert await site.keys() == []


async def test_a_header_that_differs_from_the_parameter_is_refused_and_so_is_one_that_was_not_signed(site, signer):
    target = signer.presigned("PUT", "/bucket/k", **{"x-amz-meta-a": "1"})
    assert (await signer.follow("PUT", target, b"x", **{"x-amz-meta-a": "2"})).status == 400
    assert (await signer.follow("PUT", target, b"x", **{"x-amz-meta-a": "1"})).status == 403
    assert await site.keys() == []


async def test_the_query_of_a_request_that_is_signed_in_its_header_is_no_header(signer):
    assert (await signer.request("PUT", "/bucket/k", "x-amz-meta-a=1", b"x")).status == 200
    assert "x-amz-meta-a" not in (await signer.request("HEAD", "/bucket/k")).headers


async def presigned_by_version_2(signer, method: str, path: str, body: bytes = b"", **headers: str):
    """The answer to an address of which botocore signed the headers by Signature Version 2, asked of `s3.test`."""
    request = AWSRequest(method, f"http://{signer.host}{path}", headers=headers)
    request.auth_path = "/bucket" + path if signer.host == "bucket.s3.test" else None
    HmacV1QueryAuth(Credentials(signer.access_key, signer.secret), 600).add_auth(request)
    return await signer.follow(method, request.url.removeprefix(f"http://{signer.host}"), body)


async def test_a_host_that_names_the_bucket_counts_for_version_2_as_a_path_does(site, s3):
    virtual, plain = Signer(site, host="bucket.s3.test"), Signer(site)
    told = {"x-amz-meta-a": "1", "content-type": "text/x-odd"}
    assert (await presigned_by_version_2(virtual, "PUT", "/k", b"x", **told)).status == 200
    found = await presigned_by_version_2(plain, "GET", "/bucket/k")
    assert (found.body, found.headers["x-amz-meta-a"], found.headers["content-type"]) == (b"x", "1", "text/x-odd")
    assert (await presigned_by_version_2(Signer(site, host="other.s3.test"), "GET", "/k")).status == 403


async def test_what_version_2_signs_is_obeyed(site, signer, s3):
    digest = base64.b64encode(hashlib.md5(b"x").digest()).decode()
    refused = await presigned_by_version_2(signer, "PUT", "/bucket/k", b"y", **{"content-md5": digest})
    assert (refused.status, refused.code) == (400, "BadDigest")
    refused = await presigned_by_version_2(signer, "PUT", "/bucket/k", b"y", **{"x-amz-acl": "public-read"})
    assert (refused.status, refused.code) == (501, "NotImplemented")
    assert await site.keys() == []


async def test_a_key_that_is_not_there_signs_nothing_by_version_2_either(site):
    gone = Signer(site, "AKNOBODY", "secret")
    refused = await presigned_by_version_2(gone, "GET", "/bucket/k")
    assert (refused.status, refused.code) == (403, "InvalidAccessKeyId")


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/bucket/%", "/bucket/a%zz", "/bucket/a%4", "/%zz/k"])
async def test_an_escape_that_is_none_is_no_name(site, signer, path):
    reply = await signer.request("PUT", path, body=b"x")
    assert (reply.status, reply.code) == (400, "InvalidURI")
    assert await site.keys() == []


async def test_a_key_that_is_too_long_is_not_even_deleted(site, signer):
    versioned = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    for state in (b"", versioned):
        if state:
            assert (await signer.request("PUT", "/bucket", "versioning=", state)).status == 200
        for method in ("PUT", "GET", "DELETE"):
            reply = await signer.request(method, "/bucket/" + "k" * 1025)
            assert (reply.status, reply.code) == (400, "KeyTooLongError"), method
    assert (await site.engine.list_versions(site.caller(), "bucket")).versions == []


async def test_a_write_names_no_version(site, signer):
    await signer.request("PUT", "/bucket/k", body=b"x")
    for method, query, headers in (
        ("PUT", "versionId=null", {}),
        ("PUT", "versionId=null", {"x_amz_copy_source": "bucket/k"}),
        ("POST", "uploads=&versionId=null", {}),
    ):
        reply = await signer.request(method, "/bucket/new", query, **headers)
        assert (reply.status, reply.code) == (400, "InvalidArgument")
    assert await site.keys() == [b"k"]


# --- parts ------------------------------------------------------------------------------------------------------------


async def test_a_part_that_is_not_there_is_a_416_and_one_that_cannot_be_a_400(site, signer, s3):
    await signer.request("PUT", "/bucket/plain", body=b"hello")
    upload = (await site.call(s3.create_multipart_upload, Bucket="bucket", Key="parts"))["UploadId"]
    name = {"Bucket": "bucket", "Key": "parts", "UploadId": upload}
    tag = (await site.call(s3.upload_part, **name, PartNumber=7, Body=b"seven"))["ETag"]
    await site.call(s3.complete_multipart_upload, **name, MultipartUpload={"Parts": [{"PartNumber": 7, "ETag": tag}]})
    assert (await signer.request("GET", "/bucket/parts", "partNumber=7")).body == b"seven"
    assert (await signer.request("GET", "/bucket/plain", "partNumber=1")).body == b"hello"
    for key, number in (("plain", 2), ("parts", 1), ("parts", 10_000)):
        reply = await signer.request("GET", f"/bucket/{key}", f"partNumber={number}")
        assert (reply.status, reply.code) == (416, "InvalidPartNumber")
    for number in ("", "0", "-1", "10001", "one"):
        reply = await signer.request("GET", "/bucket/plain", f"partNumber={number}")
        assert (reply.status, reply.code) == (400, "InvalidArgument")


@pytest.mark.parametrize("asked", ["bytes=0-5", "bytes=5-5", "bytes=3-100"])
async def test_a_part_is_not_copied_from_bytes_that_are_not_there(site, signer, s3, asked):
    await signer.request("PUT", "/bucket/source", body=b"hello")
    upload = (await site.call(s3.create_multipart_upload, Bucket="bucket", Key="k"))["UploadId"]
    found = await refused(
        site, s3.upload_part_copy, Bucket="bucket", Key="k", UploadId=upload, PartNumber=1,
        CopySource="bucket/source", CopySourceRange=asked,
    )  # fmt: skip
    assert found == (400, "InvalidArgument")


async def test_of_a_bucket_that_is_not_there_no_upload_is_looked_for(site, signer, s3):
    upload = (await site.call(s3.create_multipart_upload, Bucket="bucket", Key="k"))["UploadId"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": "0" * 32}]}
    for given in (upload, "bogus"):
        name = {"Bucket": "nowhere", "Key": "k", "UploadId": given}
        assert await refused(site, s3.abort_multipart_upload, **name) == (404, "NoSuchBucket")
        assert await refused(site, s3.complete_multipart_upload, **name, MultipartUpload=parts) == (404, "NoSuchBucket")


async def test_what_a_completion_says_of_the_upload_must_be_so(site, s3):
    upload = (await site.call(s3.create_multipart_upload, Bucket="bucket", Key="k"))["UploadId"]
    name = {"Bucket": "bucket", "Key": "k", "UploadId": upload}
    tag = (await site.call(s3.upload_part, **name, PartNumber=1, Body=b"one"))["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    found = await refused(site, s3.complete_multipart_upload, **name, MultipartUpload=parts, MpuObjectSize=4)
    assert found == (400, "InvalidRequest")


async def test_a_part_bears_the_checksum_that_its_upload_was_begun_with(site, s3):
    upload = await site.call(s3.create_multipart_upload, Bucket="bucket", Key="k", ChecksumAlgorithm="SHA256")
    name = {"Bucket": "bucket", "Key": "k", "UploadId": upload["UploadId"], "PartNumber": 1, "Body": b"one"}
    assert await refused(site, s3.upload_part, **name, ChecksumAlgorithm="SHA1") == (400, "InvalidRequest")


async def test_attributes_that_nobody_names_are_an_invalid_request(signer):
    await signer.request("PUT", "/bucket/k", body=b"x")
    for header, code in (("", "InvalidRequest"), (" , ", "InvalidRequest"), ("ETag,Bogus", "InvalidArgument")):
        reply = await signer.request("GET", "/bucket/k", "attributes=", x_amz_object_attributes=header)
        assert (reply.status, reply.code) == (400, code), header


async def test_a_header_of_tags_names_each_once(site, signer):
    reply = await signer.request("PUT", "/bucket/k", body=b"x", x_amz_tagging="a=1&b=2&a=3")
    assert (reply.status, reply.code) == (400, "InvalidArgument")
    assert await site.keys() == []


async def test_a_marker_that_is_no_uploads_is_an_argument_without_sense(site, s3):
    found = await refused(site, s3.list_multipart_uploads, Bucket="bucket", KeyMarker="k", UploadIdMarker="bogus")
    assert found == (400, "InvalidArgument")


@pytest.mark.parametrize("algorithm", ["MD5", "SHA512", "XXHASH3", "XXHASH64", "XXHASH128"])
async def test_a_checksum_that_s3_has_besides_is_told_not_to_be_built(site, signer, algorithm):
    name = f"x-amz-checksum-{algorithm.lower()}"
    for method, query, headers in (
        ("PUT", "", {name: "AAAA"}),
        ("PUT", "", {"x-amz-sdk-checksum-algorithm": algorithm}),
        ("PUT", "", {"x-amz-trailer": name}),
        ("POST", "uploads=", {"x-amz-checksum-algorithm": algorithm}),
    ):
        reply = await signer.request(method, "/bucket/k", query, **headers)
        assert (reply.status, reply.code) == (501, "NotImplemented"), headers
    assert await site.keys() == []


async def test_a_delete_marker_is_no_source_by_its_version_and_an_absent_one_by_its_name(site, signer, s3):
    enabled = {"Status": "Enabled"}
    await site.call(s3.put_bucket_versioning, Bucket="bucket", VersioningConfiguration=enabled)
    await signer.request("PUT", "/bucket/k", body=b"x")
    marker = (await site.call(s3.delete_object, Bucket="bucket", Key="k"))["VersionId"]
    asked = await signer.request("GET", "/bucket/k", f"versionId={marker}")
    assert (asked.status, asked.headers["x-amz-version-id"]) == (405, marker)
    assert asked.headers["last-modified"].endswith("GMT")
    upload = (await site.call(s3.create_multipart_upload, Bucket="bucket", Key="u"))["UploadId"]
    into = {"Bucket": "bucket", "Key": "u", "CopySource": {"Bucket": "bucket", "Key": "k"}}
    part = into | {"UploadId": upload, "PartNumber": 1}
    for method, arguments in ((s3.copy_object, into), (s3.upload_part_copy, part)):
        assert await refused(site, method, **arguments) == (404, "NoSuchKey")
        named = arguments | {"CopySource": arguments["CopySource"] | {"VersionId": marker}}
        assert await refused(site, method, **named) == (400, "InvalidRequest")


# --- listings ---------------------------------------------------------------------------------------------------------


async def test_an_empty_token_begins_at_the_beginning_and_is_repeated(site, signer, s3):
    await signer.request("PUT", "/bucket/k", body=b"x")
    page = await site.call(s3.list_objects_v2, Bucket="bucket", ContinuationToken="")
    assert (page["ContinuationToken"], page["KeyCount"]) == ("", 1)
    assert "ContinuationToken" not in await site.call(s3.list_objects_v2, Bucket="bucket")


async def test_versions_are_listed_with_the_kind_of_their_checksum(site, s3):
    enabled = {"Status": "Enabled"}
    await site.call(s3.put_bucket_versioning, Bucket="bucket", VersioningConfiguration=enabled)
    for algorithm in ("SHA256", "CRC32C"):
        await site.call(s3.put_object, Bucket="bucket", Key="k", Body=b"x", ChecksumAlgorithm=algorithm)
    await site.call(s3.delete_object, Bucket="bucket", Key="k")
    page = await site.call(s3.list_object_versions, Bucket="bucket")
    shown = [(each["ChecksumAlgorithm"], each["ChecksumType"]) for each in page["Versions"]]
    assert shown == [(["CRC32C"], "FULL_OBJECT"), (["SHA256"], "FULL_OBJECT")]
    assert len(page["DeleteMarkers"]) == 1


# --- what is as it is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXED)
async def test_a_configuration_may_be_put_as_it_is_and_not_otherwise(signer, name):
    as_it_is = (await signer.request("GET", "/bucket", f"{name}=")).body
    assert (await signer.request("PUT", "/bucket", f"{name}=", as_it_is)).status == 200
    root = FIXED[name][0].encode()
    reply = await signer.request("PUT", "/bucket", f"{name}=", b"<%b><Other>1</Other></%b>" % (root, root))
    assert (reply.status, reply.code, reply.xml("Feature")) == (501, "NotImplemented", name)
    assert (await signer.request("PUT", "/bucket", f"{name}=", b"<Nonsense/>")).code == "MalformedXML"
    assert (await signer.request("GET", "/bucket", f"{name}=")).body == as_it_is


@pytest.mark.parametrize(
    ("acl", "status", "code"),
    [("private", 200, ""), ("public-read", 501, "NotImplemented"), ("public-ready", 400, "InvalidArgument")],
)
async def test_an_acl_is_known_built_or_neither(signer, acl, status, code):
    reply = await signer.request("PUT", "/bucket/k", body=b"x", x_amz_acl=acl)
    assert (reply.status, reply.code) == (status, code)


async def test_tags_say_which_version_has_them(site, s3):
    await site.call(s3.put_bucket_versioning, Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    version = (await site.call(s3.put_object, Bucket="bucket", Key="k", Body=b"x"))["VersionId"]
    tags = {"TagSet": [{"Key": "a", "Value": "b"}]}
    name = {"Bucket": "bucket", "Key": "k"}
    assert (await site.call(s3.put_object_tagging, **name, Tagging=tags))["VersionId"] == version
    assert (await site.call(s3.get_object_tagging, **name))["VersionId"] == version
    assert (await site.call(s3.delete_object_tagging, **name))["VersionId"] == version
