"""Buckets are shared by policies: with named users and with everybody, and only as far as the policy says."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.s3api.client import Signer, failed
from tests.s3api.conftest import BOB, Site

ARN = "arn:aws:s3:::bucket"


def statement(**changes: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": {"AWS": "bob"}, "Action": "s3:GetObject", "Resource": f"{ARN}/*"} | changes


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


EVERYBODY = statement(Principal="*")


@pytest.fixture
def bob(site: Site) -> Any:
    return site.boto(*BOB)


@pytest.fixture
def nobody(site: Site) -> Any:
    """A client that signs nothing."""
    config = Config(signature_version=UNSIGNED, s3={"addressing_style": "path"}, retries={"max_attempts": 1})
    return boto3.client("s3", endpoint_url=site.url, region_name="us-east-1", config=config)


@pytest.fixture
def share(site: Site, s3: Any) -> Callable[..., Any]:
    """Set the policy of Alice's bucket."""

    async def share(*statements: dict[str, Any]) -> None:
        await site.call(s3.put_bucket_policy, Bucket="bucket", Policy=document(*statements))

    return share


async def code_of(site: Site, method: Callable[..., Any], **arguments: Any) -> str:
    """The error code of a call, or "done"."""
    try:
        await site.call(method, Bucket="bucket", **arguments)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "done"


async def open_to_everybody(site: Site, s3: Any) -> None:
    await site.call(s3.delete_public_access_block, Bucket="bucket")


# --- the document ---------------------------------------------------------------------------------------------------


async def test_a_policy_is_returned_as_it_was_stored_and_can_be_removed(site: Site, s3: Any) -> None:
    with pytest.raises(ClientError) as caught:
        await site.call(s3.get_bucket_policy, Bucket="bucket")
    assert failed(caught) == "NoSuchBucketPolicy"
    text = document(statement())
    await site.call(s3.put_bucket_policy, Bucket="bucket", Policy=text)
    assert (await site.call(s3.get_bucket_policy, Bucket="bucket"))["Policy"] == text
    assert (await site.call(s3.get_bucket_policy_status, Bucket="bucket"))["PolicyStatus"] == {"IsPublic": False}
    for _ in range(2):
        await site.call(s3.delete_bucket_policy, Bucket="bucket")
    assert await code_of(site, s3.get_bucket_policy) == "NoSuchBucketPolicy"
    assert await code_of(site, s3.get_bucket_policy_status) == "NoSuchBucketPolicy"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "Policies must be valid JSON"),
        (document(statement(Principal={"AWS": "carol"})), "no user carol"),
        (document(statement(Resource="arn:aws:s3:::other/*")), "invalid resource"),
        (" " * (21 << 10), "at most 20480 bytes"),
    ],
)
async def test_a_malformed_policy_is_refused_with_the_reason(site: Site, s3: Any, text: str, message: str) -> None:
    with pytest.raises(ClientError) as caught:
        await site.call(s3.put_bucket_policy, Bucket="bucket", Policy=text)
    assert failed(caught) == "MalformedPolicy"
    assert message in caught.value.response["Error"]["Message"]


async def test_public_policies_are_blocked_until_the_block_is_changed(site: Site, s3: Any) -> None:
    block = (await site.call(s3.get_public_access_block, Bucket="bucket"))["PublicAccessBlockConfiguration"]
    assert set(block.values()) == {True}
    assert await code_of(site, s3.put_bucket_policy, Policy=document(EVERYBODY)) == "AccessDenied"
    assert await code_of(site, s3.get_bucket_policy) == "NoSuchBucketPolicy"
    await site.call(
        s3.put_public_access_block, Bucket="bucket", PublicAccessBlockConfiguration={"BlockPublicAcls": True}
    )
    assert await code_of(site, s3.put_bucket_policy, Policy=document(EVERYBODY)) == "done"
    assert (await site.call(s3.get_bucket_policy_status, Bucket="bucket"))["PolicyStatus"] == {"IsPublic": True}
    await site.call(s3.delete_public_access_block, Bucket="bucket")
    assert await code_of(site, s3.get_public_access_block) == "NoSuchPublicAccessBlockConfiguration"


# --- named users ----------------------------------------------------------------------------------------------------


