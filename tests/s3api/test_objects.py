"""Objects through a real client: what goes in comes out."""

from __future__ import annotations

import asyncio

import pytest
from botocore.exceptions import ClientError


async def test_an_object_comes_back_as_it_was_put(site):
    s3 = site.boto()
    await site.call(s3.create_bucket, Bucket="photos")
    put = await site.call(s3.put_object, Bucket="photos", Key="a/b c+é", Body=b"hello" * 1000, Metadata={"who": "me"})
    got = await site.call(s3.get_object, Bucket="photos", Key="a/b c+é", ChecksumMode="ENABLED")
    assert await asyncio.to_thread(got["Body"].read) == b"hello" * 1000
    assert got["ETag"] == put["ETag"]
    assert got["Metadata"] == {"who": "me"}
    assert got["ServerSideEncryption"] == "AES256"
    assert got["ChecksumCRC32"] == put["ChecksumCRC32"]


async def test_a_large_object_is_streamed(site):
    s3 = site.boto()
    await site.call(s3.create_bucket, Bucket="photos")
    data = bytes(range(256)) * (64 << 10)
    await site.call(s3.put_object, Bucket="photos", Key="big", Body=data)
    got = await site.call(s3.get_object, Bucket="photos", Key="big")
    assert await asyncio.to_thread(got["Body"].read) == data
    got = await site.call(s3.get_object, Bucket="photos", Key="big", Range="bytes=-100")
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert got["ContentRange"] == f"bytes {len(data) - 100}-{len(data) - 1}/{len(data)}"


async def test_a_missing_key_is_a_404_with_s3s_code(site):
    s3 = site.boto()
    await site.call(s3.create_bucket, Bucket="photos")
    with pytest.raises(ClientError) as caught:
        await site.call(s3.get_object, Bucket="photos", Key="nothing")
    assert caught.value.response["Error"]["Code"] == "NoSuchKey"
    with pytest.raises(ClientError) as caught:
        await site.call(s3.head_object, Bucket="photos", Key="nothing")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


async def test_keys_are_listed_in_pages_by_both_versions(site):
    s3 = site.boto()
    await site.call(s3.create_bucket, Bucket="photos")
    keys = [f"k/{n:03d} &<é" for n in range(25)] + ["z"]
    for key in keys:
        await site.call(s3.put_object, Bucket="photos", Key=key, Body=b"")

    def all_of(name, **more):
        pages = s3.get_paginator(name).paginate(Bucket="photos", PaginationConfig={"PageSize": 10}, **more)
        pages = list(pages)
        return (
            [c["Key"] for p in pages for c in p.get("Contents", ())],
            [c["Prefix"] for p in pages for c in p.get("CommonPrefixes", ())],
        )

    for name in ("list_objects", "list_objects_v2"):
        assert await asyncio.to_thread(all_of, name) == (keys, [])
        assert await asyncio.to_thread(all_of, name, Delimiter="/") == (["z"], ["k/"])
        assert await asyncio.to_thread(all_of, name, Prefix="k/02") == (keys[20:25], [])
