"""boto3 with today's defaults: checksums on every upload, verified on every download."""

import hashlib
import io
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from tests.clients.conftest import MIB, digest_of, plain_client
from tests.clients.odd_keys import odd_keys

CANNOT: dict[str, str] = {}


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def test_a_file_comes_back_as_it_went(s3, bucket, payload, tmp_path):
    s3.upload_file(str(payload.path), bucket, "file")
    assert s3.head_object(Bucket=bucket, Key="file")["ContentLength"] == payload.size
    s3.download_file(bucket, "file", str(tmp_path / "back"))
    assert digest_of(tmp_path / "back") == payload.sha256


def test_a_stream_comes_back_as_it_went(s3, bucket, payload):
    with payload.path.open("rb") as file:
        s3.upload_fileobj(file, bucket, "stream", Config=TransferConfig(multipart_threshold=5 * MIB))
    back = io.BytesIO()
    s3.download_fileobj(bucket, "stream", back)
    assert hashlib.sha256(back.getbuffer()).hexdigest() == payload.sha256


def test_one_put_holds_a_hundred_mebibytes(s3, bucket, payloads):
    payload = payloads["many parts"]
    with payload.path.open("rb") as file:
        s3.put_object(Bucket=bucket, Key="whole", Body=file)
    body = s3.get_object(Bucket=bucket, Key="whole")["Body"]
    assert hashlib.sha256(body.read()).hexdigest() == payload.sha256


@pytest.mark.parametrize("key", [pytest.param(key, id=name) for name, key in odd_keys(CANNOT).items()])
def test_an_odd_key_is_put_got_listed_copied_and_deleted(s3, bucket, key):
    body = key.encode()
    s3.put_object(Bucket=bucket, Key=key, Body=body)
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == body
    assert s3.head_object(Bucket=bucket, Key=key)["ContentLength"] == len(body)
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [key]
    assert [each["Key"] for each in s3.list_objects(Bucket=bucket)["Contents"]] == [key]
    assert s3.list_objects_v2(Bucket=bucket, Prefix=key)["KeyCount"] == 1
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": key})
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == body
    s3.delete_object(Bucket=bucket, Key=key)
    with pytest.raises(ClientError) as caught:
        s3.get_object(Bucket=bucket, Key=key)
    assert code_of(caught) == (404, "NoSuchKey")


def test_all_odd_keys_stand_beside_each_other_in_byte_order(s3, bucket):
    keys = list(odd_keys(CANNOT).values())
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 3})
    listed = [each["Key"] for page in pages for each in page["Contents"]]
    assert listed == sorted(keys, key=str.encode)
    for key in keys:
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    assert {each["Key"] for each in deleted["Deleted"]} == set(keys)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_buckets_are_made_listed_found_and_deleted(s3, bucket):
    assert bucket in [each["Name"] for each in s3.list_buckets()["Buckets"]]
    assert s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] is None
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    with pytest.raises(ClientError) as caught:
        s3.delete_bucket(Bucket=bucket)
    assert code_of(caught) == (409, "BucketNotEmpty")
    with pytest.raises(ClientError) as caught:
        s3.head_bucket(Bucket="no-such-" + bucket)
    assert code_of(caught)[0] == 404
    with pytest.raises(ClientError) as caught:
        s3.list_objects_v2(Bucket="no-such-" + bucket)
    assert code_of(caught) == (404, "NoSuchBucket")


