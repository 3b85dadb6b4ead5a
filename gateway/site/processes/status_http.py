"""The HTTP server for monitoring: /metrics, /healthz (alive) and /readyz (ready). Plain HTTP; shows no names, no
secrets.

Clients can use up neither the descriptors nor the memory of the supervisor. There are at most `CONNECTIONS_MAX`
connections. A new one beyond that replaces the oldest idle one; if none is idle, the oldest one whose client has not
read its answer yet. A connection for which an answer is being made is never ended for another one: if all are, the new
one is refused, and each of the others ends with the answer that is being made for it. Each connection also ends
`connection_seconds` after it was accepted; one that is busy then may finish its answer within `last_answer_seconds`. So
connections that are left open keep no scraper out, and a scraper that finds its idle connection closed opens another.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from aiohttp import web

from gateway.config import Address
from gateway.errors import Misconfigured
from gateway.metrics.aggregate import CONTENT_TYPE
from gateway.timing import Timing

Status = tuple[bool, dict[str, Any]]
CONNECTIONS_MAX = 64
HEAD_LINE_BYTES_MAX = 4 << 10
HEADERS_MAX = 64


class _Server(web.Server):
    """Creates connections, and closes those that are too many or too old."""

    def __init__(self, answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], timing: Timing) -> None:
        super().__init__(cast("Any", answer))
        self._times = timing.probes
        self._open: dict[_Connection, asyncio.TimerHandle] = {}
        """The open connections, oldest first, each with the timer that closes it."""

    def __call__(self) -> web.RequestHandler:
        return _Connection(
            self,
            loop=self._loop,
            access_log=None,
            lingering_time=0.0,  # no request here has a body
            max_line_size=HEAD_LINE_BYTES_MAX,
            max_field_size=HEAD_LINE_BYTES_MAX,
            max_headers=HEADERS_MAX,
        )

    def made(self, connection: _Connection) -> None:
        """Count a new connection. If there are too many, close another one, or refuse this one."""
        if len(self._open) >= CONNECTIONS_MAX:
            least = self._least_needed()
            if least is None:
                for each in self._open:
                    each.close()  # after the answer that is being made
                connection.abort()
                return
            self.lost(least)
            least.abort()
        self._open[connection] = self._loop.call_later(self._times.connection_seconds, self._expire, connection)

    def _least_needed(self) -> _Connection | None:
        """The oldest connection that is idle, or else the oldest one whose answer is made but not read; None if an
        answer is being made for each."""
        left = [each for each in self._open if not each.answering]
        return next((each for each in left if not each.unsent), left[0] if left else None)

    def _expire(self, connection: _Connection) -> None:
        if connection.answering or connection.unsent:
            connection.close()  # after its answers were sent
            self._open[connection] = self._loop.call_later(self._times.last_answer_seconds, connection.abort)
        else:
            connection.abort()

    def lost(self, connection: _Connection) -> None:
        """Stop counting a connection. May be called more than once."""
        timer = self._open.pop(connection, None)
        if timer is not None:
            timer.cancel()


class _Connection(web.RequestHandler):
    __slots__ = ("_making", "_owner")

    def __init__(self, owner: _Server, **options: Any) -> None:
        super().__init__(owner, **options)
        self._owner = owner
        self._making = False

    @property
    def answering(self) -> bool:
        """Whether a whole request has arrived for which no answer has been made yet. Requests that wait until the
        client reads the answers before theirs do not count."""
        return self._making or (bool(self._messages) and not self.unsent)

    @property
    def unsent(self) -> bool:
        """Whether a part of an answer was not sent yet, because the client does not read."""
        return self.transport is not None and self.transport.get_write_buffer_size() > 0

    @contextmanager
    def making(self) -> Iterator[None]:
        """Mark that an answer is being made."""
        self._making = True
        try:
            yield
        finally:
            self._making = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._owner.made(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._owner.lost(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once; unsent bytes are dropped."""
        if self.transport is not None:
            self.transport.abort()


class StatusServer:
    """The server. Its answers come from the three functions that it is given."""

    def __init__(
        self,
        metrics: Callable[[], bytes],
        health: Callable[[], Status],
        readiness: Callable[[], Awaitable[Status]],
        timing: Timing,
    ) -> None:
        self._timing = timing
        self._metrics = metrics
        self._health = health
        self._readiness = readiness
        self._probing = asyncio.Lock()
        self._last: tuple[float, Status] | None = None
        self._runner: web.ServerRunner | None = None
        self.address = Address("", 0)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        server = self._runner.server if self._runner is not None else None
        return len(server.connections) if server is not None else 0

    @classmethod
    async def open(
        cls,
        address: Address,
        metrics: Callable[[], bytes],
        health: Callable[[], Status],
        readiness: Callable[[], Awaitable[Status]],
        timing: Timing,
    ) -> StatusServer:
        """Listen. Raises `Misconfigured` if the address is taken."""
        self = cls(metrics, health, readiness, timing)
        self._runner = web.ServerRunner(_Server(self._answer, timing))
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, *address).start()
        except OSError as error:
            await self._runner.cleanup()
            raise Misconfigured(f"cannot listen on {address} for metrics: {error.strerror or error}") from error
        self.address = Address(address.host, self._runner.addresses[0][1])
        return self

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        with cast("_Connection", request.protocol).making():
            return await self._answer_to(request)

    async def _answer_to(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        match request.path:
            case "/metrics":
                return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})
            case "/healthz":
                return _response(self._health())
            case "/readyz":
                return _response(await self._ready())
        return web.Response(status=404, text="there are /metrics, /healthz and /readyz\n")

    async def _ready(self) -> Status:
        async with self._probing:  # concurrent requests share one probe
            clock, seconds = self._timing.clock, self._timing.probes.readiness_seconds
            if self._last is None or clock.monotonic() - self._last[0] > seconds:
                self._last = (clock.monotonic(), await self._readiness())
            return self._last[1]


def _response(status: Status) -> web.Response:
    is_well, details = status
    return web.Response(
        status=200 if is_well else 503,
        text=json.dumps({"ok": is_well, **details}) + "\n",
        content_type="application/json",
    )
