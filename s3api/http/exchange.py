"""One HTTP exchange: a request and its response on one connection.

Only this module and `connection` use aiohttp's types. A response is written to the transport as bytes; its headers
and a small body are one write.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from gateway.engine.types import Buffer, ConnectionsTiming
from s3api.errors import S3Error
from s3api.response import BODILESS, STATUS_LINES, Response

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.http import RawRequestMessage

OLDEST, NEWEST = (1, 0), (1, 1)
"""The supported versions of HTTP."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PROBES = 4
"""The limit of interim responses to a client that has shut down its sending side."""
ONE_PIECE_BYTES = 64 << 10
"""A body up to this size is appended to its headers, so that one write sends both."""


class Channel(Protocol):
    """The connection, as an exchange uses it. `connection.Connection` implements it; it is declared here so that the
    two modules do not import each other."""

    half_closed: bool
    """The client has shut down its sending side."""
    remote: str
    """The client's address."""
    timing: ConnectionsTiming
    task: asyncio.Task[object] | None
    """The task that handles the requests of the connection."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport; None after the connection was lost or closed."""

    @property
    def exchange(self) -> Exchange | None:
        """The exchange in progress."""

    @property
    def ssl_context(self) -> object | None: ...
    @property
    def writing_paused(self) -> bool:
        """The transport's write buffer is full."""

    async def wait_drained(self) -> None:
        """Wait until the client has received most of the write buffer."""

    def skip_lingering(self) -> None:
        """Close the connection right after the response, without reading the rest of the body."""


