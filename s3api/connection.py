"""One client's connection: aiohttp's protocol, bounded in the head of a request and answering in S3's words.

What aiohttp's parser refuses (two lengths, a length beside a transfer coding, folded headers, unknown codings, bad
tokens: the forms that request smuggling needs) is answered here as S3 XML, and the connection ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web import RequestHandler, StreamResponse

from s3api.exchange import CLOSE, Exchange

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest

Refuse = Callable[[Exchange | None, str, str], bytes]
"""(the exchange where one began, S3's code, a sentence) → the whole answer as bytes."""


class Connection(RequestHandler):
    """One connection. Its head bytes are counted while no request is under way."""

    __slots__ = ("_head_bytes", "_head_limit_bytes", "_refuse", "exchange", "half_closed")

    def __init__(self, manager: Any, *, refuse: Refuse, head_bytes: int, **kwargs: Any) -> None:
        super().__init__(manager, **kwargs)
        self._refuse = refuse
        self._head_limit_bytes = head_bytes
        self._head_bytes = 0
        self.exchange: Exchange | None = None
        """The one that is under way."""
        self.half_closed = False

    @property
    def idle(self) -> bool:
        """No request is under way."""
        waiter = self._waiter
        return waiter is not None and not waiter.done() and not self._messages

    def data_received(self, data: bytes) -> None:
        """Bytes came. A head that does not end within its bound is refused."""
        super().data_received(data)
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > self._head_limit_bytes:
            if self.transport is not None:
                self.transport.write(self._refuse(None, "RequestHeaderSectionTooLarge", ""))
            self.force_close()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client has sent its last byte, but may still read. What it asked for whole is answered; a body that now
        can never become whole is refused; then the connection ends."""
        if self.idle:
            return None
        self._close = self.half_closed = True
        if self.exchange is not None:
            self.exchange.half_closed()
        # TLS cannot be half closed: asyncio closes the transport whatever is answered here.
        return self.ssl_context is None

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """aiohttp could not read a request, or its connection was lost."""
        if not isinstance(exc, HttpProcessingError):
            # The door lets nothing out but lost connections, whose own error this is.
            raise exc or ConnectionAbortedError
        if self.transport is not None:
            code = "RequestHeaderSectionTooLarge" if isinstance(exc, LineTooLong) else "BadRequest"
            self.transport.write(self._refuse(cast("Exchange", request), code, ""))
        return cast("StreamResponse", CLOSE)
