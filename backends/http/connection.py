"""One connection to a server, which carries one exchange at a time.

Bytes of a body whose length is announced go from the socket to where they stay, without a copy in between. Nothing
holds the event loop for long: at most 256 KiB are read, and at most as many given to the transport, between two turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import cast

from backends.base import Buffer, size_of
from backends.http.answers import HEAD_BYTES_MAX, Answer, AnswerReader
from backends.http.errors import ConnectionCut, HttpError

_PIECE_BYTES = 256 << 10
_JOINED_BYTES_MAX = 64 << 10  # a request up to that goes out in one call


class Connection(asyncio.BufferedProtocol):
    """Made by `loop.create_connection`. After a failed exchange it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._scratch = bytearray(HEAD_BYTES_MAX)
        self._reader: AnswerReader | None = None
        self._answered: asyncio.Future[Answer] | None = None
        self._writable: asyncio.Future[None] | None = None  # while the transport wants no more bytes
        self.idle_since = 0.0
        """On the loop's clock; kept by whoever pools connections."""
        self.is_usable = True
        """Whether another request may be sent."""

    async def exchange(self, method: str, head: bytes, body: Sequence[Buffer], bytes_max: int) -> Answer:
        """Send a request and return its answer, whose body has at most *bytes_max* bytes if it is a success.

        Raises `HttpError`. Where it raises anything, the connection is closed."""
        assert self._reader is None, "one exchange at a time"
        reader = self._reader = AnswerReader(method, bytes_max, self._scratch)
        answered = self._answered = self._loop.create_future()
        try:
            if not self.is_usable:
                raise ConnectionCut("the connection was closed before the request", begun=False)
            sent = await self._send(head, body)
            answer: Answer = await answered
        except BaseException:
            self.abort()
            raise
        finally:
            self._reader = self._answered = None
        if not (sent and reader.persistent):
            self.close()
        return answer

    async def start_tls(self, context: object, hostname: str, timeout_s: float) -> None:
        """Go on over TLS, as behind a proxy's answer to CONNECT."""
        assert self._transport is not None
        self._transport = await self._loop.start_tls(
            self._transport, self, context, server_hostname=hostname, ssl_handshake_timeout=timeout_s  # type: ignore[arg-type]
        )  # fmt: skip

    def close(self) -> None:
        """Close the connection once what was written has been sent."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection now, and drop what was written."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    async def _send(self, head: bytes, body: Sequence[Buffer]) -> bool:
        """Write the request. Returns False where the answer came first, so that the rest was not sent."""
        assert self._transport is not None
        assert self._answered is not None
        if len(head) + size_of(body) <= _JOINED_BYTES_MAX:
            self._transport.write(b"".join((head, *body)))
            return True
        self._transport.write(head)
        for piece in _pieces(body):
            if self._writable is not None:
                await self._writable
            if self._answered.done():
                return False
            self._transport.write(piece)
        return True

    # ---- asyncio.BufferedProtocol ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._reader is None or self._answered is None or self._answered.done():
            return memoryview(self._scratch)  # what comes now is unwanted; an empty buffer would mean the end
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._reader is None or self._answered is None or self._answered.done():
            self.abort()  # nobody asked for these bytes
            return
        try:
            whole = self._reader.received(nbytes)
        except HttpError as error:
            self._fail(error)
            return
        if whole:
            self._succeed()

    def eof_received(self) -> bool:
        self._end("the server closed the connection")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc is not None else "the connection was closed")

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        self._wake()

    # ---- how an exchange ends ----------------------------------------------------------------------------------------

    def _end(self, reason: str) -> None:
        self.is_usable = False
        if self._reader is not None and self._answered is not None and not self._answered.done():
            try:
                self._reader.ended()
            except ConnectionCut as cut:
                self._fail(ConnectionCut(reason, begun=cut.begun))
                return
            self._succeed()
        self._wake()

    def _succeed(self) -> None:
        assert self._reader is not None
        assert self._answered is not None
        self._answered.set_result(self._reader.answer)
        self._wake()

    def _fail(self, error: HttpError) -> None:
        """End the exchange with *error*, and read nothing more."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)
        self.abort()
        self._wake()

    def _wake(self) -> None:
        """Let a sender go on, be it only to see that the answer has come."""
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None


def _pieces(body: Sequence[Buffer]) -> Iterator[memoryview]:
    for buffer in body:
        view = memoryview(buffer).cast("B")
        for at in range(0, len(view), _PIECE_BYTES):
            yield view[at : at + _PIECE_BYTES]
