"""Operations beyond plain objects, as an SDK and as a bare client see them."""

from __future__ import annotations

import asyncio
import base64
import hashlib

import pytest
from botocore.exceptions import ClientError

from s3api.ops.subresources import ABSENT, FIXED, LISTS, REMOVABLE
from tests.s3api.client import Signer, encode, failed

# --- who asks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("access_key", "secret", "code"),
    [
        ("AKALICE", "wrong", "SignatureDoesNotMatch"),
        ("AKNOBODY", "alice-secret", "InvalidAccessKeyId"),
        ("AKBOB", "bob-secret", "AccessDenied"),
    ],
)
async def test_only_the_owner_gets_in(site, signer, access_key, secret, code):
    reply = await Signer(site, access_key, secret).request("GET", "/bucket", "list-type=2")
    assert (reply.status, reply.code) == (403, code)


async def test_nobody_is_denied(signer):
    for method, path in (
        ("GET", "/"),
        ("GET", "/bucket"),
        ("PUT", "/bucket/k"),
        ("DELETE", "/bucket"),
        ("POST", "/bucket/k?uploads="),
        ("GET", "/bucket?policy="),
        ("GET", "/no-such"),
    ):
        reply = await signer.send(encode(method, path, {"host": "x", "content-length": "0"}))
        assert (reply.status, reply.code) == (403, "AccessDenied")


async def test_a_presigned_address_works_until_it_expires(site, signer, clock):
    await signer.request("PUT", "/bucket/k", body=b"12345")
    target = signer.presigned("GET", "/bucket/k", **{"response-content-type": "text/x", "versionId": "null"})
    reply = await signer.follow("GET", target)
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"12345", "text/x")
    old = signer.presigned("GET", "/bucket/k", expires=1)
    clock.ahead_seconds = 10.0
    reply = await signer.follow("GET", old)
    assert (reply.status, reply.code) == (403, "AccessDenied")


async def test_an_override_cannot_add_a_header(signer):
    await signer.request("PUT", "/bucket/k", body=b"x")
    reply = await signer.request("GET", "/bucket/k", "response-content-type=a%0D%0AX-Evil%3A1")
    assert (reply.status, reply.code) == (400, "InvalidArgument")


# --- what is not built ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"x-amz-acl": "public-read"},
        {"x-amz-grant-read": "id=1"},
        {"x-amz-storage-class": "GLACIER"},
        {"x-amz-server-side-encryption": "aws:kms"},
        {"x-amz-server-side-encryption-customer-algorithm": "AES256"},
        {"x-amz-object-lock-mode": "GOVERNANCE"},
        {"x-amz-website-redirect-location": "/"},
        {"x-amz-write-offset-bytes": "5"},
    ],
)
async def test_what_is_not_built_says_so(site, signer, headers):
    reply = await signer.request("PUT", "/bucket/k", body=b"x", **headers)
    assert (reply.status, reply.code) == (501, "NotImplemented")
    assert await site.keys() == []


async def test_what_means_as_it_is_anyway_is_accepted(signer):
    usual = {
        "x-amz-acl": "private", "x-amz-storage-class": "STANDARD", "x-amz-server-side-encryption": "AES256",
        "x-amz-object-lock-legal-hold": "OFF", "x-amz-request-payer": "requester",
        "x-amz-bypass-governance-retention": "true",
    }  # fmt: skip
    assert (await signer.request("PUT", "/bucket/k", body=b"x", **usual)).status == 200


async def test_an_acl_without_a_value_is_none(signer):
    assert (await signer.request("PUT", "/bucket/k", body=b"x", **{"x-amz-acl": ""})).status == 200
    assert (await signer.request("POST", "/bucket/k", "uploads=", **{"x-amz-acl": ""})).status == 200
    reply = await signer.request("PUT", "/bucket/k", "acl=", **{"x-amz-acl": ""})
    assert (reply.status, reply.code) == (400, "MissingSecurityHeader")


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("PUT", "/bucket", "lifecycle"), ("PUT", "/bucket", "website"), ("PUT", "/bucket", "replication"),
        ("GET", "/bucket/k", "torrent"), ("POST", "/bucket/k", "restore"), ("POST", "/bucket/k", "select"),
        ("PUT", "/bucket/k", "retention"), ("PUT", "/bucket/k", "renameObject"),
        ("PUT", "/bucket", "metadataTable"), ("DELETE", "/bucket", "ownershipControls"),
    ],
)  # fmt: skip
async def test_an_operation_that_is_not_built_names_itself(signer, method, path, query):
    await signer.request("PUT", "/bucket/k", body=b"x")
    reply = await signer.request(method, path, f"{query}=")
    assert (reply.status, reply.code, reply.xml("Feature")) == (501, "NotImplemented", query)
    assert (await signer.request("GET", "/bucket/k")).body == b"x"


