"""An S3 server over an in-memory engine, and clients for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import boto3
import botocore.config
import pytest

from s3api.observing import Observed
from s3api.server import Serving, make_server, serve
from s3api.settings import S3Settings
from tests.s3api.fake_engine import FakeEngine


class Notebook:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[Observed] = []

    def answered(self, seen: Observed) -> None:
        self.seen.append(seen)


class Site:
    """A server, what is behind it, and how to talk to it."""

    def __init__(self, engine: FakeEngine, notebook: Notebook, server: Any, serving: Serving) -> None:
        self.engine, self.notebook, self.server, self.serving = engine, notebook, server, serving

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

    async def raw(self, data: bytes, *, half_close: bool = False, seconds: float = 10.0) -> bytes:
        """Send *data* as it is; everything that comes back until the server closes, or *seconds* pass."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        if half_close:
            writer.write_eof()
        found = b""
        try:
            async with asyncio.timeout(seconds):
                while chunk := await reader.read(65536):
                    found += chunk
        except (TimeoutError, ConnectionError):
            pass
        writer.close()
        return found


@pytest.fixture
def settings() -> S3Settings:
    return S3Settings(base_domains=("s3.test",), body_idle_seconds=1.0, linger_seconds=1.0, idle_seconds=5.0)


@pytest.fixture
async def site(settings: S3Settings) -> AsyncIterator[Site]:
    engine, notebook = FakeEngine(), Notebook()
    server = make_server(engine, settings, notebook)
    sock = socket.create_server(("127.0.0.1", 0))
    serving = await serve(server, sock)
    yield Site(engine, notebook, server, serving)
    await serving.stop(1.0)