class Exchange:
    """One request with its body, and the response to it. Implements `request.RequestStream`."""

    __slots__ = ("_probes", "channel", "continued", "message", "payload", "received", "response_started", "task")

    def __init__(self, message: RawRequestMessage, payload: StreamReader, channel: Channel) -> None:
        self.message = message
        self.payload = payload
        self.channel = channel
        self.received = 0
        """The number of body bytes that were read."""
        self.continued = False
        """`100 Continue` was sent."""
        self.response_started = False
        """At least one byte of the response was written."""
        self.task: asyncio.Task[object] | None = None
        """The task that handles the request. It is cancelled if the client disconnects; None: it is not cancelled."""
        self._probes = PROBES
        if channel.half_closed:
            self.half_closed()

    @property
    def is_tls(self) -> bool:
        return self.channel.ssl_context is not None

    @property
    def remote(self) -> str:
        """The client's address."""
        return self.channel.remote

    def keep_running(self) -> None:
        """Do not cancel the request's task if the client disconnects."""
        self.task = None

    def _cancel(self, error: BaseException) -> None:
        """Cancel the request's task. aiohttp calls this when the connection is lost.

        Cancelling is safe at any moment. A command that was sent to the committer is still executed, and the blocks
        stored for it are kept until its outcome is known (`Writer.storing`, `Journal.send`)."""
        self.payload.set_exception(error)
        if self.task is not None:
            self.task.cancel()

    def half_closed(self) -> None:
        """Handle the end of the client's sending side: an incomplete body can no longer become complete.

        The client may still wait for its response, or it may have exited. TCP reports both in the same way, so the
        client is probed."""
        if not self.payload.is_eof():
            self.payload.set_exception(S3Error("IncompleteBody"))
        elif self.message.version >= (1, 1):
            asyncio.get_running_loop().call_later(self.channel.timing.probe_seconds, self._probe)

    def _probe(self) -> None:
        """Send an interim response, to find out whether the client still exists.

        A client accepts any number of them before the response (RFC 9110 section 15.2). If the client has exited, its
        host answers the first one with a reset and the next write fails: the connection is lost and the task is
        cancelled."""
        transport = self.channel.transport
        waits = not self.response_started and self.channel.exchange is self
        if not waits or transport is None or transport.is_closing() or not self._probes:
            return
        self._probes -= 1
        transport.write(CONTINUE)
        asyncio.get_running_loop().call_later(self.channel.timing.probe_seconds, self._probe)

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for `100 Continue`, which was not sent yet (RFC 9110 section 10.1.1)."""
        if self.continued or self.message.version < (1, 1):
            return False
        # A server may ignore other expectations (RFC 9110 section 10.1.1), as S3 does.
        return self.message.headers.get("expect", "").lower() == "100-continue"

    async def read(self, idle_seconds: float) -> bytes:
        """Return the next bytes of the body, empty at its end. The first read sends `100 Continue` if the client waits
        for it.

        Raises S3Error RequestTimeout if no bytes arrive within *idle_seconds*, ConnectionError if the client has
        disconnected."""
        payload = self.payload
        data = payload.read_nowait()
        if not data and not payload.at_eof():
            data = await self._wait(idle_seconds)
        self.received += len(data)
        return data

    async def _wait(self, idle_seconds: float) -> bytes:
        transport = self.channel.transport
        if transport is None:
            raise ConnectionResetError("the client has disconnected")
        if self.expects_continue:
            self.continued = True
            transport.write(CONTINUE)
        try:
            async with asyncio.timeout(idle_seconds):
                return await self.payload.readany()
        except TimeoutError:
            raise S3Error("RequestTimeout") from None

    def must_close(self, drain_bytes: int) -> bool:
        """Return whether the connection must be closed after the response: the client asked for it, or more than
        *drain_bytes* of the body are unread, or the rest of the body cannot be read."""
        message = self.message
        if message.should_close or message.upgrade or message.version < OLDEST:
            return True
        payload = self.payload
        if payload.is_eof():
            return False
        if self.expects_continue or payload.exception() is not None:
            # A client that waited for 100 Continue may now send the body or not; the server cannot know which (RFC 9110
            # section 10.1.1). After a body that cannot be read, the next request cannot be found either.
            self.channel.skip_lingering()
            return True
        length = self.message.headers.get("content-length")
        return length is None or int(length) - payload.total_bytes > drain_bytes

    def send_whole(self, response: Response, lines: str, close: bool) -> int:
        """Write a response whose body is in memory, with the header *lines* before its own. Returns the number of body
        bytes. If writing is then paused, the caller awaits `drain`. Raises ConnectionError."""
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
        """Write a response chunk by chunk, with the header *lines* before its own. Returns the number of body bytes.

        If the body ends early, for whatever reason, the connection is aborted, which tells the client that the body is
        incomplete. Raises ConnectionError."""
        chunks = response.chunks
        assert chunks is not None
        sent = 0
        try:
            self._write(self._head(response, lines, close))
            async for chunk in chunks:
                self._write(chunk)
                sent += len(chunk)
                if self.channel.writing_paused:
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
        transport = self.channel.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        self.response_started = True
        transport.write(data)

    def abort(self) -> None:
        """Abort the connection; the write buffer is discarded."""
        transport = self.channel.transport
        if transport is not None:
            transport.abort()

    async def drain(self, write_idle_seconds: float) -> None:
        """Wait until the client has received most of the write buffer. If it receives nothing for *write_idle_seconds*,
        the connection is aborted and ConnectionAbortedError is raised.

        The limit is a timer and not a task, since this runs between any two chunks of a large body."""
        timeout = _WriteTimeout(self, write_idle_seconds)
        try:
            await self.channel.wait_drained()
        finally:
            timeout.cancel()
        if timeout.expired:
            raise ConnectionAbortedError("the client receives no bytes")

    def unsent_bytes(self) -> int:
        """Return the size of the write buffer: bytes that the kernel has not accepted yet."""
        transport = self.channel.transport
        return transport.get_write_buffer_size() if transport is not None else 0


class _WriteTimeout:
    """Aborts an exchange if its client receives nothing at all for *seconds*."""

    __slots__ = ("_exchange", "_seconds", "_timer", "_unsent_bytes", "expired")

    def __init__(self, exchange: Exchange, seconds: float) -> None:
        self.expired = False
        self._exchange = exchange
        self._seconds = seconds
        self._wait()

    def _wait(self) -> None:
        self._unsent_bytes = self._exchange.unsent_bytes()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._check)

    def _check(self) -> None:
        if self._exchange.unsent_bytes() < self._unsent_bytes:
            self._wait()
        else:
            self.expired = True
            self._exchange.abort()

    def cancel(self) -> None:
        self._timer.cancel()
