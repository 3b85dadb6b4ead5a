"""Connections of aiohttp to a server that may be hostile: what is bounded here, aiohttp leaves unbounded."""

from __future__ import annotations

import functools
import os
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import BaseConnector, Connection
from aiohttp.http_exceptions import HttpProcessingError

_HEADS_BYTES = 16 << 10  # parsed at once while a head is awaited
_WAITING_MAX = 16  # answers that have come and that nobody has taken yet


class _Protocol(ResponseHandler):
    """Gives aiohttp one head at a time. aiohttp itself parses and queues all that a loop reads at once, which is 8 MiB
    with uvloop: of answers 1xx that takes a second. And it would reject an answer to HEAD together with the body that a
    broken server sends behind it."""

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
                self.set_exception(HttpProcessingError(message="answers without end"))
                return
        if at < len(data) or not data:
            super().data_received(data[at:])

    def set_exception(self, exc: BaseException, *args: Any, **options: Any) -> None:
        """Whoever reads the body hears of it too: aiohttp would have it wait where a chunk is malformed."""
        super().set_exception(exc, *args, **options)
        body = self._payload
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError(f"{type(exc).__name__}: {exc}"))


def bound_heads(connector: BaseConnector) -> None:
    """Have *connector* cut off servers whose answers 1xx do not end."""
    connector._factory = functools.partial(_Protocol, loop=connector._loop)  # type: ignore[assignment]  # noqa: SLF001


class Connector(aiohttp.TCPConnector):
    """Connections that a forked child neither ends nor complains of, since they are its parent's. Nor are those
    complained of whose event loop is gone."""

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
    """One that is not sent where bytes have come already: they would be taken for its answer."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        if conn.protocol is None or conn.protocol.should_close:
            raise aiohttp.ServerDisconnectedError("an idle connection sent bytes that nobody asked for")
        return await super().send(conn)
