"""Connections of aiohttp to a server that may be hostile, with bounds that aiohttp lacks."""

from __future__ import annotations

import functools
import os
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import BaseConnector, Connection
from aiohttp.http_exceptions import HttpProcessingError

_HEADS_BYTES = 16 << 10  # bytes parsed in one step while a head is awaited
_WAITING_MAX = 16  # parsed responses that nobody has taken yet


class ResponseTooLong(aiohttp.ClientPayloadError):
    """The response is longer than any valid response to that request."""


class _Protocol(ResponseHandler):
    """Passes one response head at a time to aiohttp.

    aiohttp itself parses and queues everything that the event loop reads at once, up to 8 MiB with uvloop; for 1xx
    responses that takes a second. It would also reject a response to HEAD because of the body that a broken server
    sends after it."""

    def data_received(self, data: bytes) -> None:
        at = 0
        while at < len(data) and (self._payload is None or self._payload.is_eof()):
            end = data.find(b"\r\n\r\n", at, at + _HEADS_BYTES)
            end = end + 4 if end >= 0 else at + _HEADS_BYTES
            super().data_received(data[at:end])
            at = end
            if len(self._buffer) > _WAITING_MAX:
                if self.transport is not None:
                    self.transport.abort()
                self.set_exception(HttpProcessingError(message="endless responses"))
                return
        if at < len(data) or not data:
            super().data_received(data[at:])

    def set_exception(self, exc: BaseException, *args: Any, **options: Any) -> None:
        """Pass the exception to the reader of the body too, whom aiohttp would let wait after a malformed chunk."""
        super().set_exception(exc, *args, **options)
        body = self._payload
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError(f"{type(exc).__name__}: {exc}"))


def bound_heads(connector: BaseConnector) -> None:
    """Make *connector* abort connections whose server sends endless 1xx responses."""
    connector._factory = functools.partial(_Protocol, loop=connector._loop)  # type: ignore[assignment]  # noqa: SLF001


class Connector(aiohttp.TCPConnector):
    """A connector whose connections a forked child neither closes nor warns of, since they are its parent's. Nor does
    it warn of connections whose event loop is closed."""

    def __init__(self, **options: Any) -> None:
        self._pid = os.getpid()
        super().__init__(**options)
        bound_heads(self)

    @property
    def closed(self) -> bool:
        return self._closed or self._pid != os.getpid() or self._loop.is_closed()

    def __del__(self, *args: Any) -> None:
        if not self.closed:
            super().__del__(*args)


class Request(aiohttp.ClientRequest):
    """A request that is not sent on a connection that has received bytes: they would be taken for its response."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        if conn.protocol is None or conn.protocol.should_close:
            raise aiohttp.ServerDisconnectedError("the server sent bytes on an idle connection")
        return await super().send(conn)