async def test_a_method_without_sense_is_a_405(signer):
    assert (await signer.request("DELETE", "/")).status == 405
    assert (await signer.request("PATCH", "/bucket/k")).status == 405


async def test_a_headers_feature_is_refused_whatever_the_method(signer):
    for method in ("GET", "HEAD", "DELETE", "PUT"):
        reply = await signer.request(method, "/bucket/k", x_amz_mfa="device 123456")
        assert reply.status == 501


# --- a fresh bucket ---------------------------------------------------------------------------------------------------


async def test_a_fresh_bucket_says_what_s3_says(signer):
    for name, code in ABSENT.items():
        reply = await signer.request("GET", "/bucket", f"{name}=")
        assert (reply.status, reply.code) == (404, code), name
    for name, (document, _) in FIXED.items():
        reply = await signer.request("GET", "/bucket", f"{name}=")
        assert reply.status == 200
        assert document.encode() in reply.body
    for name in LISTS:
        assert (await signer.request("GET", "/bucket", f"{name}=")).xml("IsTruncated") == "false"
        assert (await signer.request("GET", "/bucket", f"{name}=&id=1")).status == 404
    for name in REMOVABLE:
        assert (await signer.request("DELETE", "/bucket", f"{name}=")).status == 204
    for name in (*ABSENT, *FIXED, *LISTS, "acl", "encryption", "location", "versioning"):
        assert (await signer.request("GET", "/absent", f"{name}=")).code == "NoSuchBucket", name


async def test_acls_are_the_owners(s3, site):
    acl = await site.call(s3.get_bucket_acl, Bucket="bucket")
    (grant,) = acl["Grants"]
    assert grant["Grantee"]["ID"] == acl["Owner"]["ID"]
    assert grant["Permission"] == "FULL_CONTROL"
    await site.call(s3.put_bucket_acl, Bucket="bucket", ACL="private")
    await site.call(s3.put_bucket_acl, Bucket="bucket", AccessControlPolicy={k: acl[k] for k in ("Grants", "Owner")})
    with pytest.raises(ClientError) as caught:
        await site.call(s3.put_bucket_acl, Bucket="bucket", ACL="public-read")
    assert failed(caught) == "NotImplemented"
    await site.call(s3.put_object, Bucket="bucket", Key="k")
    assert (await site.call(s3.get_object_acl, Bucket="bucket", Key="k"))["Owner"] == acl["Owner"]


