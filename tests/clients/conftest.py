"""What the clients' tests share: a bucket of their own, files of the three sizes, and the programs themselves."""

import hashlib
import os
import random
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from tests.endpoint import Endpoint

MIB = 1 << 20
SIZES = {"nothing": 0, "just over a part": 5 * MIB + 1, "many parts": 40 * MIB}


@dataclass(frozen=True)
class Payload:
    """A file of random bytes, and what any copy of it must hash to."""

    path: Path
    size: int
    sha256: str

    def read(self) -> bytes:
        return self.path.read_bytes()


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_below(directory: Path) -> set[str]:
    """The paths of all files below a directory, as seen from it."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def payloads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Payload]:
    base = tmp_path_factory.mktemp("payloads")
    made = {}
    for name, size in SIZES.items():
        path = base / f"{size}.bin"
        path.write_bytes(random.Random(size).randbytes(size))
        made[name] = Payload(path, size, digest_of(path))
    return made


@pytest.fixture(params=list(SIZES))
def payload(request: pytest.FixtureRequest, payloads: dict[str, Payload]) -> Payload:
    return payloads[request.param]


def plain_client(endpoint: Endpoint, **options):
    """A boto3 client of the endpoint; *options* go to its `Config`."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint.url,
        aws_access_key_id=endpoint.access_key,
        aws_secret_access_key=endpoint.secret_key,
        region_name=endpoint.region,
        config=Config(s3={"addressing_style": "path"}, **options),
    )


@pytest.fixture(scope="session")
def s3(endpoint: Endpoint):
    return plain_client(endpoint)


@pytest.fixture
def bucket(s3) -> Iterator[str]:
    """An empty bucket; it goes, with all that is in it, when the test has ended."""
    name = f"test-{uuid.uuid4().hex[:16]}"
    s3.create_bucket(Bucket=name)
    yield name
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=name):
        if keys := [{"Key": each["Key"]} for each in page.get("Contents", [])]:
            assert "Errors" not in s3.delete_objects(Bucket=name, Delete={"Objects": keys, "Quiet": True})
    for upload in s3.list_multipart_uploads(Bucket=name).get("Uploads", []):
        s3.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
    s3.delete_bucket(Bucket=name)


def program(name: str) -> str:
    """The path of a client's program. Where it is missing the test is skipped, but never in CI."""
    if found := shutil.which(name):
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(f"{name} is not installed; tests/install-clients should have seen to it")
    pytest.skip(f"{name} is not installed; run tests/install-clients")
