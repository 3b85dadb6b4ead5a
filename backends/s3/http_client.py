"""The HTTP client that carries values: aiohttp, bounded for one server that may be broken or hostile.

aiohttp parses answers and pools connections. This module adds what its caller relies on: no redirect is followed, an
answer is bounded before memory is allocated for it, and a failed exchange aborts its connection, so that nothing holds
the buffers of a value any longer. aiohttp repeats a request once where its connection ends before the head of an answer
has come, since servers close idle connections at any time; each request here may be repeated (RFC 9110, 9.2.2).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_writer import StreamWriter
from aiohttp.payload import Payload
from yarl import URL

from backends.base import Buffer, size_of
from backends.buffers import unfilled
from backends.s3.connections import Connector, Request

REFUSAL_BYTES_MAX = 64 << 10
"""Bytes that are read of a body whose status is no success: an error of S3's has some hundred."""

_READ_BUFFER_BYTES = 64 << 10  # aiohttp stops reading from the socket at twice that, or after 4,096 chunks
_JOINED_BYTES_MAX = 64 << 10  # a value up to that is sent in one piece with its head
_PIECE_BYTES = 256 << 10
_TURN_PARTS = 64
_LENGTH = re.compile(r"[0-9]{1,15}")
_NO_BODY = frozenset({204, 304})
_NOT_SIGNED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class HttpError(Exception):
    """The exchange has failed and its connection is closed."""


class MalformedResponse(HttpError):
    """What the server sent is not HTTP/1.1, or its head exceeds a limit."""


class BodyTooLong(HttpError):
    """The body has, or is announced with, more bytes than the caller allows. Nothing more of it is read."""

    def __init__(self, bytes_max: int, announced: int | None = None) -> None:
        size = f"more than {bytes_max}" if announced is None else str(announced)
        super().__init__(f"the answer has {size} bytes, and may have {bytes_max}")
        self.announced = announced
        """Its Content-Length; None for a body that turned out too long while it came."""


class ConnectionCut(HttpError):
    """The connection ended before the answer did."""


