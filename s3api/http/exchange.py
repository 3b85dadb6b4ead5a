"""One request and its answer on one connection. Here, and in `connection`, aiohttp's own types end.

Answers are written to the transport as bytes, headers and small bodies in one piece.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.engine.types import Buffer
from s3api.errors import S3Error
from s3api.response import BODILESS, STATUS_LINES, Response

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.http import RawRequestMessage

    from s3api.http.connection import Connection

OLDEST, NEWEST = (1, 0), (1, 1)
"""The versions of HTTP that are spoken."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PROBES = 4
"""Interim responses at most to a client that sends no more."""
ONE_PIECE_BYTES = 64 << 10
"""Bodies up to here are copied behind their headers, so that one write carries both."""


class Exchange:
    """One request: its head, its payload, and the way back."""

    __slots__ = ("_probes", "continued", "message", "payload", "protocol", "received", "response_started", "task")

    def __init__(self, message: RawRequestMessage, payload: StreamReader, protocol: Connection) -> None:
        self.message = message
        self.payload = payload
        self.protocol = protocol
        self.received = 0
        """Body bytes that were read."""
        self.continued = False
        """`100 Continue` went out."""
        self.response_started = False
        """Some of the answer went out."""
        self.task: asyncio.Task[object] | None = None
        """The task that works on the answer, and that is cancelled when the client is gone."""
        self._probes = PROBES
        if protocol.half_closed:
            self.half_closed()

    def _cancel(self, error: BaseException) -> None:
        """aiohttp calls this when the connection is lost: nobody waits for the answer any more.

        Cancelling is safe at any moment. A command that is on its way to the committer stays on its way, and what was
        stored for it is kept until its outcome is known (`Writer.storing`, `Journal.send`)."""
        self.payload.set_exception(error)
        if self.task is not None:
            self.task.cancel()

    def half_closed(self) -> None:
        """The client sends no more. A body that is not whole will never be.

        The client may have shut down its half, and wait for its answer, or be gone: TCP says the same of both."""
        if not self.payload.is_eof():
            self.payload.set_exception(S3Error("IncompleteBody"))
        elif self.message.version >= (1, 1):
            asyncio.get_running_loop().call_later(self.protocol.timing.probe_seconds, self._probe)

    def _probe(self) -> None:
        """Send an interim response to a client that sends no more. RFC 9110 section 15.2: clients take any number of
        them before the answer. The host of a client that is gone answers the first one with a reset, which the next
        one runs into: then the connection is lost, and the work is cancelled."""
        transport = self.protocol.transport
        waits = not self.response_started and self.protocol.exchange is self
        if not waits or transport is None or transport.is_closing() or not self._probes:
            return
        self._probes -= 1
        transport.write(CONTINUE)
        asyncio.get_running_loop().call_later(self.protocol.timing.probe_seconds, self._probe)

    @property
    def expects_continue(self) -> bool:
        """The client waits for `100 Continue` and has not had it. RFC 9110 section 10.1.1."""
        if self.continued or self.message.version < (1, 1):
            return False
        # Any other expectation is none that a server has to meet (RFC 9110 section 10.1.1), and S3 passes it over.
        return self.message.headers.get("expect", "").lower() == "100-continue"

    async def read(self, idle_seconds: float) -> bytes:
        """The next bytes of the body, empty at its end; the first read tells a waiting client to go on.

        Raises S3Error RequestTimeout when none come within *idle_seconds*, ConnectionError when the client is gone."""
        payload = self.payload
        data = payload.read_nowait()
        if not data and not payload.at_eof():
            data = await self._wait(idle_seconds)
        self.received += len(data)
        return data

    async def _wait(self, idle_seconds: float) -> bytes:
        transport = self.protocol.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        if self.expects_continue:
            self.continued = True
            transport.write(CONTINUE)
        try:
            async with asyncio.timeout(idle_seconds):
                return await self.payload.readany()
        except TimeoutError:
            raise S3Error("RequestTimeout") from None

    def must_close(self, drain_bytes: int) -> bool:
        """Whether the connection cannot be used behind this answer, because of what is left of the body."""
        message = self.message
        if message.should_close or message.upgrade or message.version < OLDEST:
            return True
        payload = self.payload
        if payload.is_eof():
            return False
        if self.expects_continue or payload.exception() is not None:
            # Told no, a client that waited sends either nothing or the body: which, nobody can know (RFC 9110 section
            # 10.1.1). And behind a body that cannot be read nothing can be read either.
            self.protocol.skip_lingering()
            return True
        length = self.message.headers.get("content-length")
        return length is None or int(length) - payload.total_bytes > drain_bytes

    def send_whole(self, response: Response, lines: str, close: bool) -> int:
        """Write *answer*, whose body is at hand, *lines* before its own; the count of body bytes. The caller waits with
        `drain` if the client is slow. Raises ConnectionError."""
        head = self._head(response, lines, close)
        body = response.body
        if len(body) > ONE_PIECE_BYTES:
            self._write(head)
            self._write(body)
        else:
            self._write(b"".join((head, body)) if body else head)
        return len(body)

    def _head(self, response: Response, lines: str, close: bool) -> bytes:
        status = response.status
        length = "" if status in BODILESS else f"Content-Length: {response.length}\r\n"
        connection = ""
        if close:
            connection = "Connection: close\r\n"
        elif self.message.version < (1, 1):
            connection = "Connection: keep-alive\r\n"
        head = f"{STATUS_LINES[status]}{lines}{response.lines}{length}{connection}\r\n"
        return head.encode("utf-8", "surrogateescape")

    async def stream(self, response: Response, lines: str, close: bool, write_idle_seconds: float) -> int:
        """Write *answer* in its chunks, *lines* before its own; the count of body bytes. A body that ends early, for
        whatever reason, ends the connection: that is how the client sees that it is not whole. Raises
        ConnectionError."""
        chunks = response.chunks
        assert chunks is not None
        sent = 0
        try:
            self._write(self._head(response, lines, close))
            async for chunk in chunks:
                self._write(chunk)
                sent += len(chunk)
                if self.protocol.writing_paused:
                    await self.drain(write_idle_seconds)
            if sent != response.length:
                raise ConnectionAbortedError(f"{sent} of {response.length} bytes could be read")
        except BaseException:
            self.abort()
            raise
        finally:
            aclose = getattr(chunks, "aclose", None)
            if aclose is not None:
                await aclose()
        return sent

    def _write(self, data: Buffer) -> None:
        transport = self.protocol.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self.response_started = True
        transport.write(data)

    def abort(self) -> None:
        """Cut the connection without another word."""
        transport = self.protocol.transport
        if transport is not None:
            transport.abort()

    async def drain(self, write_idle_seconds: float) -> None:
        """Wait until the client has taken most of what was written. One that takes nothing at all for so long is cut.

        A timer looks after it rather than a task: this happens between any two pieces of a large body."""
        timeout = _WriteTimeout(self, write_idle_seconds)
        try:
            await self.protocol.wait_drained()
        finally:
            timeout.end()
        if timeout.lost:
            raise ConnectionAbortedError("the client takes no bytes")

    def unsent(self) -> int:
        """Bytes that were written and that the kernel has not taken."""
        transport = self.protocol.transport
        return transport.get_write_buffer_size() if transport is not None else 0


class _WriteTimeout:
    """Cuts an exchange whose client takes no bytes at all for some seconds."""

    __slots__ = ("_exchange", "_left", "_seconds", "_timer", "lost")

    def __init__(self, exchange: Exchange, seconds: float) -> None:
        self.lost = False
        self._exchange = exchange
        self._seconds = seconds
        self._wait()

    def _wait(self) -> None:
        self._left = self._exchange.unsent()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def _look(self) -> None:
        if self._exchange.unsent() < self._left:
            self._wait()
        else:
            self.lost = True
            self._exchange.abort()

    def end(self) -> None:
        self._timer.cancel()