async def test_encryption_is_what_it_is(s3, site):
    rules = await site.call(s3.get_bucket_encryption, Bucket="bucket")
    config = rules["ServerSideEncryptionConfiguration"]
    assert config["Rules"][0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    await site.call(s3.put_bucket_encryption, Bucket="bucket", ServerSideEncryptionConfiguration=config)


async def test_buckets_are_made_found_and_removed(s3, site):
    await site.call(s3.create_bucket, Bucket="bucket")  # ours already: fine in us-east-1
    other = site.boto("AKBOB", "bob-secret")
    with pytest.raises(ClientError) as caught:
        await site.call(other.create_bucket, Bucket="bucket")
    assert failed(caught) == "BucketAlreadyExists"
    with pytest.raises(ClientError) as caught:
        await site.call(s3.create_bucket, Bucket="192.168.0.1")
    assert failed(caught) == "InvalidBucketName"
    for n in range(5):
        await site.call(s3.create_bucket, Bucket=f"more-{n}")
    first = await site.call(s3.list_buckets, Prefix="more-", MaxBuckets=3)
    rest = await site.call(s3.list_buckets, Prefix="more-", ContinuationToken=first["ContinuationToken"])
    assert [each["Name"] for page in (first, rest) for each in page["Buckets"]] == [f"more-{n}" for n in range(5)]
    assert (await site.call(s3.get_bucket_location, Bucket="bucket"))["LocationConstraint"] is None
    for asked, code in (
        ("eu-west-1", "IllegalLocationConstraintException"),
        ("us-gov-west-1", "IllegalLocationConstraintException"),
        ("nowhere", "InvalidLocationConstraint"),
    ):
        with pytest.raises(ClientError) as caught:
            await site.call(s3.create_bucket, Bucket="far", CreateBucketConfiguration={"LocationConstraint": asked})
        assert failed(caught) == code
    await site.call(s3.put_object, Bucket="more-1", Key="k")
    with pytest.raises(ClientError) as caught:
        await site.call(s3.delete_bucket, Bucket="more-1")
    assert failed(caught) == "BucketNotEmpty"
    await site.call(s3.delete_bucket, Bucket="more-2")
    with pytest.raises(ClientError) as caught:
        await site.call(s3.head_bucket, Bucket="more-2")
    assert failed(caught) == "404"


# --- versions ---------------------------------------------------------------------------------------------------------


async def test_versions_are_kept_listed_and_removed(s3, site):
    assert "Status" not in await site.call(s3.get_bucket_versioning, Bucket="bucket")
    await site.call(s3.put_bucket_versioning, Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    assert (await site.call(s3.get_bucket_versioning, Bucket="bucket"))["Status"] == "Enabled"
    ids = [(await site.call(s3.put_object, Bucket="bucket", Key="k", Body=body))["VersionId"] for body in (b"1", b"2")]
    gone = await site.call(s3.delete_object, Bucket="bucket", Key="k")
    assert gone["DeleteMarker"]
    with pytest.raises(ClientError) as caught:
        await site.call(s3.get_object, Bucket="bucket", Key="k")
    assert failed(caught) == "NoSuchKey"
    assert caught.value.response["ResponseMetadata"]["HTTPHeaders"]["x-amz-delete-marker"] == "true"
    with pytest.raises(ClientError) as caught:
        await site.call(s3.get_object, Bucket="bucket", Key="k", VersionId=gone["VersionId"])
    assert failed(caught) == "MethodNotAllowed"
    first = await site.call(s3.get_object, Bucket="bucket", Key="k", VersionId=ids[0])
    assert await asyncio.to_thread(first["Body"].read) == b"1"
    page = await site.call(s3.list_object_versions, Bucket="bucket", MaxKeys=2)
    assert page["IsTruncated"]
    rest = await site.call(
        s3.list_object_versions, Bucket="bucket", KeyMarker=page["NextKeyMarker"],
        VersionIdMarker=page["NextVersionIdMarker"],
    )  # fmt: skip
    listed = [each["VersionId"] for each in page["Versions"] + rest["Versions"]]
    assert listed == ids[::-1]
    assert [each["VersionId"] for each in page["DeleteMarkers"]] == [gone["VersionId"]]
    await site.call(s3.delete_object, Bucket="bucket", Key="k", VersionId=gone["VersionId"])
    assert (await site.call(s3.head_object, Bucket="bucket", Key="k"))["VersionId"] == ids[1]
    with pytest.raises(ClientError) as caught:
        await site.call(s3.get_object, Bucket="bucket", Key="k", VersionId="nonsense")
    assert failed(caught) == "InvalidArgument"
    with pytest.raises(ClientError) as caught:
        await site.call(s3.get_object, Bucket="bucket", Key="k", VersionId=gone["VersionId"])
    assert failed(caught) == "NoSuchVersion"


# --- copies, deletes, tags --------------------------------------------------------------------------------------------


async def test_a_copy_keeps_or_replaces_what_it_is_told_to(s3, site):
    source = {"Bucket": "bucket", "Key": "a b+ü"}
    await site.call(s3.put_object, **source, Body=b"x", Metadata={"m": "1"}, Tagging="t=1", ContentType="text/x")
    await site.call(s3.copy_object, Bucket="bucket", Key="copy", CopySource=source)
    kept = await site.call(s3.head_object, Bucket="bucket", Key="copy")
    assert (kept["Metadata"], kept["ContentType"], kept["TagCount"]) == ({"m": "1"}, "text/x", 1)
    await site.call(
        s3.copy_object, Bucket="bucket", Key="copy", CopySource=source, MetadataDirective="REPLACE",
        Metadata={"n": "2"}, TaggingDirective="REPLACE", Tagging="",
    )  # fmt: skip
    replaced = await site.call(s3.head_object, Bucket="bucket", Key="copy")
    assert (replaced["Metadata"], replaced["ContentType"]) == ({"n": "2"}, "binary/octet-stream")
    assert "TagCount" not in replaced
    with pytest.raises(ClientError) as caught:
        await site.call(s3.copy_object, **source, CopySource=source)
    assert failed(caught) == "InvalidRequest"
    with pytest.raises(ClientError) as caught:
        await site.call(s3.copy_object, Bucket="bucket", Key="c", CopySource=source, CopySourceIfNoneMatch="*")
    assert failed(caught) == "PreconditionFailed"


async def test_a_thousand_keys_are_deleted_at_once(s3, site):
    keys = [f"k{n}<&" for n in range(1000)]
    for key in keys[:50]:
        await site.call(s3.put_object, Bucket="bucket", Key=key)
    wanted = [{"Key": key} for key in keys]
    answer = await site.call(s3.delete_objects, Bucket="bucket", Delete={"Objects": wanted[:10]})
    assert [each["Key"] for each in answer["Deleted"]] == keys[:10]
    answer = await site.call(s3.delete_objects, Bucket="bucket", Delete={"Objects": wanted, "Quiet": True})
    assert "Deleted" not in answer
    assert "Errors" not in answer
    assert await site.keys() == []
    with pytest.raises(ClientError) as caught:
        await site.call(s3.delete_objects, Bucket="bucket", Delete={"Objects": [*wanted, {"Key": "k"}]})
    assert failed(caught) == "MalformedXML"


async def test_deleting_many_needs_a_digest(signer):
    body = b"<Delete><Object><Key>k</Key></Object></Delete>"
    assert (await signer.request("POST", "/bucket", "delete=", body)).code == "InvalidRequest"
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    assert (await signer.request("POST", "/bucket", "delete=", body, content_md5=md5)).status == 200
    wrong = base64.b64encode(hashlib.md5(b"").digest()).decode()
    assert (await signer.request("POST", "/bucket", "delete=", body, content_md5=wrong)).code == "BadDigest"


async def test_one_key_that_fails_does_not_stop_the_others(s3, site):
    for key in "ab":
        await site.call(s3.put_object, Bucket="bucket", Key=key, Body=b"x")
    wanted = [{"Key": "a", "ETag": '"other"'}, {"Key": "b"}]
    answer = await site.call(s3.delete_objects, Bucket="bucket", Delete={"Objects": wanted})
    assert [(each["Key"], each["Code"]) for each in answer["Errors"]] == [("a", "PreconditionFailed")]
    assert [each["Key"] for each in answer["Deleted"]] == ["b"]


async def test_tags_are_put_got_and_removed(s3, site):
    at = {"Bucket": "bucket", "Key": "k"}
    await site.call(s3.put_object, **at)
    tags = [{"Key": "a", "Value": "1 + 2"}, {"Key": "ü", "Value": ""}]
    await site.call(s3.put_object_tagging, **at, Tagging={"TagSet": tags})
    assert (await site.call(s3.get_object_tagging, **at))["TagSet"] == tags
    with pytest.raises(ClientError) as caught:
        await site.call(s3.put_object_tagging, **at, Tagging={"TagSet": [tags[0], tags[0]]})
    assert failed(caught) == "InvalidTag"
    await site.call(s3.delete_object_tagging, **at)
    assert (await site.call(s3.get_object_tagging, **at))["TagSet"] == []


# --- listings ---------------------------------------------------------------------------------------------------------


async def test_no_key_at_most_is_an_empty_page(signer):
    await signer.request("PUT", "/bucket/k")
    reply = await signer.request("GET", "/bucket", "list-type=2&max-keys=0")
    assert (reply.xml("KeyCount"), reply.xml("IsTruncated")) == ("0", "false")


@pytest.mark.parametrize("query", ["max-keys=x", "max-keys=-1", "encoding-type=base64", "max-keys=99999999999"])
async def test_a_listing_parameter_without_sense_is_refused(signer, query):
    reply = await signer.request("GET", "/bucket", f"list-type=2&{query}")
    assert (reply.status, reply.code) == (400, "InvalidArgument")


async def test_a_token_of_another_bucket_is_refused(signer):
    await signer.request("PUT", "/other-bucket")
    for n in range(2):
        await signer.request("PUT", f"/bucket/{n}")
    token = (await signer.request("GET", "/bucket", "list-type=2&max-keys=1")).xml("NextContinuationToken")
    same = await signer.request("GET", "/bucket", f"continuation-token={token}&list-type=2")
    assert same.xml("Contents/Key") == "1"
    other = await signer.request("GET", "/other-bucket", f"continuation-token={token}&list-type=2")
    assert (other.status, other.code) == (400, "InvalidArgument")


async def test_start_after_and_owner_are_heeded(signer):
    for key in "abc":
        await signer.request("PUT", f"/bucket/{key}")
    reply = await signer.request("GET", "/bucket", "fetch-owner=true&list-type=2&start-after=a")
    assert reply.xml("Contents/Key") == "b"
    assert reply.xml("StartAfter") == "a"
    assert len(reply.xml("Contents/Owner/ID")) == 64
