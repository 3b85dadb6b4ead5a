"""One client's connection: aiohttp's protocol and parser, with a request loop of our own.

aiohttp's parser rejects the heads that request smuggling needs (two lengths, a length with a transfer coding, folded
headers, unknown codings, bad tokens). Such a head is answered with an S3 error, and the connection is closed.

aiohttp's own loop creates a task, a request, a response and two header dictionaries for each request. The loop here
passes parsed heads to the application in the connection's own task.

Theory of operation. A connection is in one of these states; `start` runs in one task for its whole life:

    idle       `_waiter` is set: `_next` waits for a head. Received bytes count as head bytes (`_head_bytes`)
    handling   `exchange` is set: the application handles the request
    lingering  the response is sent; the rest of the request's body is read and discarded
    closing    `_graceful_close` is set: the transport is closed, and its write buffer is flushed
    lost       `connection_lost` was called

Private names of aiohttp. `RequestHandler` has no public interface for such a loop, so this class uses the private
attributes and methods in `AIOHTTP_PRIVATE`. It overrides no private method. The lock file pins aiohttp's version;
tests/s3api/test_aiohttp_names.py fails if an update renames one, test_wire.py and test_wire_hostile.py if one changes
its meaning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web import RequestHandler

from gateway.engine.types import ConnectionsTiming
from s3api.http.admission import Admission, address_group
from s3api.http.closing import GracefulClose
from s3api.http.exchange import Exchange

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.web import BaseRequest

    from s3api.http.handshakes import Handshake

RequestHandlerFunction = Callable[[Exchange], Awaitable[bool]]
"""Handles an exchange. Returns whether the connection may be kept. Raises ConnectionError if the client has
disconnected."""
Refuse = Callable[[str, str], bytes]
"""(client's address, S3 code) → the complete response to a request whose head cannot be parsed."""


AIOHTTP_PRIVATE = {
    "_messages": "parsed heads (or the parser's errors) with their bodies, oldest first",
    "_waiter": "future that ends when `_messages` gets an entry; `close` and `force_close` cancel it",
    "_parser": "the parser; None after the connection was lost",
    "_buffer_paused": "reading is paused, since too many parsed heads wait in `_messages`",
    "_msg_queue_resume_size": "the number of parsed heads at which reading is resumed",
    "_resume_reading_if_drained": "parses what is buffered and resumes reading",
    "_current_request": "the request on which `connection_lost` and `shutdown` call `_cancel`, as `Exchange` has it",
    "_request_in_progress": "whether `shutdown` waits for the end of a request",
    "_handler_waiter": "future with which `shutdown` waits for that end",
    "_drain_helper": "waits until writing is no longer paused",
}
"""The private names of `RequestHandler` and its base class that `Connection` uses, and what they mean."""


class Connection(RequestHandler):
    """One connection. Implements `exchange.Channel` and `admission.CountedConnection`.

    *handshake*: the TLS handshake, which the connection replaces in the counts; None without TLS. *write_idle_seconds*:
    how long a client may receive nothing while the connection is being closed. *idle_seconds*: how long the connection
    may be idle. *linger_seconds*: how long the rest of a body is read after its response."""

    __slots__ = (
        "_admission", "_event_loop", "_force_closed", "_graceful_close", "_handle", "_handshake", "_head_bytes",
        "_head_limit_bytes", "_idle_deadline", "_idle_seconds", "_idle_timer", "_linger_seconds", "_lost", "_refuse",
        "_write_idle_seconds", "address", "exchange", "half_closed", "remote", "task", "timing",
    )  # fmt: skip

    def __init__(
        self, manager: Any, *, loop: asyncio.AbstractEventLoop, handle: RequestHandlerFunction, refuse: Refuse,
        head_bytes: int, admission: Admission, handshake: Handshake | None, write_idle_seconds: float,
        idle_seconds: float, linger_seconds: float, timing: ConnectionsTiming, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(manager, loop=loop, keepalive_timeout=0, **options)  # idle connections are closed here
        self._event_loop = loop
        self._handle = handle
        self._refuse = refuse
        self._admission = admission
        self._head_limit_bytes = head_bytes
        self._head_bytes = 0
        self._handshake = handshake
        self._write_idle_seconds = write_idle_seconds
        self._graceful_close: GracefulClose | None = None
        self._idle_seconds = idle_seconds
        self._idle_deadline = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._linger_seconds = linger_seconds
        self._force_closed = False
        self._lost = False
        self.exchange: Exchange | None = None
        """The exchange in progress."""
        self.half_closed = False
        self.timing = timing
        self.remote = ""
        """The client's address."""
        self.address = ""
        """The address under which the connection is counted (`admission.address_group`)."""
        self.task: asyncio.Task[object] | None = None
        """The task that runs `start`, and so handles all requests."""

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""
        waiter = self._waiter
        return waiter is not None and not waiter.done() and not self._messages

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection. At the limit, respond with SlowDown and close it."""
        super().connection_made(transport)
        self._start_idle_timer()
        peer = self.peername
        self.remote = str(peer[0]) if isinstance(peer, tuple) else str(peer or "")
        self.address = address_group(peer) if self._handshake is None else self._handshake.address
        if self._handshake is None:
            if not self._admission.all_connections.admit(self):
                # It is not counted, so it must not stay open for a client that receives nothing.
                self._write_idle_seconds = 0.0
                self._reject("SlowDown")
        elif not self._handshake.connected(self):
            self.evict()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release what is counted for the connection."""
        self._lost = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._graceful_close is not None:
            self._graceful_close.cancel()
        super().connection_lost(exc)
        self._admission.all_connections.remove(self)
        self._release_head()

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the parser. Reject a head that is too long, or that exceeds the limit of all heads together."""
        super().data_received(data)
        waiter = self._waiter
        if waiter is None or waiter.done():
            if self._head_bytes:
                self._release_head()
        elif self._head_bytes + len(data) > self._head_limit_bytes:
            self._reject("RequestHeaderSectionTooLarge")
        elif self._admission.reserve_head(self.address, len(data)):
            self._head_bytes += len(data)
        else:
            self._reject("SlowDown")

    def _release_head(self) -> None:
        self._admission.release_head(self.address, self._head_bytes)
        self._head_bytes = 0

    def _reject(self, code: str) -> None:
        self._write_refusal(code)
        self.force_close()

    def evict(self) -> None:
        """Abort this idle connection, to make room for another one."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def force_close(self) -> None:
        """Close the connection after its write buffer is sent, without waiting for a request in progress."""
        transport, self.transport = self.transport, None
        self._force_closed = True
        super().force_close()
        self._close_gracefully(transport)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 (as aiohttp declares it)
        """Start no further request, wait for the one in progress and cancel it, each for *timeout* seconds (None:
        without a limit), and close the connection."""
        self._force_closed = True
        await super().shutdown(timeout)

    def _close_gracefully(self, transport: asyncio.Transport | None) -> None:
        if transport is not None and self._graceful_close is None and not self._lost:
            self._graceful_close = GracefulClose(transport, self._write_idle_seconds, self.timing.close_seconds)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Handle the end of the client's sending side; the client may still receive. A complete request is answered, an
        incomplete body is rejected, and then the connection is closed."""
        if self.idle:
            self._close_gracefully(self.transport)
            return None
        self.half_closed = True
        self.close()  # aiohttp parses no further bytes
        if self.exchange is not None:
            self.exchange.half_closed()
        if self._handshake is None:
            return True
        self._close_gracefully(self.transport)  # asyncio closes a TLS transport, whatever is returned here
        return None

    async def start(self) -> None:
        """Handle requests one after the other until the connection is to be closed. Called by aiohttp."""
        self.task = asyncio.current_task()
        try:
            while not self._force_closed:
                message, payload = await self._next()
                if not isinstance(message, RawRequestMessage):
                    self._write_refusal(
                        "RequestHeaderSectionTooLarge" if isinstance(message.exc, LineTooLong) else "BadRequest"
                    )
                    break
                keep = await self._serve_request(message, payload)
                if not payload.is_eof() and not await self._linger(payload):
                    break
                if not keep or self.half_closed:
                    break
                self._start_idle_timer()
        except ConnectionError:
            pass
        except asyncio.CancelledError:
            self.force_close()
            raise
        except Exception as error:  # noqa: BLE001 (an access log that raises, or a bug, must not leave a client waiting)
            self.log_exception("a connection failed", exc_info=error)
            self.force_close()
        if not self._force_closed:
            self._close_gracefully(self.transport)

    async def _next(self) -> tuple[Any, StreamReader]:
        """Return the next parsed head (or the parser's error) and the request's body. Raises ConnectionError if there
        is none and the server is stopping."""
        if not self._messages:
            if self._admission.closed:
                raise ConnectionResetError("the server is stopping")
            self._waiter = self._event_loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message, payload = self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        return message, payload

    async def _serve_request(self, message: RawRequestMessage, payload: StreamReader) -> bool:
        exchange = Exchange(message, payload, self)
        # aiohttp reads these three attributes when a connection is lost and at shutdown.
        self._current_request = cast("BaseRequest", exchange)
        self._request_in_progress = True
        self.exchange = exchange
        try:
            return await self._handle(exchange)
        finally:
            self.exchange = self._current_request = None
            self._request_in_progress = False
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)

    async def _linger(self, payload: StreamReader) -> bool:
        """Read and discard the rest of a body for a limited time, so that the client can receive its response: closing
        at once would reset the connection, and the client would lose the response (RFC 9112 section 9.6).

        Returns whether the body was read to its end."""
        with suppress(Exception):  # the body is discarded, and after an error in it the connection is closed
            async with asyncio.timeout(self._linger_seconds):
                while not payload.is_eof():
                    await payload.readany()
        return payload.is_eof()

    def skip_lingering(self) -> None:
        """Close the connection right after this response, without reading the rest of the body."""
        self._linger_seconds = 0.0

    def _start_idle_timer(self) -> None:
        """Close the connection if it is idle in `_idle_seconds`. One timer runs at a time; a later deadline does not
        replace it, since that would cost every request a timer."""
        self._idle_deadline = self._event_loop.time() + self._idle_seconds
        if self._idle_timer is None:
            self._idle_timer = self._event_loop.call_at(self._idle_deadline, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        if self._event_loop.time() < self._idle_deadline:
            self._idle_timer = self._event_loop.call_at(self._idle_deadline, self._close_if_idle)
        elif self.idle:
            self.force_close()

    def _write_refusal(self, code: str) -> None:
        if self.transport is not None:
            self.transport.write(self._refuse(self.remote, code))

    async def wait_drained(self) -> None:
        """Wait until the client has received most of the write buffer."""
        if self.transport is not None and self.writing_paused:
            await self._drain_helper()
