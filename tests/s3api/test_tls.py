"""The same door behind TLS, whose certificate its owner may replace while it serves."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from s3api.server import serve
from tests.certificates import self_signed
from tests.s3api.client import Signer, read_reply


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for *name*, and its key, as files."""
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    for path, content in zip(paths, self_signed(name), strict=True):
        path.write_bytes(content)
    return paths


async def exchange(signer: Signer, port: int, cert: Path, name: str, *requests: tuple[str, str, bytes]) -> list[bytes]:
    """Make *requests*, one after the other, over one connection that trusts *cert* alone."""
    context = ssl.create_default_context(cafile=str(cert))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name, limit=1 << 26)
    bodies = []
    for method, path, body in requests:
        writer.write(signer.head(method, path, body=body) + body)
        reply = await read_reply(reader, method)
        assert reply.status == 200, reply.body
        bodies.append(reply.body)
    writer.close()
    return bodies


async def test_objects_travel_over_tls_and_certificates_can_be_replaced(site, tmp_path):
    signer = Signer(site)
    first, second = certificate(tmp_path, "first.test"), certificate(tmp_path, "second.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*first)
    serving = await serve(site.server, socket.create_server(("127.0.0.1", 0)), context)
    data = bytes(range(256)) * 16384
    bodies = await exchange(
        signer, serving.port, first[0], "first.test",
        ("PUT", "/bucket", b""), ("PUT", "/bucket/k", data), ("GET", "/bucket/k", b""),
    )  # fmt: skip
    assert bodies[-1] == data
    context.load_cert_chain(*second)
    assert await exchange(signer, serving.port, second[0], "second.test", ("GET", "/bucket/k", b"")) == [data]
    with pytest.raises(ssl.SSLError):
        await exchange(signer, serving.port, first[0], "first.test", ("GET", "/bucket/k", b""))
    await serving.stop(1.0)


async def test_plain_http_on_a_tls_port_ends_the_connection(site, tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path, "first.test"))
    serving = await serve(site.server, socket.create_server(("127.0.0.1", 0)), context)
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(60):
        assert not (await reader.read()).startswith(b"HTTP")
    writer.close()
    await serving.stop(1.0)
