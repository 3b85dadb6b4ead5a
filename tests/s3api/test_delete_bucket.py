"""A bucket that is deleted takes the uploads into it along, whatever of them is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from botocore.exceptions import ClientError

from gateway.engine.types import Body, Buffer, ExpectedDigests
from gateway.errors import NoSuchBucket, NoSuchUpload
from tests.s3api.test_operations import failed

AT = {"Bucket": "leaving", "Key": "big/ü"}


class Held(Body):
    """A body whose second half waits until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        yield b"first "
        self.begun.set()
        await self.let_go.wait()
        yield b"second"


@pytest.fixture
async def s3(site):
    return site.boto()


async def begun(s3, site) -> tuple[str, str]:
    """A bucket with an upload that has a part. Answers its id and the part's ETag."""
    await site.call(s3.create_bucket, Bucket="leaving")
    upload = (await site.call(s3.create_multipart_upload, **AT))["UploadId"]
    part = await site.call(s3.upload_part, **AT, UploadId=upload, PartNumber=1, Body=b"a part")
    return upload, part["ETag"]


def of_the_upload(s3, upload: str, etag: str):
    """Whatever a client asks of an upload."""
    named = {**AT, "UploadId": upload}
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    return [
        (s3.upload_part, named | {"PartNumber": 1, "Body": b"late"}),
        (s3.upload_part_copy, named | {"PartNumber": 1, "CopySource": {"Bucket": "other", "Key": "there"}}),
        (s3.list_parts, named),
        (s3.complete_multipart_upload, named | {"MultipartUpload": parts}),
        (s3.abort_multipart_upload, named),
    ]


async def test_a_bucket_with_uploads_is_deleted_and_one_of_its_name_has_none_of_them(s3, site):
    upload, etag = await begun(s3, site)
    await site.call(s3.create_bucket, Bucket="other")
    await site.call(s3.put_object, Bucket="other", Key="there", Body=b"x")
    await site.call(s3.delete_bucket, Bucket="leaving")
    for method, arguments in of_the_upload(s3, upload, etag):
        with pytest.raises(ClientError) as caught:
            await site.call(method, **arguments)
        assert failed(caught) == "NoSuchBucket", arguments
    await site.call(s3.create_bucket, Bucket="leaving")
    assert "Uploads" not in await site.call(s3.list_multipart_uploads, Bucket="leaving")
    for method, arguments in of_the_upload(s3, upload, etag):
        with pytest.raises(ClientError) as caught:
            await site.call(method, **arguments)
        assert failed(caught) == "NoSuchUpload", arguments
    assert (await site.call(s3.list_objects_v2, Bucket="leaving"))["KeyCount"] == 0
    await site.call(s3.delete_bucket, Bucket="leaving")


@pytest.mark.parametrize(("again", "refused"), [(False, NoSuchBucket), (True, NoSuchUpload)])
async def test_a_part_under_way_while_its_bucket_goes_is_refused(s3, site, again, refused):
    upload, _ = await begun(s3, site)
    held = Held()
    caller = site.caller()
    putting = asyncio.create_task(
        site.engine.put_part(caller, "leaving", AT["Key"].encode(), upload, 2, held, ExpectedDigests())
    )
    await held.begun.wait()
    await site.call(s3.delete_bucket, Bucket="leaving")
    if again:
        await site.call(s3.create_bucket, Bucket="leaving")
    held.let_go.set()
    with pytest.raises(refused):
        await putting
