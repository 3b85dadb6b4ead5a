"""minio: MinIO's own SDK for Python, with a signer, chunking and XML of its own."""

import hashlib
import io
import urllib.request
from datetime import timedelta

import pytest
from minio import Minio
from minio.commonconfig import ENABLED, ComposeSource, CopySource, Tags
from minio.deleteobjects import DeleteObject
from minio.error import S3Error
from minio.versioningconfig import VersioningConfig

from tests.clients.conftest import MIB
from tests.clients.odd_keys import odd_keys

CANNOT = dict.fromkeys(("dots", "dots alone"), "the client refuses `.` and `..` between slashes")


@pytest.fixture
def client(endpoint):
    return Minio(
        endpoint=endpoint.url.removeprefix("http://"),
        access_key=endpoint.access_key,
        secret_key=endpoint.secret_key,
        secure=False,
    )


def put(client, bucket, name, data: bytes, **options) -> None:
    client.put_object(bucket_name=bucket, object_name=name, data=io.BytesIO(data), length=len(data), **options)


def got(client, bucket, name, **options) -> bytes:
    answer = client.get_object(bucket_name=bucket, object_name=name, **options)
    try:
        return answer.read()
    finally:
        answer.close()
        answer.release_conn()


@pytest.mark.parametrize("known", [True, False], ids=["of a known length", "of an unknown length"])
def test_an_object_comes_back_as_it_went(client, bucket, payload, known):
    with payload.path.open("rb") as file:
        client.put_object(
            bucket_name=bucket,
            object_name="k",
            data=file,
            length=payload.size if known else -1,
            part_size=16 * MIB,
        )
    assert client.stat_object(bucket_name=bucket, object_name="k").size == payload.size
    assert hashlib.sha256(got(client, bucket, "k")).hexdigest() == payload.sha256


def test_odd_keys_are_put_got_listed_copied_and_deleted(client, bucket):
    keys = list(odd_keys(CANNOT).values())
    for key in keys:
        put(client, bucket, key, key.encode())
        assert got(client, bucket, key) == key.encode()
    for older in (False, True):
        listed = client.list_objects(bucket_name=bucket, recursive=True, use_api_v1=older)
        assert [each.object_name for each in listed] == sorted(keys, key=str.encode)
    for key in keys:
        source = CopySource(bucket_name=bucket, object_name=key)
        client.copy_object(bucket_name=bucket, object_name="copy", source=source)
        assert got(client, bucket, "copy") == key.encode()
    going = [DeleteObject(name=key) for key in [*keys, "copy"]]
    assert list(client.remove_objects(bucket_name=bucket, delete_object_list=going)) == []
    assert list(client.list_objects(bucket_name=bucket, recursive=True)) == []


def test_folders_are_rolled_up_and_ranges_are_those_bytes(client, bucket):
    for key in ("a/1", "a/2", "b/1", "top"):
        put(client, bucket, key, b"0123456789")
    listed = [(each.object_name, each.is_dir) for each in client.list_objects(bucket_name=bucket)]
    assert sorted(listed) == [("a/", True), ("b/", True), ("top", False)]
    behind = client.list_objects(bucket_name=bucket, recursive=True, start_after="a/2")
    assert [each.object_name for each in behind] == ["b/1", "top"]
    assert got(client, bucket, "top", offset=3, length=4) == b"3456"


def test_an_object_is_composed_of_others(client, bucket, payloads):
    head = payloads["just over a part"].read()
    put(client, bucket, "head", head)
    put(client, bucket, "the tail +", b"tail")
    sources = [ComposeSource(bucket_name=bucket, object_name=name) for name in ("head", "the tail +")]
    client.compose_object(bucket_name=bucket, object_name="whole", sources=sources)
    assert got(client, bucket, "whole") == head + b"tail"


def test_tags_are_set_and_removed(client, bucket):
    put(client, bucket, "k", b"x")
    tags = Tags.new_object_tags()
    tags["colour"] = "red"
    client.set_object_tags(bucket_name=bucket, object_name="k", tags=tags)
    assert dict(client.get_object_tags(bucket_name=bucket, object_name="k")) == {"colour": "red"}
    client.delete_object_tags(bucket_name=bucket, object_name="k")
    assert not client.get_object_tags(bucket_name=bucket, object_name="k")


def test_versions_are_kept_and_removed(client, bucket):
    client.set_bucket_versioning(bucket_name=bucket, config=VersioningConfig(status=ENABLED))
    for data in (b"1", b"2"):
        put(client, bucket, "k", data)
    client.remove_object(bucket_name=bucket, object_name="k")
    found = list(client.list_objects(bucket_name=bucket, include_version=True))
    assert [each.is_delete_marker for each in found].count(True) == 1
    kept = {got(client, bucket, "k", version_id=each.version_id) for each in found if not each.is_delete_marker}
    assert kept == {b"1", b"2"}
    for each in found:
        client.remove_object(bucket_name=bucket, object_name="k", version_id=each.version_id)
    assert list(client.list_objects(bucket_name=bucket, include_version=True)) == []


def test_presigned_urls_put_and_get(client, bucket):
    soon = {"bucket_name": bucket, "object_name": "odd +%&é//x", "expires": timedelta(minutes=1)}
    to = client.presigned_put_object(**soon)
    with urllib.request.urlopen(urllib.request.Request(to, b"signed", method="PUT")) as answer:
        assert answer.status == 200
    with urllib.request.urlopen(client.presigned_get_object(**soon)) as answer:
        assert answer.read() == b"signed"


@pytest.mark.parametrize(
    ("verb", "code"),
    [("get_bucket_policy", "NoSuchBucketPolicy"), ("get_object_lock_config", "ObjectLockConfigurationNotFoundError")],
)
def test_what_a_bucket_does_not_have_is_said_in_s3s_words(client, bucket, verb, code):
    with pytest.raises(S3Error) as caught:
        getattr(client, verb)(bucket_name=bucket)
    assert caught.value.code == code