class HttpResponse(NamedTuple):
    """A whole answer, but for a refusal's body beyond `REFUSAL_BYTES_MAX`. Header names are compared without case."""

    status: int
    headers: Mapping[str, str]
    body: bytearray
    length: int | None
    """The Content-Length, if there is one."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def proxy_for(scheme: str, host: str) -> tuple[str, dict[str, str]] | None:
    """The proxy that the environment names for *host* (http_proxy, https_proxy, all_proxy, no_proxy): its URL without
    credentials, and the headers for it alone. Raises `ValueError` for one that is no http(s):// address, such as a
    SOCKS proxy."""
    proxies = getproxies()
    url = proxies.get(scheme) or proxies.get("all")
    if not url or proxy_bypass(host):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the environment names a proxy that is no http:// or https:// address of a host")
    headers = {}
    if parts.username is not None:
        login = aiohttp.encode_basic_auth(unquote(parts.username), unquote(parts.password or ""), "utf-8")
        headers["proxy-authorization"] = login
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", headers


class HttpClient:
    """Sends requests to one server. Of use on the event loop, and in the process, that it was made in."""

    def __init__(
        self,
        address: str,
        tls: ssl.SSLContext | None,
        *,
        connections_max: int,
        connect_timeout_s: float,
        timeout_s: float,
        idle_timeout_s: float,
    ) -> None:
        """*address*: `http(s)://host[:port]`, with *tls* for https. *connections_max*: open at once; the caller sends
        no more requests than that at once, since *connect_timeout_s* includes the wait for a connection. *timeout_s*:
        for a whole exchange. *idle_timeout_s*: an older idle connection is not used again, since firewalls on the way
        forget idle connections without a word.

        Raises `ValueError` where the environment names a proxy that is none."""
        parts = urlsplit(address)
        assert parts.hostname
        self.host = parts.netloc
        """What the header Host says, port included."""
        self._address, self._timeout_s, self._connect_timeout_s = address, timeout_s, connect_timeout_s
        self._every: dict[str, str] = {}  # headers of each request beside those that are signed
        self._options: dict[str, Any] = {"allow_redirects": False, "ssl": tls if tls is not None else True}
        if (proxy := proxy_for(parts.scheme, parts.hostname)) is not None:
            self._options |= {"proxy": proxy[0], "proxy_headers": proxy[1]}
            self._every = proxy[1] if tls is None else {}
        self._connector = Connector(limit=connections_max, keepalive_timeout=idle_timeout_s)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER_BYTES,
            request_class=Request,
            skip_auto_headers=_NOT_SIGNED,
        )
        self._running = 0
        self._is_closed = False

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: Sequence[Buffer] = (), *, bytes_max: int
    ) -> HttpResponse:
        """Send one request for *target*, an encoded path with its query, and return the answer, whatever its status.
        A success has at most *bytes_max* bytes of body.

        Raises `HttpError`, `OSError` (with `TimeoutError` and `ssl.SSLError`), and `ValueError` for a header that
        contains a control character."""
        if self._is_closed:
            raise HttpError("the client is closed")
        self._running += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(method, target, {**headers, **self._every}, _Value(body), bytes_max)
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError):
            raise  # an OSError that says what is wrong
        except aiohttp.ClientError as error:
            raise _translated(error) from error
        finally:
            self._running -= 1
            await self._end()

    async def close(self) -> None:
        """Close the connections, or have the last request that runs close them. Later ones are refused."""
        self._is_closed = True
        await self._end()

    async def _end(self) -> None:
        if self._is_closed and not self._running:
            with suppress(TimeoutError):  # a peer that does not read what was written
                async with asyncio.timeout(self._connect_timeout_s):
                    await self._connector.close(abort_ssl=True)

    async def _exchange(
        self, method: str, target: str, headers: Mapping[str, str], value: _Value, bytes_max: int
    ) -> HttpResponse:
        url, data = URL(self._address + target, encoded=True), value if value.bytes else None
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._session.request(method, url, headers=headers, data=data, **self._options)
            if response.status < 200:
                raise MalformedResponse(f"an answer {response.status} that nobody asked for")
            length, body = _length_of(response.headers), bytearray()
            if method != "HEAD" and response.status not in _NO_BODY:
                body = await _read(response, length, bytes_max)
            return HttpResponse(response.status, response.headers, body, length)
        except BaseException:
            if response is None:
                value.abort()
            else:
                _abort(response)
            raise


async def _read(response: aiohttp.ClientResponse, length: int | None, bytes_max: int) -> bytearray:
    """The body, in one buffer that has the announced *length* from the start. A refusal's is cut off."""
    is_refusal = not 200 <= response.status < 300
    limit = REFUSAL_BYTES_MAX if is_refusal else bytes_max
    if length is not None and length > limit and not is_refusal:
        raise BodyTooLong(limit, length)
    body, filled, parts = unfilled(min(length or 0, limit)), 0, 0
    async for part, _ in response.content.iter_chunks():
        body[filled : filled + len(part)] = part  # in place, or at the end of what came without a length
        filled, parts = filled + len(part), parts + 1
        if parts % _TURN_PARTS == 0:
            await asyncio.sleep(0)  # tiny chunks that have come already would all be taken in one turn of the loop
        if filled > limit:
            if not is_refusal:
                raise BodyTooLong(limit)
            _abort(response)
            del body[limit:]
            break
    if filled < len(body):
        raise ConnectionCut(f"{filled} of {length} bytes came")
    return body


def _abort(response: aiohttp.ClientResponse) -> None:
    """Close the connection without sending or reading what is left, unless it was given back."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


def _length_of(headers: Mapping[str, str]) -> int | None:
    length = headers.get("content-length")
    if length is not None and not _LENGTH.fullmatch(length):
        raise MalformedResponse(f"a Content-Length of {length[:40]!r}")
    return None if length is None else int(length)


def _translated(error: aiohttp.ClientError) -> HttpError:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return HttpError(f"the proxy answered CONNECT with {error.status}")
    kind = MalformedResponse if isinstance(error, aiohttp.ClientResponseError) else ConnectionCut
    return kind(f"{type(error).__name__}: {error}")


class _Value(Payload):
    """The buffers of a value, which are sent without copies, and anew where aiohttp repeats the request."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        super().__init__(buffers)
        self._size = self.bytes = size_of(buffers)
        self._transport: asyncio.WriteTransport | None = None

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """For aiohttp's digests and logs of bodies, which are not in use."""
        raise TypeError("a value is no text")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write all to a connection, which is aborted where that does not succeed."""
        assert isinstance(writer, StreamWriter)
        self._transport = writer.transport
        if self.bytes <= _JOINED_BYTES_MAX:
            await writer.write(b"".join(self._value))
            return
        try:
            writer.send_headers()  # they would else be joined with the first piece, which copies it
            for buffer in self._value:
                view = memoryview(buffer).cast("B")
                for at in range(0, len(view), _PIECE_BYTES):
                    await writer.write(view[at : at + _PIECE_BYTES])
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Drop what the connection has not sent yet."""
        if self._transport is not None:
            self._transport.abort()
