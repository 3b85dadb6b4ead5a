"""A client for one server: it keeps connections, and follows no redirect, since it sends to that server alone.

Retries: a request whose connection had been idle and ended before a byte of the answer came is sent once more, on a
new connection; servers close idle connections at any time. All requests here may be repeated (RFC 9110, 9.2.2).
Nothing else is tried again.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from backends.base import Buffer, size_of
from backends.http.answers import Answer
from backends.http.connection import Connection
from backends.http.errors import ConnectionCut, HttpError
from backends.http.proxies import Proxy, proxy_for


class HttpClient:
    """Sends requests to one server. Of use on the event loop that it was made on."""

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None,
        *,
        idle_max: int,
        connect_timeout_s: float,
        timeout_s: float,
        idle_timeout_s: float,
    ) -> None:
        """*url*: `http(s)://host[:port]`, with *tls* for https. *idle_max*: how many idle connections are kept.
        *timeout_s*: for a whole exchange. *idle_timeout_s*: an older idle connection is not used again, since firewalls
        on the way forget idle connections without a word.

        Raises `ValueError` where the environment names a proxy that is none."""
        parts = urlsplit(url)
        assert parts.hostname
        self.host = parts.netloc
        """What the header Host says, port included."""
        self._hostname, self._tls = parts.hostname, tls
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._proxy: Proxy | None = proxy_for(parts.scheme, parts.hostname)
        self._idle_max, self._idle_timeout_s = idle_max, idle_timeout_s
        self._connect_timeout_s, self._timeout_s = connect_timeout_s, timeout_s
        self._idle: deque[Connection] = deque()
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: Sequence[Buffer] = (), *, bytes_max: int
    ) -> Answer:
        """Send one request for *target*, an encoded path with its query, and return the answer, whatever its status.
        A success has at most *bytes_max* bytes of body.

        Raises `HttpError`, `OSError` (with `TimeoutError` and `ssl.SSLError`), and `ValueError` for a header that
        contains a line end or is no Latin-1."""
        head = self._head(method, target, headers, body)
        async with asyncio.timeout(self._timeout_s):
            if (connection := self._take_idle()) is not None:
                try:
                    return await self._exchange(connection, method, head, body, bytes_max)
                except ConnectionCut as cut:
                    if cut.begun:
                        raise
            return await self._exchange(await self._connect(), method, head, body, bytes_max)

    def close(self) -> None:
        """Close idle connections now, and others when their exchange ends."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _head(self, method: str, target: str, headers: Mapping[str, str], body: Sequence[Buffer]) -> bytes:
        lines = dict(headers)
        if body or method == "PUT":
            lines["content-length"] = str(size_of(body))
        if self._proxy is not None and self._tls is None:
            target = f"http://{self.host}{target}"
            lines |= self._for_proxy()
        if any("\r" in value or "\n" in value for value in lines.values()):
            raise ValueError("a header contains a line end")
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{method} {target} HTTP/1.1\r\n{text}\r\n".encode("latin-1")

    def _for_proxy(self) -> dict[str, str]:
        told = self._proxy.authorization if self._proxy is not None else ""
        return {"proxy-authorization": told} if told else {}

    async def _exchange(
        self, connection: Connection, method: str, head: bytes, body: Sequence[Buffer], bytes_max: int
    ) -> Answer:
        answer = await connection.exchange(method, head, body, bytes_max)
        self._keep(connection)
        return answer

    def _take_idle(self) -> Connection | None:
        """The connection that was used last, if it is still good."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and self._loop.time() - connection.idle_since <= self._idle_timeout_s:
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        if not connection.is_usable:
            return
        if self._is_closed:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        oldest = self._idle[0]
        if len(self._idle) > self._idle_max or connection.idle_since - oldest.idle_since > self._idle_timeout_s:
            self._idle.popleft().close()

    async def _connect(self) -> Connection:
        async with asyncio.timeout(self._connect_timeout_s):
            if self._proxy is None:
                return await self._open(self._hostname, self._port, self._tls)
            proxy_tls = await asyncio.to_thread(ssl.create_default_context) if self._proxy.is_tls else None
            connection = await self._open(self._proxy.host, self._proxy.port, proxy_tls)
            if self._tls is not None:
                await self._tunnel(connection, self._tls)
            return connection

    async def _tunnel(self, connection: Connection, tls: ssl.SSLContext) -> None:
        """Have the proxy pass bytes on to the server (RFC 9110, 9.3.6), and begin TLS with that."""
        name = f"[{self._hostname}]" if ":" in self._hostname else self._hostname
        lines = {"host": f"{name}:{self._port}"} | self._for_proxy()
        text = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        head = f"CONNECT {name}:{self._port} HTTP/1.1\r\n{text}\r\n".encode("latin-1")
        answer = await connection.exchange("CONNECT", head, (), 0)
        try:
            if not (answer.is_success and connection.is_usable):
                raise HttpError(f"the proxy answered CONNECT with {answer.status}")
            await connection.start_tls(tls, self._hostname, self._connect_timeout_s)
        except BaseException:
            connection.abort()
            raise

    async def _open(self, host: str, port: int, tls: ssl.SSLContext | None) -> Connection:
        sock = await self._open_socket(host, port)
        try:
            options = {"ssl": tls, "server_hostname": host} if tls is not None else {}
            _, connection = await self._loop.create_connection(Connection, sock=sock, **options)  # type: ignore[call-overload]
        except BaseException:
            sock.close()
            raise
        assert isinstance(connection, Connection)
        return connection

    async def _open_socket(self, host: str, port: int) -> socket.socket:
        """Connect to the first address of *host* that answers; each has an equal share of the time."""
        addresses = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure: OSError = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in addresses:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                async with asyncio.timeout(self._connect_timeout_s / len(addresses)):
                    await self._loop.sock_connect(sock, address)
            except OSError as error:  # with TimeoutError
                sock.close()
                failure = error
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise failure
