"""A folder for a local backend, and the S3 servers that the S3 driver is tried on."""

from __future__ import annotations

import os
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.s3.backend import S3
from tests.certificates import self_signed
from tests.endpoint import Endpoint
from tests.servers.minio import is_there, minio, named
from tests.servers.running import S3Server

OpenS3 = Callable[..., Awaitable[S3]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a local backend may lie; nothing is there yet."""
    return tmp_path / "blocks"


@pytest.fixture(scope="session")
def entrepot_server(endpoint: Endpoint) -> S3Server:
    return S3Server(endpoint.url, endpoint.access_key, endpoint.secret_key, endpoint.region)


@pytest.fixture(scope="session")
def minio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if (server := named()) is not None:
        yield server
        return
    with minio(tmp_path_factory.mktemp("minio")) as running:
        yield running


@pytest.fixture(params=["radosgw", "entrepot", *(["minio"] if is_there() else [])])
def server(request: pytest.FixtureRequest) -> S3Server:
    """Each that serves for more than tests, in turn."""
    running: S3Server = request.getfixturevalue(f"{request.param}_server")
    return running


@pytest.fixture
def no_own_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Whoever runs the tests may have an AWS account; nothing here may know it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))


@pytest.fixture
async def open_s3(no_own_keys: None) -> AsyncIterator[OpenS3]:
    """Opens a backend on a server, in a bucket of its own unless told otherwise, and closes it behind the test."""
    opened: list[tuple[S3Server, S3]] = []

    async def one(server: S3Server, **settings: Any) -> S3:
        given = {
            "bucket": f"entrepot-{uuid.uuid4().hex}",
            "endpoint": server.url,
            "access_key": server.access_key,
            "secret_key": server.secret_key,
            "create_bucket": True,
        }
        opened.append((server, await S3.open(**(given | settings))))
        return opened[-1][1]

    yield one
    for server, backend in opened:
        if server.stays and not backend._closed:
            await removed(backend)
        await backend.close()


@pytest.fixture(scope="session")
def bucket() -> str:
    """A bucket that the tests of this process share, each below a prefix of its own: to make one takes a while."""
    return f"entrepot-{uuid.uuid4().hex}"


@pytest.fixture
def prefix() -> str:
    """One that no other test uses."""
    return f"{uuid.uuid4().hex}/in/it"


@pytest.fixture
async def own_ca(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    """A server's side of TLS that no authority of this machine signed, and the file that a client needs for it."""
    certificate, private = self_signed("entrepot.test")
    (tmp_path / "ca.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(private)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    return context, str(tmp_path / "ca.pem")


async def removed(backend: S3) -> None:
    """Take away the bucket of a test and all that is in it."""
    client, bucket = backend._control._client, {"Bucket": backend._settings.bucket}
    try:
        while lines := (await client.list_objects_v2(**bucket)).get("Contents"):
            await client.delete_objects(**bucket, Delete={"Objects": [{"Key": line["Key"]} for line in lines]})
        await client.delete_bucket(**bucket)
    except client.exceptions.NoSuchBucket:
        pass  # two backends of one test shared it


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    """A folder on a disk: what these tests look at is what the file system of a disk does."""
    return disk_path