def test_folders_are_rolled_up_and_pages_go_on_where_they_ended(s3, bucket):
    keys = [f"{folder}/{number}" for folder in ("a", "b", "c") for number in range(4)] + ["top"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    listed = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert [each["Prefix"] for each in listed["CommonPrefixes"]] == ["a/", "b/", "c/"]
    assert [each["Key"] for each in listed["Contents"]] == ["top"]
    for name in ("list_objects", "list_objects_v2"):
        pages = list(s3.get_paginator(name).paginate(Bucket=bucket, PaginationConfig={"PageSize": 5}))
        assert len(pages) == 3
        assert [each["Key"] for page in pages for each in page["Contents"]] == keys
    assert s3.list_objects_v2(Bucket=bucket, StartAfter="b/3")["Contents"][0]["Key"] == "c/0"
    owned = s3.list_objects_v2(Bucket=bucket, FetchOwner=True, MaxKeys=1)["Contents"][0]
    assert owned["Owner"]["ID"]


def test_metadata_and_headers_come_back(s3, bucket):
    given = {
        "ContentType": "text/x-manifest; charset=utf-8",
        "CacheControl": "max-age=60",
        "ContentDisposition": 'attachment; filename="a b.txt"',
        "ContentEncoding": "identity",
        "ContentLanguage": "de",
        "Metadata": {"epoch": "17", "note": "a b  c"},
    }
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", **given)
    for answer in (s3.head_object(Bucket=bucket, Key="k"), s3.get_object(Bucket=bucket, Key="k")):
        assert {name: answer[name] for name in given} == given
    override = s3.get_object(Bucket=bucket, Key="k", ResponseContentType="text/plain")
    assert override["ContentType"] == "text/plain"


@pytest.mark.parametrize(
    ("wanted", "start", "stop"),
    [("bytes=0-0", 0, 1), ("bytes=5-", 5, None), ("bytes=-7", -7, None), ("bytes=70000-140000", 70000, 140001)],
)
def test_a_range_is_those_bytes(s3, bucket, payloads, wanted, start, stop):
    body = payloads["just over a part"].read()
    s3.put_object(Bucket=bucket, Key="k", Body=body)
    answer = s3.get_object(Bucket=bucket, Key="k", Range=wanted)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert answer["Body"].read() == body[start:stop]


def test_a_range_behind_the_end_is_416(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"12345")
    with pytest.raises(ClientError) as caught:
        s3.get_object(Bucket=bucket, Key="k", Range="bytes=5-9")
    assert code_of(caught) == (416, "InvalidRange")


def test_conditions_on_reads_hold(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    assert etag == '"' + hashlib.md5(b"x").hexdigest() + '"'
    assert s3.get_object(Bucket=bucket, Key="k", IfMatch=etag)["Body"].read() == b"x"
    later = datetime.now(UTC) + timedelta(hours=1)
    for condition, status in (
        ({"IfMatch": '"other"'}, 412),
        ({"IfNoneMatch": etag}, 304),
        ({"IfModifiedSince": later - timedelta(minutes=59)}, 304),
        ({"IfUnmodifiedSince": datetime(2001, 1, 1, tzinfo=UTC)}, 412),
    ):
        with pytest.raises(ClientError) as caught:
            s3.head_object(Bucket=bucket, Key="k", **condition)
        assert code_of(caught)[0] == status, condition


def test_conditions_on_writes_hold(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    with pytest.raises(ClientError) as caught:
        s3.put_object(Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*")
    assert code_of(caught) == (412, "PreconditionFailed")
    s3.put_object(Bucket=bucket, Key="k", Body=b"3", IfMatch=etag)
    with pytest.raises(ClientError) as caught:
        s3.put_object(Bucket=bucket, Key="k", Body=b"4", IfMatch=etag)
    assert code_of(caught) == (412, "PreconditionFailed")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"3"


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_a_checksum_is_stored_and_verified_on_the_way_back(s3, endpoint, bucket, algorithm):
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"bytes", ChecksumAlgorithm=algorithm)
    got = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert got["Body"].read() == b"bytes"
    assert got[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"]
    once = plain_client(endpoint, retries={"total_max_attempts": 1})  # by default it tries BadDigest again
    with pytest.raises(ClientError) as caught:
        once.put_object(Bucket=bucket, Key="k", Body=b"other", **{f"Checksum{algorithm}": put[f"Checksum{algorithm}"]})
    assert code_of(caught) == (400, "BadDigest")


def test_an_upload_in_parts_is_one_object(s3, bucket, payloads):
    first, tail = payloads["just over a part"].read()[: 5 * MIB], b"tail"
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k", Metadata={"made": "of parts"})["UploadId"]
    parts = []
    for number, chunk in ((1, first), (2, tail), (3, b"left out")):
        part = s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=number, Body=chunk)
        parts.append({"PartNumber": number, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]})
    listed = s3.list_parts(Bucket=bucket, Key="k", UploadId=upload)["Parts"]
    assert [(each["PartNumber"], each["Size"]) for each in listed] == [(1, 5 * MIB), (2, 4), (3, 8)]
    assert [each["UploadId"] for each in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == [upload]
    wanted = {"Parts": parts[:2]}
    done = s3.complete_multipart_upload(Bucket=bucket, Key="k", UploadId=upload, MultipartUpload=wanted)
    digests = b"".join(hashlib.md5(chunk).digest() for chunk in (first, tail))
    assert done["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-2"'
    got = s3.get_object(Bucket=bucket, Key="k")
    assert (got["Body"].read(), got["Metadata"]) == (first + tail, {"made": "of parts"})
    assert s3.get_object(Bucket=bucket, Key="k", PartNumber=2)["Body"].read() == tail
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


def test_an_aborted_upload_is_gone(s3, bucket):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=upload)
    with pytest.raises(ClientError) as caught:
        s3.list_parts(Bucket=bucket, Key="k", UploadId=upload)
    assert code_of(caught) == (404, "NoSuchUpload")


def test_a_large_object_is_copied_in_parts(s3, bucket, payloads):
    payload = payloads["many parts"]
    s3.upload_file(str(payload.path), bucket, "from")
    config = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=32 * MIB)
    s3.copy({"Bucket": bucket, "Key": "from"}, bucket, "to", Config=config)
    body = s3.get_object(Bucket=bucket, Key="to")["Body"]
    assert hashlib.sha256(body.read()).hexdigest() == payload.sha256


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA256"])
def test_a_copy_in_parts_has_the_checksum_that_was_asked_for(s3, bucket, payloads, algorithm):
    """The completion names each part's, which it knows from the copies' answers alone."""
    payload = payloads["many parts"]
    config = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=32 * MIB)
    s3.upload_file(str(payload.path), bucket, "from", Config=config, ExtraArgs={"ChecksumAlgorithm": algorithm})
    s3.copy({"Bucket": bucket, "Key": "from"}, bucket, "to", ExtraArgs={"ChecksumAlgorithm": algorithm}, Config=config)
    found = [s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED") for key in ("from", "to")]
    assert {each["ChecksumType"] for each in found} == {"COMPOSITE"}
    assert found[0][f"Checksum{algorithm}"] == found[1][f"Checksum{algorithm}"]


def test_a_client_that_adds_no_checksums_uploads_in_parts(endpoint, bucket, payloads):
    plain = plain_client(
        endpoint, request_checksum_calculation="when_required", response_checksum_validation="when_required"
    )
    payload = payloads["many parts"]
    config = TransferConfig(multipart_threshold=8 * MIB)
    for extra in ({}, {"ChecksumAlgorithm": "CRC32C"}, {"ChecksumAlgorithm": "CRC64NVME"}):
        plain.upload_file(str(payload.path), bucket, "k", Config=config, ExtraArgs=extra)
        body = plain.get_object(Bucket=bucket, Key="k")["Body"]
        assert hashlib.sha256(body.read()).hexdigest() == payload.sha256


def test_a_copy_keeps_or_replaces_metadata(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x", Metadata={"colour": "red"})
    source = {"Bucket": bucket, "Key": "a"}
    s3.copy_object(Bucket=bucket, Key="b", CopySource=source)
    assert s3.head_object(Bucket=bucket, Key="b")["Metadata"] == {"colour": "red"}
    s3.copy_object(Bucket=bucket, Key="a", CopySource=source, Metadata={"colour": "blue"}, MetadataDirective="REPLACE")
    assert s3.head_object(Bucket=bucket, Key="a")["Metadata"] == {"colour": "blue"}
    assert s3.get_object(Bucket=bucket, Key="a")["Body"].read() == b"x"


def test_delete_objects_names_what_went(s3, bucket):
    keys = [f"k{number}" for number in range(1000)]
    for key in keys[:50]:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    assert {each["Key"] for each in answer["Deleted"]} == set(keys)  # an absent key counts as deleted
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


@pytest.mark.parametrize("key", ["plain", "odd +%&?é/..//x"])
def test_presigned_urls_put_and_get_until_they_are_changed(endpoint, bucket, key):
    signer = plain_client(endpoint, signature_version="s3v4")
    put = signer.generate_presigned_url("put_object", {"Bucket": bucket, "Key": key}, ExpiresIn=60)
    with urllib.request.urlopen(urllib.request.Request(put, b"signed", method="PUT")) as answer:
        assert answer.status == 200
    get = signer.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}, ExpiresIn=60)
    with urllib.request.urlopen(get) as answer:
        assert answer.read() == b"signed"
    assert "X-Amz-Expires=60&" in get
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(get.replace("X-Amz-Expires=60&", "X-Amz-Expires=6000&"))
    assert caught.value.code == 403


@pytest.mark.parametrize("key", ["plain", "odd +%&?é/..//x"])
def test_a_plain_clients_presigned_urls_work_until_they_are_changed(endpoint, bucket, key):
    # Nothing is configured: so boto3 signs addresses by Signature Version 2.
    signer = boto3.client(
        "s3", endpoint_url=endpoint.url, region_name="us-east-1", aws_access_key_id=endpoint.access_key,
        aws_secret_access_key=endpoint.secret_key,
    )  # fmt: skip
    named = {"Bucket": bucket, "Key": key}
    described = {"ContentType": "text/x-odd", "Metadata": {"colour": "red"}}
    put, get, head, delete = (
        signer.generate_presigned_url(verb, {**named, **more}, ExpiresIn=600)
        for verb, more in [
            ("put_object", described), ("get_object", {"ResponseContentType": "text/plain; a=b"}), ("head_object", {}),
            ("delete_object", {}),
        ]
    )  # fmt: skip
    assert all("AWSAccessKeyId=" in each for each in (put, get, head, delete))
    typed = {"Content-Type": "text/x-odd"}
    with urllib.request.urlopen(urllib.request.Request(put, b"signed", typed, method="PUT")) as answer:
        assert answer.status == 200
    with urllib.request.urlopen(get) as answer:
        assert (answer.read(), answer.headers["content-type"]) == (b"signed", "text/plain; a=b")
    with urllib.request.urlopen(urllib.request.Request(head, method="HEAD")) as answer:
        assert (answer.headers["content-type"], answer.headers["x-amz-meta-colour"]) == ("text/x-odd", "red")
    for changed in (get.replace("text%2Fplain", "text%2Fhtml"), put, get.replace("/" + bucket, "/other", 1)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(changed)
        assert caught.value.code == 403
    with urllib.request.urlopen(urllib.request.Request(delete, method="DELETE")) as answer:
        assert answer.status == 204
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(get)
    assert caught.value.code == 404


@pytest.mark.parametrize(
    ("change", "code"),
    [({"secret_key": "wrong"}, "SignatureDoesNotMatch"), ({"access_key": "NOBODY"}, "InvalidAccessKeyId")],
)
def test_a_wrong_secret_and_an_unknown_key_are_refused(endpoint, bucket, change, code):
    with pytest.raises(ClientError) as caught:
        plain_client(replace(endpoint, **change)).list_objects_v2(Bucket=bucket)
    assert code_of(caught) == (403, code)


def test_nobody_in_particular_is_refused(endpoint, bucket):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{endpoint.url}/{bucket}?list-type=2")
    assert caught.value.code == 403
