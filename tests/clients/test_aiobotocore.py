"""aiobotocore: botocore's requests over aiohttp, many at once on one loop."""

import asyncio
import hashlib

import pytest
from aiobotocore.session import get_session
from botocore.exceptions import ClientError

from tests.clients.conftest import MIB
from tests.clients.odd_keys import odd_keys

CANNOT: dict[str, str] = {}


@pytest.fixture
async def client(endpoint):
    made = get_session().create_client(
        "s3",
        endpoint_url=endpoint.url,
        aws_access_key_id=endpoint.access_key,
        aws_secret_access_key=endpoint.secret_key,
        region_name=endpoint.region,
    )
    async with made as running:
        yield running


async def digest_of_object(client, bucket: str, key: str) -> str:
    digest = hashlib.sha256()
    answer = await client.get_object(Bucket=bucket, Key=key)
    async with answer["Body"] as body:
        async for chunk in body.iter_chunks(MIB):
            digest.update(chunk)
    return digest.hexdigest()


async def test_an_object_comes_back_as_it_went(client, bucket, payload):
    with payload.path.open("rb") as file:
        await client.put_object(Bucket=bucket, Key="k", Body=file)
    assert (await client.head_object(Bucket=bucket, Key="k"))["ContentLength"] == payload.size
    assert await digest_of_object(client, bucket, "k") == payload.sha256


async def test_parts_sent_at_once_are_one_object(client, bucket, payloads):
    payload = payloads["many parts"]
    body = memoryview(payload.read())
    upload = (await client.create_multipart_upload(Bucket=bucket, Key="k"))["UploadId"]

    async def send(number: int) -> dict[str, object]:
        chunk = bytes(body[(number - 1) * 8 * MIB : number * 8 * MIB])
        part = await client.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=number, Body=chunk)
        return {"PartNumber": number, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]}

    parts = await asyncio.gather(*(send(number) for number in range(1, 6)))
    await client.complete_multipart_upload(
        Bucket=bucket, Key="k", UploadId=upload, MultipartUpload={"Parts": list(parts)}
    )
    assert await digest_of_object(client, bucket, "k") == payload.sha256


async def test_odd_keys_are_put_got_and_deleted_all_at_once(client, bucket):
    keys = list(odd_keys(CANNOT).values())
    await asyncio.gather(*(client.put_object(Bucket=bucket, Key=key, Body=key.encode()) for key in keys))
    for key in keys:
        answer = await client.get_object(Bucket=bucket, Key=key)
        async with answer["Body"] as body:
            assert await body.read() == key.encode()
    listed = (await client.list_objects_v2(Bucket=bucket))["Contents"]
    assert [each["Key"] for each in listed] == sorted(keys, key=str.encode)
    await asyncio.gather(*(client.delete_object(Bucket=bucket, Key=key) for key in keys))
    assert (await client.list_objects_v2(Bucket=bucket))["KeyCount"] == 0


async def test_of_many_who_create_one_key_one_succeeds(client, bucket):
    async def create(number: int) -> bool:
        try:
            await client.put_object(Bucket=bucket, Key="lock", Body=str(number).encode(), IfNoneMatch="*")
        except ClientError as refused:
            assert refused.response["ResponseMetadata"]["HTTPStatusCode"] in {409, 412}
            return False
        return True

    assert sum(await asyncio.gather(*(create(number) for number in range(20)))) == 1
