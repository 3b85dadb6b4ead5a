"""An S3 server over a real site, in this process so that tests can reach behind it, and clients for it.

The site is founded once a run, and its committer kept; each test opens it anew and leaves no bucket behind.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import botocore.config
import pytest

from gateway.engine.engine import Engine
from gateway.engine.types import Body, Buffer, Caller, ExpectedDigests, ObjectMeta
from gateway.site.admin import users
from gateway.site.site import Site as Opened
from gateway.timing import Timing, parse_timing
from s3api.access_log import AccessRecord
from s3api.server import RunningServer, make_server, serve
from s3api.settings import S3Settings
from tests.clocks import AheadClock
from tests.endpoint import ACCESS_KEY
from tests.new_sites import new_site
from tests.s3api.client import Signer

ALICE = ("AKALICE", "alice-secret")
BOB = ("AKBOB", "bob-secret")


class Notebook:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[AccessRecord] = []

    def write(self, seen: AccessRecord) -> None:
        self.seen.append(seen)


class Bytes(Body):
    """A body at hand."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        yield self._data


class Site:
    """A server, what is behind it, and how to talk to it."""

    def __init__(self, engine: Engine, notebook: Notebook, server: Any, serving: RunningServer) -> None:
        self.engine, self.notebook, self.server, self.serving = engine, notebook, server, serving

    async def keys(self, bucket: str = "bucket") -> list[bytes]:
        """The keys in a bucket."""
        page = await self.engine.list(self.caller(), bucket)
        return [each.key for each in page.keys]

    async def store(self, key: bytes, data: bytes, bucket: str = "bucket") -> None:
        """An object, past the protocol."""
        await self.engine.put(self.caller(), bucket, key, Bytes(data), ExpectedDigests(), ObjectMeta())

    def caller(self, access_key: str = ALICE[0]) -> Caller:
        """Who this key stands for."""
        found = self.engine.credential(access_key)
        assert found is not None
        return found[1]

    async def empty(self) -> None:
        """Remove every bucket and what is in it."""
        root = self.caller(ACCESS_KEY)
        for bucket in (await self.engine.list_buckets(root))[0]:
            while versions := (await self.engine.list_versions(root, bucket.name)).versions:
                for each in versions:
                    await self.engine.delete(root, bucket.name, each.key, each.version)
            while uploads := (await self.engine.list_uploads(root, bucket.name)).uploads:
                for upload in uploads:
                    await self.engine.abort_upload(root, bucket.name, upload.key, upload.upload)
            await self.engine.delete_bucket(root, bucket.name)

    @property
    def port(self) -> int:
        return self.serving.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def boto(self, access_key: str = "AKALICE", secret: str = "alice-secret", **config: Any) -> Any:
        return boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id=access_key, aws_secret_access_key=secret,
            region_name="us-east-1",
            config=botocore.config.Config(
                s3={"addressing_style": "path"}, retries={"max_attempts": 1}, **config
            ),
        )  # fmt: skip

    async def call(self, method: Callable[..., Any], **arguments: Any) -> Any:
        """Run a blocking client's *method* while the server goes on serving."""
        return await asyncio.to_thread(method, **arguments)

    async def raw(self, data: bytes, *, half_close: bool = False) -> bytes:
        """Send *data* as it is; all that comes back until the server closes. `TimeoutError` where it does not."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        if half_close:
            writer.write_eof()
        found = b""
        try:
            with suppress(ConnectionError):
                async with asyncio.timeout(60):
                    while chunk := await reader.read(65536):
                        found += chunk
        finally:
            writer.close()
        return found


@pytest.fixture
def settings() -> S3Settings:
    return S3Settings(base_domains=("s3.test",), body_idle_seconds=1.0, idle_seconds=5.0)


@pytest.fixture
def clock() -> AheadClock:
    """The server's clock."""
    return AheadClock()


@pytest.fixture
def timing(clock: AheadClock) -> Timing:
    return replace(parse_timing("connections.linger_seconds=1"), clock=clock)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A founded site with two users, whose committer runs until the end."""
    folder = tmp_path_factory.mktemp("s3api") / "site"
    new_site(folder)
    ready, done = threading.Event(), threading.Event()
    keeper = threading.Thread(target=lambda: asyncio.run(_keep(folder, ready, done)), daemon=True)
    keeper.start()
    assert ready.wait(60)
    yield folder
    done.set()
    keeper.join(60)


async def _keep(folder: Path, ready: threading.Event, done: threading.Event) -> None:
    async with await Opened.open(folder, with_storage=False) as opened:
        for name, (access_key, secret) in (("alice", ALICE), ("bob", BOB)):
            await users.add_user(opened, name, access_key, secret)
        ready.set()
        await asyncio.to_thread(done.wait)


@pytest.fixture
async def site(folder: Path, settings: S3Settings, timing: Timing) -> AsyncIterator[Site]:
    async with await Opened.open(folder) as opened:
        notebook = Notebook()
        server = make_server(opened.engine, settings, notebook, timing)
        sock = socket.create_server(("127.0.0.1", 0))
        serving = await serve(server, sock)
        site = Site(opened.engine, notebook, server, serving)
        yield site
        for name in ("put", "open", "head_bucket"):
            vars(opened.engine).pop(name, None)
        await serving.stop(1.0)
        await site.empty()


@pytest.fixture
async def signer(site: Site) -> Signer:
    """Alice, who has made a bucket called `bucket`."""
    found = Signer(site)
    assert (await found.request("PUT", "/bucket")).status == 200
    return found


@pytest.fixture
def s3(site: Site, signer: Signer) -> Any:
    """The same in boto3's words."""
    return site.boto()
