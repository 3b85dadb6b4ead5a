"""One client's connection: aiohttp's protocol and parser, with a loop over requests that is ours.

What aiohttp's parser refuses (two lengths, a length beside a transfer coding, folded headers, unknown codings, bad
tokens: the forms that request smuggling needs) is answered here as S3 XML, and the connection ends.

aiohttp's own loop makes a task, a request, a response and two header dictionaries for each request; this one hands
parsed heads to the door in the task that it runs in. It uses names of aiohttp that are not public: the lock file pins
the version, and the tests of the wire (tests/s3api/test_wire.py, test_wire_hostile.py) notice when they change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web import RequestHandler

from gateway.timing.durations import ConnectionsTiming
from s3api.http.admission import Admission, address_group
from s3api.http.closing import GracefulClose
from s3api.http.exchange import Exchange

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.web import BaseRequest

    from s3api.http.handshakes import Handshake

RequestHandlerFunction = Callable[[Exchange], Awaitable[bool]]
"""Answers an exchange; whether its connection may live on. Raises ConnectionError when there is nobody to answer."""
Refuse = Callable[[str, str], bytes]
"""(the peer's address, S3's code) → the whole answer to a request that could not be read."""


class Connection(RequestHandler):
    """One connection. Its head bytes are counted while no request is under way.

    *handshake*: what was counted for it until now, where it speaks TLS. *write_idle_seconds*: how long a client may
    take no byte of what is unsent when the connection is to end."""

    __slots__ = (
        "_admission", "_graceful_close", "_handle", "_handshake", "_head_bytes", "_head_limit_bytes", "_lost",
        "_refuse", "_write_idle_seconds", "address", "exchange", "half_closed", "remote", "timing",
    )  # fmt: skip

    def __init__(
        self, manager: Any, *, handle: RequestHandlerFunction, refuse: Refuse, head_bytes: int, admission: Admission,
        handshake: Handshake | None, write_idle_seconds: float, timing: ConnectionsTiming, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(manager, **options)
        self._handle = handle
        self._refuse = refuse
        self._admission = admission
        self._head_limit_bytes = head_bytes
        self._head_bytes = 0
        self._handshake = handshake
        self._write_idle_seconds = write_idle_seconds
        self._graceful_close: GracefulClose | None = None
        self._lost = False
        self.exchange: Exchange | None = None
        """The one that is under way."""
        self.half_closed = False
        self.timing = timing
        self.remote = ""
        """The peer's address."""
        self.address = ""
        """What of it counts as one (`admission.group_of`)."""

    @property
    def idle(self) -> bool:
        """No request is under way."""
        waiter = self._waiter
        return waiter is not None and not waiter.done() and not self._messages

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody came, for whom there may be no room."""
        super().connection_made(transport)
        peer = self.peername
        self.remote = str(peer[0]) if isinstance(peer, tuple) else str(peer or "")
        self.address = address_group(peer) if self._handshake is None else self._handshake.address
        if self._handshake is None:
            if not self._admission.crowd.admit(self):
                self._write_idle_seconds = 0.0  # it is not counted, so it may not stay for who takes no answer
                self._reject("SlowDown")
        elif not self._handshake.connected(self):
            self.evict()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Somebody is gone."""
        self._lost = True
        if self._graceful_close is not None:
            self._graceful_close.end()
        super().connection_lost(exc)
        self._admission.crowd.remove(self)
        self._release_head()

    def data_received(self, data: bytes) -> None:
        """Bytes came. A head that does not end within its bound is refused."""
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
        """End at once, for another connection, since nothing is under way on this one."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def force_close(self) -> None:
        """End once what is written is sent, as far as the client takes it; what is under way is not waited for."""
        transport, self.transport = self.transport, None
        super().force_close()
        self._close_gracefully(transport)

    def _close_gracefully(self, transport: asyncio.Transport | None) -> None:
        if transport is not None and self._graceful_close is None and not self._lost:
            self._graceful_close = GracefulClose(transport, self._write_idle_seconds, self.timing.close_seconds)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client has sent its last byte, but may still read. What it asked for whole is answered; a body that now
        can never become whole is refused; then the connection ends."""
        if self.idle:
            self._close_gracefully(self.transport)
            return None
        self._close = self.half_closed = True
        if self.exchange is not None:
            self.exchange.half_closed()
        if self._handshake is None:
            return True
        self._close_gracefully(
            self.transport
        )  # TLS cannot be half closed: asyncio closes the transport whatever is answered here
        return None

    async def start(self) -> None:
        """Answer requests, one after the other, until the connection is to end."""
        try:
            while not self._force_close:
                message, payload = await self._next()
                if not isinstance(message, RawRequestMessage):
                    self._write_refusal(
                        "RequestHeaderSectionTooLarge" if isinstance(message.exc, LineTooLong) else "BadRequest"
                    )
                    break
                self._keepalive = await self._serve_request(message, payload)
                if not payload.is_eof():
                    await self._linger(payload)
                if not self._keepalive or self._close:
                    break
                self._start_keepalive_timer()
        except ConnectionError:
            pass
        except asyncio.CancelledError:
            self.force_close()
            raise
        except Exception as error:  # noqa: BLE001 (an observer that raises, or our own mistake: it must not hang a client)
            self.log_exception("a connection failed", exc_info=error)
            self.force_close()
        if not self._force_close:
            self._task_handler = None
            self._close_gracefully(self.transport)

    async def _next(self) -> tuple[Any, StreamReader]:
        """The next head that was parsed, or why one could not be, and the payload behind it. Raises ConnectionError
        where there is none, and none is waited for any more."""
        if not self._messages:
            if self._admission.closed:
                raise ConnectionResetError("the server stops")
            self._waiter = self._loop.create_future()
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
        # aiohttp's end of a connection and its shutdown look at these three.
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

    async def _linger(self, payload: StreamReader) -> None:
        """Read away what is left of a body, for a while, so that the client gets to read its answer: closing at once
        would reset the connection and throw the answer away (RFC 9112 section 9.6)."""
        with suppress(Exception):  # whatever is wrong with a body that nobody wants, the connection ends
            async with asyncio.timeout(self._lingering_time):
                while not payload.is_eof():
                    await payload.readany()
        if not payload.is_eof():
            self._keepalive = False

    def skip_lingering(self) -> None:
        """Behind this answer the connection ends at once."""
        self._lingering_time = 0.0

    def _start_keepalive_timer(self) -> None:
        close_time = self._loop.time() + self._keepalive_timeout
        self._next_keepalive_close_time = close_time
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(close_time, self._process_keepalive)

    def _write_refusal(self, code: str) -> None:
        if self.transport is not None:
            self.transport.write(self._refuse(self.remote, code))

    async def wait_drained(self) -> None:
        """Wait until the client has taken most of what was written."""
        if self.transport is not None and self._paused:
            await self._drain_helper()
