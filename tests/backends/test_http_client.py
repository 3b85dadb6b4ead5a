"""The HTTP client for values against sockets: kept connections, early refusals, hostile answers, proxies."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from backends.s3.http_client import (
    ERROR_BYTES_MAX,
    BodyTooLong,
    ConnectionCut,
    HttpClient,
    HttpError,
    HttpResponse,
    MalformedResponse,
    find_proxy,
)

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
    return HttpClient(url, tls, connections_max=4, connect_timeout_s=10, timeout_s=30, idle_timeout_s=60)


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
        await client.close()


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
        await client.close()


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
        await client.close()


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
        await client.close()


async def test_bytes_that_nobody_asked_for_are_no_answer() -> None:
    connections = 0

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await request_on(reader)
        writer.write(OK)
        await asked.wait()
        writer.write(OK.replace(b"ok", b"NO"))
        said.set()
        await reader.read()

    asked, said = asyncio.Event(), asyncio.Event()
    async with serving(talkative) as url:
        client = client_of(url)
        await client.request("GET", "/", {"host": client.host}, bytes_max=10)
        asked.set()
        await said.wait()
        for _ in range(10):  # the client's end reads what has come
            await asyncio.sleep(0)
        assert (await client.request("GET", "/", {"host": client.host}, bytes_max=10)).body == b"ok"
        assert connections == 2
        await client.close()


async def test_a_header_with_a_line_end_is_not_sent() -> None:
    echo = Echo()
    async with serving(echo.serve) as url:
        client = client_of(url)
        with pytest.raises(ValueError, match="control character"):
            await client.request("GET", "/", {"x": "a\r\nHost: other"}, bytes_max=10)
        await client.close()
    assert echo.heads == []


async def test_a_request_is_sent_as_it_was_signed_and_an_answer_is_taken_as_it_comes() -> None:
    """No header is added but the length of a body, no cookie is kept, and nothing is decompressed."""
    heads: list[str] = []
    packed = gzip.compress(b"value")

    async def packing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append((await request_on(reader))[0])
            coded = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
            writer.write(coded % len(packed) + packed)

    target = "/b/a%2Fb/../c//%7E?x=%2f"
    async with serving(packing) as url:
        client = client_of(url)
        for method in ("GET", "PUT"):
            headers = {"host": client.host, "x-amz-date": "now"}
            answer = await client.request(method, target, headers, [b"v"] if method == "PUT" else (), bytes_max=100)
            assert answer.body == packed
        await client.close()
    lines = f"host: {client.host}\r\nx-amz-date: now\r\n"
    assert heads[0] == f"GET {target} HTTP/1.1\r\n{lines}\r\n"
    assert heads[1] == f"PUT {target} HTTP/1.1\r\n{lines}Content-Length: 1\r\n\r\n"


async def test_closing_lets_a_request_end_and_refuses_others() -> None:
    async def waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_on(reader)
        heard.set()
        await going_on.wait()
        writer.write(OK)
        assert await reader.read() == b""
        closed.set()

    heard, going_on, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with serving(waiting) as url:
        client = client_of(url)
        running = asyncio.create_task(client.request("GET", "/", {"host": client.host}, bytes_max=10))
        await heard.wait()
        await client.close()
        going_on.set()
        assert (await running).body == b"ok"
        await closed.wait()
        with pytest.raises(HttpError):
            await client.request("GET", "/", {"host": client.host}, bytes_max=10)


async def test_a_forked_child_leaves_its_parents_connections_alone() -> None:
    echo = Echo()
    async with serving(echo.serve) as url:
        client: HttpClient | None = client_of(url)
        assert client is not None
        await client.request("GET", "/", {"host": client.host}, bytes_max=10)
        if not (child := os.fork()):
            try:
                client = None
                gc.collect()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        async with asyncio.timeout(10):
            await client.request("GET", "/", {"host": client.host}, bytes_max=10)
        assert echo.connections == 1
        await client.close()


# ---- hostile answers -------------------------------------------------------------------------------------------------


async def answer_to(raw: bytes, *, method: str = "GET", bytes_max: int = 1_000) -> HttpResponse:
    """What a client makes of a server that sends *raw* and closes the connection."""

    async def saying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_on(reader)
        writer.write(raw)
        await writer.drain()

    async with serving(saying) as url:
        client = client_of(url)
        try:
            return await client.request(method, "/", {"host": client.host}, bytes_max=bytes_max)
        finally:
            await client.close()


def shapes_of(body: bytes) -> list[tuple[str, bytes]]:
    """The ways in which the length of a body is told: the header, and the body as it is sent."""
    return [
        (f"Content-Length: {len(body)}", body),
        ("Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)),
        ("Connection: close", body),
    ]


@pytest.mark.parametrize("status", ["200 OK", "206 Partial Content"])
async def test_a_success_longer_than_its_limit_is_refused_whatever_tells_its_length(status: str) -> None:
    for size in (1_000, 1_001):
        for head, raw in shapes_of(os.urandom(size)):
            whole = f"HTTP/1.1 {status}\r\n{head}\r\n\r\n".encode() + raw
            if size == 1_000:
                assert bytes((await answer_to(whole)).body) in raw
            else:
                with pytest.raises(BodyTooLong):
                    await answer_to(whole)


@pytest.mark.parametrize("status", ["301 Moved", "403 Forbidden", "500 Broken"])
async def test_a_long_refusal_is_cut_off_and_keeps_its_status(status: str) -> None:
    for head, raw in shapes_of(b"x" * (1 << 20)):
        answer = await answer_to(f"HTTP/1.1 {status}\r\n{head}\r\n\r\n".encode() + raw, bytes_max=10)
        assert (answer.status, len(answer.body)) == (int(status[:3]), ERROR_BYTES_MAX)


@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden"])
async def test_an_answer_that_is_cut_off_is_never_whole(status: str) -> None:
    for head, body in shapes_of(b"hello")[:2]:
        raw = f"HTTP/1.1 {status}\r\n{head}\r\n\r\n".encode() + body
        for kept in range(len(raw)):
            with pytest.raises(ConnectionCut):
                await answer_to(raw[:kept])


async def test_an_answer_without_a_body_tells_a_length_of_any_size() -> None:
    huge = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"
    answer = await answer_to(huge, method="HEAD", bytes_max=0)
    assert (answer.length, answer.body) == (99_999_999_999, b"")
    assert (await answer_to(huge.replace(b"200 OK", b"304 Not Modified"))).body == b""


async def test_a_body_behind_an_answer_to_head_is_passed_over() -> None:
    raw = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 Broken\r\nContent-Length: 5\r\n\r\nhello"
    answer = await answer_to(raw, method="HEAD", bytes_max=0)
    assert (answer.status, answer.body) == (500, b"")


MALFORMED = {
    "no HTTP": b"220 mail.example.org ESMTP\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello",
    "a length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000 + b"\r\n",
    "a chunk without a size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    "a chunk longer than it says": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
    "trailers without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 10_000,
    "a length of 2^64": b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
async def test_what_two_readers_could_take_differently_is_refused(raw: bytes) -> None:
    with pytest.raises(HttpError):
        await answer_to(raw)


async def test_answers_1xx_without_end_are_cut_off() -> None:
    sent = 0

    async def flooding(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request_on(reader)
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 4_000)
            await writer.drain()
            sent += 100_000

    async with serving(flooding) as url:
        client = client_of(url)
        with pytest.raises(MalformedResponse):
            await client.request("GET", "/", {"host": client.host}, bytes_max=10)
        assert sent < 24 << 20, "socket buffers hold some megabytes"
        await client.close()


async def test_tiny_chunks_leave_turns_of_the_loop_to_others() -> None:
    async def crumbling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_on(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
        await writer.drain()

    async with serving(crumbling) as url:
        client = client_of(url)
        getting = asyncio.create_task(client.request("GET", "/", {"host": client.host}, bytes_max=20_000))
        turns = 0
        while not getting.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await getting).body == b"x" * 20_000
        assert turns > 200
        await client.close()


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
        await client.close()


async def test_a_proxy_that_refuses_or_talks_too_early_is_an_error(
    own_ca: tuple[ssl.SSLContext, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for reply in (
        b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 301 Moved\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ):
        async with serving(Tunnel(reply).serve) as proxy:
            monkeypatch.setenv("https_proxy", proxy.replace("//", "//user:secret@"))
            client = client_of("https://127.0.0.1:1", ssl.create_default_context(cafile=own_ca[1]))
            with pytest.raises((HttpError, OSError)) as caught:
                await client.request("GET", "/", {"host": client.host}, bytes_max=10)
            assert "secret" not in str(caught.value)
            await client.close()


def test_a_proxy_is_taken_from_the_environment_unless_the_host_is_excepted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_proxy("http", "h") is None
    monkeypatch.setenv("http_proxy", "proxy.test:3128")
    monkeypatch.setenv("no_proxy", "inside.test")
    assert find_proxy("http", "h.test") == ("http://proxy.test:3128", {})
    assert find_proxy("http", "a.inside.test") is None
    assert find_proxy("https", "h.test") is None
    monkeypatch.setenv("all_proxy", "https://us%40er:secret@proxy.test")
    assert find_proxy("https", "h.test") == (
        "https://proxy.test",
        {"proxy-authorization": "Basic dXNAZXI6c2VjcmV0"},
    )
    monkeypatch.setenv("all_proxy", "socks5://proxy.test")
    with pytest.raises(ValueError, match="no http:// or https://"):
        find_proxy("https", "h.test")


async def test_a_proxy_is_told_the_whole_address_of_a_server_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    echo = Echo()
    async with serving(echo.serve) as url:
        monkeypatch.setenv("http_proxy", url.replace("//", "//user:secret@"))
        client = client_of("http://s3.test:9000")
        for _ in range(2):
            await client.request("GET", "/a%2Fb", {"host": client.host}, bytes_max=10)
        await client.close()
    assert echo.connections == 1
    for head in echo.heads:
        assert head.startswith("GET http://s3.test:9000/a%2Fb HTTP/1.1\r\nhost: s3.test:9000\r\n")
        assert "proxy-authorization: Basic dXNlcjpzZWNyZXQ=" in head
