"""The same door behind TLS, whose certificate its owner may replace while it serves."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from gateway.timing import parse_timing
from s3api.http.admission import Admission
from s3api.server import RunningServer, serve
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


@pytest.fixture(scope="module")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """The event loop of a worker, whose TLS is its own."""
    return uvloop.EventLoopPolicy()


async def serve_tls(site, folder: Path) -> RunningServer:
    """Serve *site* with a certificate for `first.test`, which is written to *folder*."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(folder, "first.test"))
    return await serve(site.server, socket.create_server(("127.0.0.1", 0)), lambda: context)


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "first.test.crt"))


async def silent(port: int, source: str, count: int) -> list[asyncio.StreamReader]:
    """As many connections from the address *source*, on which nothing is sent."""
    made = [await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)) for _ in range(count)]
    _kept.extend(writer for _, writer in made)
    return [reader for reader, _ in made]


_kept: list[asyncio.StreamWriter] = []
"""Writers that close their connections when nobody refers to them any more."""


@pytest.fixture(autouse=True)
def end_silent():
    yield
    _kept.clear()


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not look():
            await asyncio.sleep(0.01)


async def test_objects_travel_over_tls_and_certificates_can_be_replaced(site, tmp_path):
    signer = Signer(site)
    first, second = certificate(tmp_path, "first.test"), certificate(tmp_path, "second.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*first)
    serving = await serve(site.server, socket.create_server(("127.0.0.1", 0)), lambda: context)
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
    serving = await serve_tls(site, tmp_path)
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(60):
        assert not (await reader.read()).startswith(b"HTTP")
    writer.close()
    await serving.stop(1.0)


@pytest.mark.parametrize("limits", [(1000, 20), (20, 1000)], ids=["handshakes", "connections"])
async def test_silent_connections_of_one_address_lock_nobody_out(site, tmp_path, limits):
    signer = Signer(site)
    site.server.admission = Admission(limits[0], 1 << 20, limits[1])
    serving = await serve_tls(site, tmp_path)
    bystanders = await silent(serving.port, "127.0.0.3", 2)
    flood = await silent(serving.port, "127.0.0.2", 60)
    await until(lambda: site.server.admission.connections == 20)
    crt = tmp_path / "first.test.crt"
    async with asyncio.timeout(60):
        for _ in range(30):
            await exchange(signer, serving.port, crt, "first.test", ("GET", "/", b""))
        assert await flood[0].read() == b"", "who was first of the many had to go"
    assert not any(each.at_eof() for each in bystanders), "who is one of few did not"
    await serving.stop(1.0)
    await until(lambda: site.server.admission.connections == 0)
    assert len(site.server.admission.handshakes) == 0


async def test_a_handshake_has_a_deadline(site, tmp_path):
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
    site.server.timing = parse_timing("connections.handshake_seconds=0.1")
    serving = await serve_tls(site, tmp_path)
    (reader,) = await silent(serving.port, "127.0.0.1", 1)
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    await until(lambda: site.server.admission.connections == 0)
    await serving.stop(1.0)


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(site, tmp_path):
    serving = await serve_tls(site, tmp_path)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting(tmp_path).wrap_bio(incoming, outgoing, server_hostname="first.test")
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    for _ in range(10):
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(1 << 16))
    client.write(Signer(site).head("GET", "/"))
    writer.write(outgoing.read())
    answer = b""
    async with asyncio.timeout(60):
        while not answer:
            incoming.write(await reader.read(1 << 16))
            with suppress(ssl.SSLWantReadError):
                answer = client.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    writer.close()
    await serving.stop(1.0)


def idle_client(port: int, context: ssl.SSLContext | None, request: bytes) -> socket.socket:
    """A client that had an answer, and from then on neither sends nor reads, whatever comes."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    made = plain if context is None else context.wrap_socket(plain, server_hostname="first.test")
    made.sendall(request)
    assert made.recv(1 << 16).startswith(b"HTTP/1.1 ")
    return made


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_idle_connections_end_at_once_when_the_server_stops(site, tmp_path, tls):
    serving = await serve_tls(site, tmp_path) if tls else site.serving
    context = trusting(tmp_path) if tls else None
    request = Signer(site).head("GET", "/")
    clients = [await asyncio.to_thread(idle_client, serving.port, context, request) for _ in range(3)]
    await silent(serving.port, "127.0.0.1", 3)
    async with asyncio.timeout(15):
        await serving.stop(60.0)
    assert site.server.admission.connections == 0
    for each in clients:
        each.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_request_under_way_finishes_while_the_server_stops(site, tmp_path, tls):
    signer = Signer(site)
    assert (await signer.request("PUT", "/bucket")).status == 200
    serving = await serve_tls(site, tmp_path) if tls else site.serving
    context = {"ssl": trusting(tmp_path), "server_hostname": "first.test"} if tls else {}
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port, **context)
    writer.write(signer.head("PUT", "/bucket/slow", body=b"0123456789") + b"01234")
    await until(lambda: site.server.in_flight == 1)
    stopping = asyncio.create_task(serving.stop(60.0))
    await asyncio.sleep(0.05)
    assert not stopping.done()
    writer.write(b"56789")
    async with asyncio.timeout(15):
        assert (await read_reply(reader)).status == 200
        writer.close()
        await stopping
    assert await site.keys() == [b"slow"]


async def test_an_answer_is_sent_whole_to_a_client_that_takes_its_time(site, tmp_path):
    """Its connection ends behind it, for which TLS has a way of its own."""
    signer = Signer(site)
    assert (await signer.request("PUT", "/bucket")).status == 200
    data = bytes(range(256)) * 16_000
    await site.store(b"k", data)
    serving = await serve_tls(site, tmp_path)

    def read_slowly() -> bytes:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        plain.connect(("127.0.0.1", serving.port))
        with trusting(tmp_path).wrap_socket(plain, server_hostname="first.test") as client:
            client.sendall(signer.head("GET", "/bucket/k", connection="close"))
            found = bytearray()
            while piece := client.recv(1 << 16):
                found += piece
                time.sleep(0.004)
        return bytes(found).partition(b"\r\n\r\n")[2]

    assert await asyncio.to_thread(read_slowly) == data
    await serving.stop(1.0)
