"""The listening side: an aiohttp low-level server around the door, and its graceful end.

The owner of the process brings the socket and the TLS context, which may be another one for each connection.
"""

from __future__ import annotations

import asyncio
import logging
from socket import socket
from typing import TYPE_CHECKING, Any, cast

from aiohttp.web import RequestHandler, Server

from gateway.timing import Timing
from s3api.access_log import AccessLog
from s3api.app import S3App
from s3api.http.admission import Admission
from s3api.http.connection import Connection
from s3api.http.handshakes import HANDSHAKES_MOST, Handshake, TlsContextFactory, TlsListener
from s3api.settings import S3Settings

if TYPE_CHECKING:
    from gateway.engine.engine import Engine

READ_BYTES_MOST, READ_BYTES_LEAST = 256 << 10, 16 << 10
"""A body that nobody reads is taken in up to twice this before its connection is paused."""
READ_BYTES_TOGETHER = 16 << 20
"""What that comes to, as far as may be, over all connections: where they are many, each takes in less."""
ENDED_TOGETHER = 100
"""Idle connections that end in one turn of the loop when the server stops: with TLS each has a goodbye to encrypt."""
_quiet = logging.getLogger("entrepot.s3.connections")


class S3Server(Server):
    """A protocol factory for `loop.create_server`: one `Connection` a client."""

    def __init__(self, app: S3App, settings: S3Settings, timing: Timing) -> None:
        self._app = app
        options: dict[str, Any] = {
            "auto_decompress": False,
            "keepalive_timeout": settings.idle_seconds,
            "lingering_time": timing.connections.linger_seconds,
            "max_line_size": settings.head_bytes,
            "max_field_size": settings.head_bytes,
            "max_headers": settings.header_count,
            "access_log": None,
            "logger": _quiet,
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
        """The protocol of a new connection; *handshake*: that of TLS, where that is spoken."""
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
        """Requests that are being answered."""
        return self._app.in_flight

    async def wind_down(self) -> None:
        """From now on every answer ends its connection, and connections without a request end at once."""
        self._app.closing = self.admission.closed = True
        for number, connection in enumerate(self.connections, 1):
            if isinstance(connection, Connection) and connection.idle:
                connection.force_close()
            if number % ENDED_TOGETHER == 0:
                await asyncio.sleep(0)


class RunningServer:
    """A server that listens, until `stop`."""

    def __init__(self, server: S3Server, listening: asyncio.Server | TlsListener, port: int) -> None:
        self.port = port
        """The port that it listens on."""
        self._server = server
        self._listening = listening

    async def stop(self, grace_seconds: float) -> None:
        """Take no more connections, end those without a request, let the requests in flight finish, and cut what is
        left after *grace_seconds*."""
        self._listening.close()
        await self._server.wind_down()
        durations, clock = self._server.timing.connections, self._server.timing.clock
        deadline = clock.monotonic() + grace_seconds
        while self._server.connections and clock.monotonic() < deadline:  # aiohttp has no event for their end
            await clock.sleep(durations.stop_look_seconds)
        await self._server.shutdown(durations.cut_seconds)


def make_server(engine: Engine, settings: S3Settings, access_log: AccessLog, timing: Timing) -> S3Server:
    """An S3 server over *engine*. To be called on a running loop; `serve` makes it listen."""
    return S3Server(S3App(engine, settings, access_log, timing.clock), settings, timing)


async def serve(
    server: S3Server, sock: socket, tls: TlsContextFactory | None = None, backlog: int = 1024
) -> RunningServer:
    """Listen on the bound *sock*. *tls* answers the context of each new connection; None: without TLS."""
    port = int(sock.getsockname()[1])
    listening: asyncio.Server | TlsListener
    if tls is None:
        listening = await asyncio.get_running_loop().create_server(server, sock=sock, backlog=backlog)
    else:
        sock.listen(backlog)
        listening = TlsListener(sock, tls, lambda: server.admission, server.connection, server.timing.connections)
    return RunningServer(server, listening, port)