async def test_a_user_may_do_what_the_policy_allows_and_nothing_else(
    site: Site, s3: Any, bob: Any, share: Callable[..., Any]
) -> None:
    await site.store(b"k", b"data")
    assert await code_of(site, bob.get_object, Key="k") == "AccessDenied"
    await share(statement(), statement(Action="s3:ListBucket", Resource=ARN))
    assert (await site.call(bob.get_object, Bucket="bucket", Key="k"))["Body"].read() == b"data"
    assert [each["Key"] for each in (await site.call(bob.list_objects_v2, Bucket="bucket"))["Contents"]] == ["k"]
    assert await code_of(site, bob.head_object, Key="k") == "done"
    for method, arguments in (
        (bob.put_object, {"Key": "new"}),
        (bob.delete_object, {"Key": "k"}),
        (bob.get_object_tagging, {"Key": "k"}),
        (bob.create_multipart_upload, {"Key": "new"}),
        (bob.list_object_versions, {}),
        (bob.get_bucket_policy, {}),
        (bob.delete_bucket, {}),
        (bob.put_bucket_versioning, {"VersioningConfiguration": {"Status": "Enabled"}}),
    ):
        assert await code_of(site, method, **arguments) == "AccessDenied", method
    assert await site.keys() == [b"k"]
    await site.call(s3.delete_bucket_policy, Bucket="bucket")
    assert await code_of(site, bob.get_object, Key="k") == "AccessDenied", "at once"


async def test_a_user_may_write_delete_and_upload_in_parts_where_the_policy_allows_it(
    site: Site, bob: Any, share: Callable[..., Any]
) -> None:
    await share(
        statement(Action=["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"], Resource=f"{ARN}/in/*")
    )
    await site.call(bob.put_object, Bucket="bucket", Key="in/a", Body=b"a")
    assert await code_of(site, bob.put_object, Key="out/a", Body=b"a") == "AccessDenied"
    named = {"Bucket": "bucket", "Key": "in/b"}
    upload = (await site.call(bob.create_multipart_upload, **named))["UploadId"]
    part = await site.call(bob.upload_part, **named, UploadId=upload, PartNumber=1, Body=b"b")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    await site.call(bob.complete_multipart_upload, **named, UploadId=upload, MultipartUpload=parts)
    assert await site.keys() == [b"in/a", b"in/b"]
    assert await code_of(site, bob.put_object, Key="in/t", Tagging="a=b") == "AccessDenied", "tags need a permission"
    await site.call(bob.delete_object, Bucket="bucket", Key="in/a")
    assert await site.keys() == [b"in/b"]


async def test_each_key_of_delete_objects_is_checked(site: Site, bob: Any, share: Callable[..., Any]) -> None:
    for key in (b"in/a", b"in/b", b"out/a"):
        await site.store(key, b"data")
    everything = {"Objects": [{"Key": "out/a"}, {"Key": "in/a"}, {"Key": "in/b"}]}
    assert await code_of(site, bob.delete_objects, Delete=everything) == "AccessDenied"
    await share(
        statement(Action="s3:DeleteObject", Resource=f"{ARN}/in/*"),
        statement(Effect="Deny", Action="s3:DeleteObject", Resource=f"{ARN}/in/b"),
    )
    found = await site.call(bob.delete_objects, Bucket="bucket", Delete=everything)
    assert [each["Key"] for each in found["Deleted"]] == ["in/a"]
    assert {each["Key"]: each["Code"] for each in found["Errors"]} == dict.fromkeys(["out/a", "in/b"], "AccessDenied")
    assert await site.keys() == [b"in/b", b"out/a"]


async def test_a_copy_needs_permissions_on_its_source_and_its_target(
    site: Site, s3: Any, bob: Any, share: Callable[..., Any]
) -> None:
    await site.store(b"k", b"data")
    await site.call(bob.create_bucket, Bucket="bobs")
    source = {"Bucket": "bucket", "Key": "k"}
    into = {"Bucket": "bobs", "Key": "copy", "CopySource": source}

    async def copies(**target: Any) -> str:
        try:
            await site.call(bob.copy_object, **{**into, **target})
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "done"

    assert await copies() == "AccessDenied"
    await share(statement(Action="s3:PutObject"))
    assert await copies() == await copies(Bucket="bucket") == "AccessDenied", "the source may not be read"
    await share(statement())
    assert await copies() == "AccessDenied", "its tags may not be read"
    assert await copies(TaggingDirective="REPLACE") == "done"
    await share(statement(Action=["s3:GetObject", "s3:GetObjectTagging"]))
    assert await copies() == "done"
    assert await copies(Bucket="bucket") == "AccessDenied", "the target may not be written"
    await share(statement(Action=["s3:GetObject", "s3:GetObjectTagging", "s3:PutObject"]))
    assert await copies(Bucket="bucket") == "done"


