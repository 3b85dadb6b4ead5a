"""The HTTP client for values: aiohttp, bounded for a server that may be broken or hostile.

aiohttp parses responses and pools connections. This module adds what its caller relies on: no redirect is followed, a
response is bounded before memory is allocated for it, and a failed exchange aborts its connection, so that nothing
holds the buffers of a value any longer. aiohttp repeats a request once where its connection ends before the head of a
response has come, since servers close idle connections at any time. Every request here is idempotent (RFC 9110, 9.2.2).
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

ERROR_BYTES_MAX = 64 << 10
"""Bytes that are read of the body of an error response: an error of S3 has some hundred."""

_READ_BUFFER_BYTES = 64 << 10  # aiohttp stops reading from the socket at twice that, or after 4,096 chunks
_JOINED_BYTES_MAX = 64 << 10  # a value up to that is sent in one piece with its head
_PIECE_BYTES = 256 << 10
_TURN_PARTS = 64
_LENGTH = re.compile(r"[0-9]{1,15}")
_NO_BODY = frozenset({204, 304})
_NOT_SIGNED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class HttpError(Exception):
    """The exchange failed, and its connection is closed."""


class MalformedResponse(HttpError):
    """The response is not HTTP/1.1, or its head exceeds a limit."""


class BodyTooLong(HttpError):
    """The body has, or its Content-Length announces, more bytes than the caller allows. Nothing more of it is read."""

    def __init__(self, bytes_max: int, announced: int | None = None) -> None:
        size = f"more than {bytes_max}" if announced is None else str(announced)
        super().__init__(f"the response has {size} bytes, and may have {bytes_max}")
        self.announced = announced
        """The Content-Length; None where the body turned out too long while it was read."""


class ConnectionCut(HttpError):
    """The connection ended before the response was complete."""


class HttpResponse(NamedTuple):
    """A whole response; the body of an error is cut at `ERROR_BYTES_MAX`. Header names ignore case."""

    status: int
    headers: Mapping[str, str]
    body: bytearray
    length: int | None
    """The Content-Length, if there is one."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def find_proxy(scheme: str, host: str) -> tuple[str, dict[str, str]] | None:
    """Return the proxy that the environment names for *host* (http_proxy, https_proxy, all_proxy, no_proxy): its URL
    without credentials, and the headers for it alone; None where there is none. Raises `ValueError` for a proxy that is
    no http(s):// address, such as a SOCKS proxy."""
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
    """Sends requests to one server. Usable only on the event loop, and in the process, that created it."""

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
        """*address*: `http(s)://host[:port]`, with *tls* for https. *connections_max*: open at once. The caller
        must not send more requests at once, since *connect_timeout_s* includes the wait for a connection. *timeout_s*:
        for a whole exchange. *idle_timeout_s*: a connection that was idle for longer is not used again, since firewalls
        silently drop idle connections.

        Raises `ValueError` where the environment names an invalid proxy."""
        parts = urlsplit(address)
        assert parts.hostname
        self.host = parts.netloc
        """The value of the header Host, port included."""
        self._address, self._timeout_s, self._connect_timeout_s = address, timeout_s, connect_timeout_s
        self._extra_headers: dict[str, str] = {}  # headers of each request that are not signed
        self._options: dict[str, Any] = {"allow_redirects": False, "ssl": tls if tls is not None else True}
        if (proxy := find_proxy(parts.scheme, parts.hostname)) is not None:
            self._options |= {"proxy": proxy[0], "proxy_headers": proxy[1]}
            self._extra_headers = proxy[1] if tls is None else {}
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
        """Send one request for *target*, a percent-encoded path with its query; return the response of whatever status.
        A successful one may have *bytes_max* bytes of body.

        Raises `HttpError`, `OSError` (with `TimeoutError` and `ssl.SSLError`), and `ValueError` for a header that
        contains a control character."""
        if self._is_closed:
            raise HttpError("the client is closed")
        self._running += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(method, target, {**headers, **self._extra_headers}, _Value(body), bytes_max)
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError):
            raise  # an OSError with the reason
        except aiohttp.ClientError as error:
            raise _to_backend_error(error) from error
        finally:
            self._running -= 1
            await self._end()

    async def close(self) -> None:
        """Close the connections at once, or when the last running request ends. Later requests are refused."""
        self._is_closed = True
        await self._end()

    async def _end(self) -> None:
        if self._is_closed and not self._running:
            with suppress(TimeoutError):  # the peer does not read what was written
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
                raise MalformedResponse(f"an unexpected interim response {response.status}")
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
    """Read the body into one buffer, allocated with the announced *length*. Cut the body of an error response."""
    is_error = not 200 <= response.status < 300
    limit = ERROR_BYTES_MAX if is_error else bytes_max
    if length is not None and length > limit and not is_error:
        raise BodyTooLong(limit, length)
    body, filled, parts = unfilled(min(length or 0, limit)), 0, 0
    async for part, _ in response.content.iter_chunks():
        body[filled : filled + len(part)] = part  # in place, or appended where there is no Content-Length
        filled, parts = filled + len(part), parts + 1
        if parts % _TURN_PARTS == 0:
            await asyncio.sleep(0)  # tiny chunks that are buffered already would all be read in one turn of the loop
        if filled > limit:
            if not is_error:
                raise BodyTooLong(limit)
            _abort(response)
            del body[limit:]
            break
    if filled < len(body):
        raise ConnectionCut(f"{filled} of {length} bytes were received")
    return body


def _abort(response: aiohttp.ClientResponse) -> None:
    """Close the connection without sending or reading the rest, unless it was returned to the pool."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


def _length_of(headers: Mapping[str, str]) -> int | None:
    length = headers.get("content-length")
    if length is not None and not _LENGTH.fullmatch(length):
        raise MalformedResponse(f"a Content-Length of {length[:40]!r}")
    return None if length is None else int(length)


def _to_backend_error(error: aiohttp.ClientError) -> HttpError:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return HttpError(f"the proxy answered CONNECT with {error.status}")
    kind = MalformedResponse if isinstance(error, aiohttp.ClientResponseError) else ConnectionCut
    return kind(f"{type(error).__name__}: {error}")


class _Value(Payload):
    """The buffers of a value, sent without copies, and sent again where aiohttp repeats the request."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        super().__init__(buffers)
        self._size = self.bytes = size_of(buffers)
        self._transport: asyncio.WriteTransport | None = None

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Required by aiohttp for digests and logs of bodies, which this client does not use."""
        raise TypeError("a value is not text")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write all buffers to a connection; abort it where that fails."""
        assert isinstance(writer, StreamWriter)
        self._transport = writer.transport
        if self.bytes <= _JOINED_BYTES_MAX:
            await writer.write(b"".join(self._value))
            return
        try:
            writer.send_headers()  # else they are joined with the first piece, which copies it
            for buffer in self._value:
                view = memoryview(buffer).cast("B")
                for at in range(0, len(view), _PIECE_BYTES):
                    await writer.write(view[at : at + _PIECE_BYTES])
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Abort the connection, which drops the buffers that it has not sent yet."""
        if self._transport is not None:
            self._transport.abort()
