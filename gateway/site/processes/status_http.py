"""The address for those who watch: /metrics, /healthz (alive) and /readyz (able). Plain HTTP, no names, no secrets.

Clients can take neither descriptors nor memory from the supervisor. There are at most `CONNECTIONS_MAX` connections. A
new one beyond that replaces the oldest idle one; if none is idle, the oldest one whose client has not read its answer
yet. A connection for which an answer is being made is never ended for another one: if all are, the new one is refused,
and each of the others ends with the answer that is being made for it. Each connection also ends `connection_seconds`
after it was accepted; one that is busy then may finish its answer within `last_answer_seconds`. So connections that are
left open keep no scraper out, and a scraper that finds its idle connection closed opens another.
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

Found = tuple[bool, dict[str, Any]]
CONNECTIONS_MAX = 64
HEAD_LINE_BYTES_MAX = 4 << 10
HEADERS_MAX = 64


class _Server(web.Server):
    """Makes connections, and ends those that are too many or too old."""

    def __init__(self, answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], timing: Timing) -> None:
        super().__init__(cast("Any", answer))
        self._times = timing.probes
        self._open: dict[_Connection, asyncio.TimerHandle] = {}
        """Oldest first, with what ends each."""

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
        """Count a new connection, and end another one for it or refuse it if there are too many."""
        if len(self._open) >= CONNECTIONS_MAX:
            least = self._least_needed()
            if least is None:
                for each in self._open:
                    each.close()  # with the answer that is being made
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
            connection.close()  # once its answers are sent
            self._open[connection] = self._loop.call_later(self._times.last_answer_seconds, connection.abort)
        else:
            connection.abort()

    def lost(self, connection: _Connection) -> None:
        """Count it no more. Harmless where it is not counted."""
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
        """While the answer to a request is made."""
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
        """End it now, whatever is unsent."""
        if self.transport is not None:
            self.transport.abort()


class Overview:
    """The server. It asks for what it tells by the three functions that it is given."""

    def __init__(
        self,
        metrics: Callable[[], bytes],
        health: Callable[[], Found],
        readiness: Callable[[], Awaitable[Found]],
        timing: Timing,
    ) -> None:
        self._timing = timing
        self._metrics = metrics
        self._health = health
        self._readiness = readiness
        self._probing = asyncio.Lock()
        self._last: tuple[float, Found] | None = None
        self._runner: web.ServerRunner | None = None
        self.address = Address("", 0)

    @property
    def connections(self) -> int:
        """Open now."""
        server = self._runner.server if self._runner is not None else None
        return len(server.connections) if server is not None else 0

    @classmethod
    async def open(
        cls,
        address: Address,
        metrics: Callable[[], bytes],
        health: Callable[[], Found],
        readiness: Callable[[], Awaitable[Found]],
        timing: Timing,
    ) -> Overview:
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
                return _said(self._health())
            case "/readyz":
                return _said(await self._ready())
        return web.Response(status=404, text="here are /metrics, /healthz and /readyz\n")

    async def _ready(self) -> Found:
        async with self._probing:  # many who ask at once cause one probe
            clock, seconds = self._timing.clock, self._timing.probes.readiness_seconds
            if self._last is None or clock.monotonic() - self._last[0] > seconds:
                self._last = (clock.monotonic(), await self._readiness())
            return self._last[1]


def _said(found: Found) -> web.Response:
    well, told = found
    return web.Response(
        status=200 if well else 503,
        text=json.dumps({"ok": well, **told}) + "\n",
        content_type="application/json",
    )
