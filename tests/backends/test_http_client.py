"""The HTTP client against sockets: kept connections, proxies, early refusals and large bodies."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from backends.http.client import HttpClient
from backends.http.errors import ConnectionCut, HttpError
from backends.http.proxies import Proxy, proxy_for

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@asynccontextmanager
async def serving(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that handles each connection by *serve*, and where it listens."""

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(quietly, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        server.close()


def client_of(url: str, tls: ssl.SSLContext | None = None) -> HttpClient:
    return HttpClient(url, tls, idle_max=4, connect_timeout_s=10, timeout_s=30, idle_timeout_s=60)


async def request_on(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """The head and the body of the next request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = [line.split(":")[1] for line in head.split("\r\n") if line.lower().startswith("content-length")]
    return head, await reader.readexactly(int(length[0]) if length else 0)


class Echo:
    """Answers each request with its body, on connections that it counts and keeps."""

    def __init__(self) -> None:
        self.connections = 0
        self.heads: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            head, body = await request_on(reader)
            self.heads.append(head)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()


async def test_requests_one_after_the_other_share_a_connection() -> None:
    echo = Echo()
    async with serving(echo.serve) as url:
        client = client_of(url)
        for size in (0, 10, 300_000, 5 << 20):
            body = os.urandom(size)
            pieces = [body[: size // 3], b"", bytearray(body[size // 3 :])]
            answer = await client.request("PUT", "/k", {"host": client.host}, pieces, bytes_max=8 << 20)
            assert answer.body == body
        assert echo.connections == 1
        client.close()


async def test_an_idle_connection_that_the_server_closed_is_replaced() -> None:
    served = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Closes without a word when the second request has come."""
        nonlocal served
        await request_on(reader)
        served += 1
        writer.write(OK)
        await request_on(reader)

    async with serving(once) as url:
        client = client_of(url)
        for _ in range(4):
            assert (await client.request("GET", "/", {"host": client.host}, bytes_max=10)).body == b"ok"
        assert served == 4
        client.close()


async def test_a_request_whose_answer_had_begun_is_not_sent_again() -> None:
    heads: list[str] = []

    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await request_on(reader))[0])
        writer.write(OK)
        heads.append((await request_on(reader))[0])
        writer.write(OK[:-1])

    async with serving(breaking) as url:
        client = client_of(url)
        await client.request("GET", "/", {"host": client.host}, bytes_max=10)
        with pytest.raises(ConnectionCut):
            await client.request("GET", "/", {"host": client.host}, bytes_max=10)
        assert len(heads) == 2


async def test_a_refusal_that_comes_before_the_body_was_sent_is_read_and_ends_the_sending() -> None:
    async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno!!")
        await writer.drain()
        await reader.read(1)  # the rest stays where it is
        await ended.wait()

    ended = asyncio.Event()
    async with serving(refusing) as url:
        client = client_of(url)
        answer = await client.request("PUT", "/", {"host": client.host}, [bytes(64 << 20)], bytes_max=10)
        assert (answer.status, bytes(answer.body)) == (403, b"no!!")
        ended.set()


async def test_bytes_that_nobody_asked_for_end_a_kept_connection() -> None:
    echo = Echo()

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        echo.connections += 1
        await request_on(reader)
        writer.write(OK)
        await asked.wait()
        writer.write(OK.replace(b"ok", b"NO"))
        assert await reader.read() == b""
        closed.set()

    asked, closed = asyncio.Event(), asyncio.Event()
    async with serving(talkative) as url:
        client = client_of(url)
        await client.request("GET", "/", {"host": client.host}, bytes_max=10)
        asked.set()
        await closed.wait()
        assert (await client.request("GET", "/", {"host": client.host}, bytes_max=10)).body == b"ok"
        assert echo.connections == 2


async def test_a_header_with_a_line_end_is_not_sent() -> None:
    client = client_of("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="line end"):
        await client.request("GET", "/", {"x": "a\r\nHost: other"}, bytes_max=10)


# ---- proxies ---------------------------------------------------------------------------------------------------------


class Tunnel:
    """A proxy that knows CONNECT, and what it was asked."""

    def __init__(self, reply: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.reply, self.heads = reply, list[str]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await request_on(reader)
        self.heads.append(head)
        writer.write(self.reply)
        if b" 200 " not in self.reply:
            return
        host, _, port = head.split(" ")[1].rpartition(":")
        there, thither = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_copied(reader, thither), _copied(there, writer))


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()
    writer.close()


async def test_a_server_with_tls_is_reached_through_a_tunnel_of_the_proxy(
    own_ca: tuple[ssl.SSLContext, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    echo, tunnel, body = Echo(), Tunnel(), os.urandom(3 << 20)
    async with serving(echo.serve, own_ca[0]) as url, serving(tunnel.serve) as proxy:
        monkeypatch.setenv("https_proxy", proxy.replace("//", "//us%40er:secret@"))
        client = client_of(url, ssl.create_default_context(cafile=own_ca[1]))
        for _ in range(2):
            answer = await client.request("PUT", "/k", {"host": client.host, "x": "1"}, [body], bytes_max=4 << 20)
            assert answer.body == body
        [head] = tunnel.heads
        assert head.startswith(f"CONNECT {urlsplit(url).netloc} HTTP/1.1")
        assert "proxy-authorization: Basic dXNAZXI6c2VjcmV0" in head
        assert "proxy-authorization" not in "".join(echo.heads), "the server has not to know"
        client.close()


async def test_a_proxy_that_refuses_or_talks_too_early_is_an_error(
    own_ca: tuple[ssl.SSLContext, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for reply in (
        b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 301 Moved\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ):
        async with serving(Tunnel(reply).serve) as proxy:
            monkeypatch.setenv("https_proxy", proxy)
            client = client_of("https://127.0.0.1:1", ssl.create_default_context(cafile=own_ca[1]))
            with pytest.raises((HttpError, OSError)):
                await client.request("GET", "/", {"host": client.host}, bytes_max=10)


def test_a_proxy_is_taken_from_the_environment_unless_the_host_is_excepted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_for("http", "h") is None
    monkeypatch.setenv("http_proxy", "proxy.test:3128")
    monkeypatch.setenv("no_proxy", "inside.test")
    assert proxy_for("http", "h.test") == Proxy("proxy.test", 3128, False, "")
    assert proxy_for("http", "a.inside.test") is None
    assert proxy_for("https", "h.test") is None
    monkeypatch.setenv("all_proxy", "https://proxy.test")
    assert proxy_for("https", "h.test") == Proxy("proxy.test", 443, True, "")
    monkeypatch.setenv("all_proxy", "socks5://proxy.test")
    with pytest.raises(ValueError, match="no http:// or https://"):
        proxy_for("https", "h.test")
