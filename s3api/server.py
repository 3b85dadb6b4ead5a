"""The S3 server: an aiohttp low-level server around `S3App`, and its graceful stop.

The caller provides the bound socket, and a function that returns the TLS context for each new connection.
"""

from __future__ import annotations

import asyncio
import logging
from socket import socket
from typing import TYPE_CHECKING, Any, cast

from aiohttp.web import RequestHandler, Server

from gateway.engine.types import Timing
from s3api.access_log import AccessLog
from s3api.app import S3App
from s3api.http.admission import Admission
from s3api.http.connection import Connection
from s3api.http.handshakes import HANDSHAKES_MOST, Handshake, TlsContextFactory, TlsListener
from s3api.settings import S3Settings

if TYPE_CHECKING:
    from gateway.engine.engine import Engine

READ_BYTES_MOST, READ_BYTES_LEAST = 256 << 10, 16 << 10
"""The limits of a connection's read buffer. Up to twice the limit is buffered before the connection is paused."""
READ_BYTES_TOGETHER = 16 << 20
"""The target for all read buffers together: the more connections there are, the smaller each buffer."""
ENDED_TOGETHER = 100
"""How many idle connections are closed in one turn of the event loop when the server stops. With TLS, each of them
encrypts a close_notify."""
_connections_log = logging.getLogger("entrepot.s3.connections")


class S3Server(Server):
    """A protocol factory for `loop.create_server`, which creates a `Connection` for each client."""

    def __init__(self, app: S3App, settings: S3Settings, timing: Timing) -> None:
        self._app = app
        options: dict[str, Any] = {
            "auto_decompress": False,
            "idle_seconds": settings.idle_seconds,
            "linger_seconds": timing.connections.linger_seconds,
            "max_line_size": settings.head_bytes,
            "max_field_size": settings.head_bytes,
            "max_headers": settings.header_count,
            "access_log": None,
            "logger": _connections_log,
        }
        super().__init__(cast("Any", app.handle))
        self._options = options
        self._head_bytes = settings.head_bytes
        self._write_idle_seconds = settings.write_idle_seconds
        self.timing = timing
        self.admission = Admission(settings.connections, settings.heads_bytes, HANDSHAKES_MOST)

    def __call__(self) -> RequestHandler:
        return self.connection()

    def connection(self, handshake: Handshake | None = None) -> Connection:
        """Return the protocol of a new connection. *handshake*: its TLS handshake; None without TLS."""
        app = self._app
        share = READ_BYTES_TOGETHER // (self.admission.connections + 1)
        return Connection(
            self, loop=self._loop, handle=app.handle, refuse=app.refuse, head_bytes=self._head_bytes,
            admission=self.admission, handshake=handshake, write_idle_seconds=self._write_idle_seconds,
            timing=self.timing.connections,
            read_bufsize=max(READ_BYTES_LEAST, min(share, READ_BYTES_MOST)), **self._options,
        )  # fmt: skip

    @property
    def in_flight(self) -> int:
        """The number of requests in progress."""
        return self._app.in_flight

    async def close_connections(self) -> None:
        """Close each connection after its current response, and idle connections at once."""
        self._app.closing = self.admission.closed = True
        for number, connection in enumerate(self.connections, 1):
            if isinstance(connection, Connection) and connection.idle:
                connection.force_close()
            if number % ENDED_TOGETHER == 0:
                await asyncio.sleep(0)


class RunningServer:
    """A server that listens until `stop` is called."""

    def __init__(self, server: S3Server, listening: asyncio.Server | TlsListener, port: int) -> None:
        self.port = port
        """The port on which it listens."""
        self._server = server
        self._listening = listening

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, close idle connections, and wait for the requests in progress. After *grace_seconds* the
        remaining connections are aborted."""
        self._listening.close()
        await self._server.close_connections()
        durations, clock = self._server.timing.connections, self._server.timing.clock
        deadline = clock.monotonic() + grace_seconds
        while self._server.connections and clock.monotonic() < deadline:  # aiohttp has no event for the last one
            await clock.sleep(durations.stop_look_seconds)
        await self._server.shutdown(durations.cut_seconds)


def make_server(engine: Engine, settings: S3Settings, access_log: AccessLog, timing: Timing) -> S3Server:
    """Return an S3 server for *engine*. Must be called in a running event loop. `serve` makes it listen."""
    return S3Server(S3App(engine, settings, access_log, timing.clock), settings, timing)


async def serve(
    server: S3Server, sock: socket, tls: TlsContextFactory | None = None, backlog: int = 1024
) -> RunningServer:
    """Listen on the bound *sock*. *tls* returns the TLS context of each new connection; None: no TLS."""
    port = int(sock.getsockname()[1])
    listening: asyncio.Server | TlsListener
    if tls is None:
        listening = await asyncio.get_running_loop().create_server(server, sock=sock, backlog=backlog)
    else:
        sock.listen(backlog)
        listening = TlsListener(sock, tls, lambda: server.admission, server.connection, server.timing.connections)
    return RunningServer(server, listening, port)