async def test_versions_need_permissions_of_their_own(site: Site, s3: Any, bob: Any, share: Callable[..., Any]) -> None:
    await site.call(s3.put_bucket_versioning, Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    version = (await site.call(s3.put_object, Bucket="bucket", Key="k", Body=b"1"))["VersionId"]
    await share(statement())
    assert await code_of(site, bob.get_object, Key="k") == "done"
    assert await code_of(site, bob.get_object, Key="k", VersionId=version) == "AccessDenied"
    await share(statement(Action="s3:GetObjectVersion"))
    assert await code_of(site, bob.get_object, Key="k", VersionId=version) == "done"
    assert await code_of(site, bob.get_object, Key="k") == "AccessDenied"


async def test_who_may_not_list_a_bucket_does_not_learn_which_keys_exist(
    site: Site, bob: Any, share: Callable[..., Any]
) -> None:
    await share(statement())
    assert await code_of(site, bob.get_object, Key="missing") == "AccessDenied"
    assert await code_of(site, bob.head_object, Key="missing") == "403"
    await share(statement(), statement(Action="s3:ListBucket", Resource=ARN))
    assert await code_of(site, bob.get_object, Key="missing") == "NoSuchKey"


# --- denials and conditions -----------------------------------------------------------------------------------------


async def test_a_denial_holds_for_the_owner_who_can_still_replace_the_policy(
    site: Site, s3: Any, share: Callable[..., Any]
) -> None:
    await site.store(b"k", b"data")
    await share(statement(Effect="Deny", Principal="*", Action="s3:*", Resource=[ARN, f"{ARN}/*"]))
    for method, arguments in ((s3.get_object, {"Key": "k"}), (s3.list_objects_v2, {}), (s3.delete_bucket, {})):
        assert await code_of(site, method, **arguments) == "AccessDenied"
    assert await code_of(site, s3.get_bucket_policy) == "done"
    assert await code_of(site, s3.delete_bucket_policy) == "done"
    assert await code_of(site, s3.get_object, Key="k") == "done"


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        ({"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}, True),
        ({"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, False),
        ({"Bool": {"aws:SecureTransport": "true"}}, False),
        ({"StringEquals": {"aws:username": "bob"}}, True),
        ({"StringLike": {"aws:UserAgent": "*Boto3/*"}}, True),
        ({"DateLessThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}}, False),
        ({"DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}}, True),
        ({"StringEquals": {"s3:signatureversion": "AWS4-HMAC-SHA256", "s3:authType": "REST-HEADER"}}, True),
        ({"Null": {"s3:x-amz-storage-class": "true"}}, True),
        ({"StringEquals": {"s3:ExistingObjectTag/stage": "done"}}, True),
        ({"StringEquals": {"s3:ExistingObjectTag/stage": "new"}}, False),
    ],
)
async def test_conditions_are_those_of_the_request(
    site: Site, s3: Any, bob: Any, share: Callable[..., Any], condition: dict[str, Any], allowed: bool
) -> None:
    await site.call(s3.put_object, Bucket="bucket", Key="k", Body=b"1", Tagging="stage=done")
    await share(statement(Condition=condition))
    assert await code_of(site, bob.get_object, Key="k") == ("done" if allowed else "AccessDenied")


async def test_a_listing_can_be_limited_to_a_prefix(site: Site, bob: Any, share: Callable[..., Any]) -> None:
    await share(
        statement(
            Action="s3:ListBucket", Resource=ARN, Condition={"StringLike": {"s3:prefix": "home/${aws:username}/*"}}
        )
    )
    assert await code_of(site, bob.list_objects_v2, Prefix="home/bob/x") == "done"
    assert await code_of(site, bob.list_objects_v2, Prefix="home/alice/x") == "AccessDenied"
    assert await code_of(site, bob.list_objects_v2) == "AccessDenied"


# --- anonymous requests ---------------------------------------------------------------------------------------------


async def test_everybody_may_read_a_public_bucket_without_a_signature(
    site: Site, s3: Any, nobody: Any, share: Callable[..., Any]
) -> None:
    await site.store(b"k", b"data")
    assert await code_of(site, nobody.get_object, Key="k") == "AccessDenied"
    await open_to_everybody(site, s3)
    await share(EVERYBODY)
    assert (await site.call(nobody.get_object, Bucket="bucket", Key="k"))["Body"].read() == b"data"
    for method, arguments in (
        (nobody.put_object, {"Key": "new"}),
        (nobody.list_objects_v2, {}),
        (nobody.delete_object, {"Key": "k"}),
        (nobody.delete_objects, {"Delete": {"Objects": [{"Key": "k"}]}}),
        (nobody.get_bucket_policy, {}),
        (nobody.create_bucket, {}),
    ):
        assert await code_of(site, method, **arguments) == "AccessDenied", method
    with pytest.raises(ClientError) as caught:
        await site.call(nobody.list_buckets)
    assert failed(caught) == "AccessDenied"


async def test_restrict_public_buckets_ends_anonymous_access_at_once(
    site: Site, s3: Any, bob: Any, nobody: Any, share: Callable[..., Any]
) -> None:
    await site.store(b"k", b"data")
    await open_to_everybody(site, s3)
    await share(EVERYBODY)
    block = {"RestrictPublicBuckets": True}
    await site.call(s3.put_public_access_block, Bucket="bucket", PublicAccessBlockConfiguration=block)
    assert await code_of(site, nobody.get_object, Key="k") == "AccessDenied"
    assert await code_of(site, bob.get_object, Key="k") == "done", "users of the site are not the public"


async def test_an_anonymous_upload_is_stored_where_the_policy_allows_it(
    site: Site, s3: Any, nobody: Any, share: Callable[..., Any]
) -> None:
    await open_to_everybody(site, s3)
    await share(statement(Principal="*", Action="s3:PutObject", Resource=f"{ARN}/in/*"))
    await site.call(nobody.put_object, Bucket="bucket", Key="in/a", Body=b"a")
    assert await code_of(site, nobody.put_object, Key="out", Body=b"a") == "AccessDenied"
    assert (await site.call(s3.get_object, Bucket="bucket", Key="in/a"))["Body"].read() == b"a"


async def test_an_anonymous_copy_does_not_tell_which_buckets_exist(
    site: Site, s3: Any, nobody: Any, share: Callable[..., Any]
) -> None:
    await open_to_everybody(site, s3)
    await share(statement(Principal="*", Action="s3:PutObject"))
    await site.call(s3.create_bucket, Bucket="secret")
    for source in ("secret", "nowhere"):
        assert await code_of(site, nobody.copy_object, Key="copy", CopySource=f"{source}/k") == "AccessDenied"


async def test_refusals_and_listings_tell_anonymous_clients_neither_buckets_nor_users(
    site: Site, s3: Any, signer: Signer, nobody: Any, share: Callable[..., Any]
) -> None:
    async def unsigned(method: str, path: str) -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        reply = await signer.send(head.encode())
        return reply.status, re.sub(rb"<(RequestId|HostId|Resource)>[^<]*<", b"", reply.body)

    await open_to_everybody(site, s3)
    await share(statement(Effect="Deny", Principal="*", Action="s3:GetObject"))
    for method in ("GET", "PUT", "DELETE"):
        assert await unsigned(method, "/bucket/k") == await unsigned(method, "/nowhere/k")
    assert await unsigned("GET", "/bucket") == await unsigned("GET", "/nowhere")
    await share(statement(Principal="*", Action="s3:ListBucket", Resource=ARN))
    await site.store(b"k", b"data")
    assert b"alice" not in (await unsigned("GET", "/bucket"))[1]


async def test_files_are_never_served_without_a_signature(site: Site, signer: Signer) -> None:
    reply = await signer.send(
        b"POST /.entrepot/x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n"
        b"x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n\r\n"
    )
    assert reply.status == 403


async def test_a_request_with_a_wrong_signature_is_not_anonymous(
    site: Site, s3: Any, share: Callable[..., Any]
) -> None:
    await site.store(b"k", b"data")
    await open_to_everybody(site, s3)
    await share(EVERYBODY)
    stranger = site.boto("AKALICE", "wrong")
    assert await code_of(site, stranger.get_object, Key="k") == "SignatureDoesNotMatch"


# --- tags and versions in conditions --------------------------------------------------------------------------------


async def test_conditions_on_stored_tags_hold_however_the_tags_are_stored(
    site: Site, bob: Any, share: Callable[..., Any]
) -> None:
    """In a header, in the body of PutObjectTagging, and copied from an object of the caller's own."""
    await site.store(b"k", b"data")
    await site.call(bob.create_bucket, Bucket="bobs")
    await site.call(bob.put_object, Bucket="bobs", Key="marked", Tagging="public=yes")
    await site.call(bob.put_object, Bucket="bobs", Key="plain", Tagging="public=no")
    await share(
        statement(Action=["s3:PutObject", "s3:PutObjectTagging"]),
        statement(
            Effect="Deny",
            Action="s3:PutObjectTagging",
            Condition={"StringEquals": {"s3:RequestObjectTag/public": "yes"}},
        ),
    )
    for value, outcome in (("yes", "AccessDenied"), ("no", "done")):
        tags = {"TagSet": [{"Key": "public", "Value": value}]}
        source = "bobs/marked" if value == "yes" else "bobs/plain"
        assert await code_of(site, bob.put_object, Key="new", Tagging=f"public={value}") == outcome
        assert await code_of(site, bob.put_object_tagging, Key="k", Tagging=tags) == outcome
        assert await code_of(site, bob.copy_object, Key="copy", CopySource=source) == outcome
    replaced = {"CopySource": "bobs/marked", "TaggingDirective": "REPLACE", "Tagging": "public=no"}
    assert await code_of(site, bob.copy_object, Key="copy", **replaced) == "done"


async def test_a_copy_of_an_object_with_tags_needs_the_permission_to_store_tags(
    site: Site, bob: Any, share: Callable[..., Any]
) -> None:
    await site.call(bob.create_bucket, Bucket="bobs")
    await site.call(bob.put_object, Bucket="bobs", Key="tagged", Tagging="a=b")
    await site.call(bob.put_object, Bucket="bobs", Key="plain")
    await share(statement(Action="s3:PutObject"))
    assert await code_of(site, bob.copy_object, Key="copy", CopySource="bobs/plain") == "done"
    assert await code_of(site, bob.copy_object, Key="copy", CopySource="bobs/tagged") == "AccessDenied"


async def test_a_condition_on_a_version_is_about_the_version_that_is_used(
    site: Site, s3: Any, bob: Any, share: Callable[..., Any]
) -> None:
    await site.call(s3.put_bucket_versioning, Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    kept, other = [
        (await site.call(s3.put_object, Bucket="bucket", Key="k", Body=body))["VersionId"] for body in (b"1", b"2")
    ]
    condition = {"StringEquals": {"s3:VersionId": kept}}
    reading = ["s3:GetObjectVersion", "s3:GetObjectVersionTagging"]
    await share(
        statement(Action=["s3:DeleteObjectVersion", *reading, "s3:PutObject"]),
        statement(Effect="Deny", Action=["s3:DeleteObjectVersion", *reading], Condition=condition),
    )
    for version, outcome in ((kept, "AccessDenied"), (other, "done")):
        source = {"Bucket": "bucket", "Key": "k", "VersionId": version}
        assert await code_of(site, bob.copy_object, Key="copy", CopySource=source) == outcome
    objects = [{"Key": "k", "VersionId": version} for version in (kept, other)]
    found = await site.call(bob.delete_objects, Bucket="bucket", Delete={"Objects": objects})
    assert [each["VersionId"] for each in found["Deleted"]] == [other]
    assert [each["VersionId"] for each in found["Errors"]] == [kept]


# --- while a request is under way -----------------------------------------------------------------------------------


async def slow_put(site: Site) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Begin an anonymous upload of ten bytes, and send half of them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(b"PUT /bucket/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nConnection: close\r\n\r\n12345")
    await writer.drain()
    while site.server.in_flight == 0:
        await asyncio.sleep(0)
    return reader, writer


async def test_a_grant_does_not_hold_in_another_owners_bucket_of_the_same_name(
    site: Site, s3: Any, bob: Any, share: Callable[..., Any]
) -> None:
    await open_to_everybody(site, s3)
    await share(statement(Principal="*", Action="s3:PutObject"))
    reader, writer = await slow_put(site)
    await site.call(s3.delete_bucket, Bucket="bucket")
    await site.call(bob.create_bucket, Bucket="bucket")
    writer.write(b"67890")
    assert (await reader.read()).startswith(b"HTTP/1.1 403")
    writer.close()
    assert "Contents" not in await site.call(bob.list_objects_v2, Bucket="bucket")


async def test_what_a_guest_stores_belongs_to_the_owner_of_the_bucket(
    site: Site, s3: Any, nobody: Any, share: Callable[..., Any]
) -> None:
    await open_to_everybody(site, s3)
    await share(statement(Principal="*", Action="s3:PutObject"))
    await site.call(nobody.put_object, Bucket="bucket", Key="k", Body=b"a")
    (found,) = (await site.call(s3.list_objects_v2, Bucket="bucket", FetchOwner=True))["Contents"]
    assert found["Owner"]["DisplayName"] == "alice"


async def test_a_prefix_may_contain_the_name_of_an_override(site: Site, s3: Any, nobody: Any, share: Any) -> None:
    await open_to_everybody(site, s3)
    await share(statement(Principal="*", Action="s3:ListBucket", Resource=ARN), EVERYBODY)
    assert await code_of(site, nobody.list_objects_v2, Prefix="response-") == "done"
    await site.store(b"k", b"data")
    assert await code_of(site, nobody.get_object, Key="k", ResponseContentType="text/html") == "InvalidRequest"
