"""What goes back to the client: a status, header lines, and a body that is at hand or still to come. Pure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus

from gateway.engine.types import Buffer

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
BODILESS = frozenset({204, 304})
"""Statuses that have neither a body nor a Content-Length. RFC 9110 section 8.6."""


class Response:
    """One answer. *lines* are whole header lines, each with its CR LF, whose values the maker has vetted."""

    __slots__ = ("body", "chunks", "code", "length", "lines", "status")

    def __init__(
        self,
        status: int = 200,
        lines: str = "",
        body: Buffer = b"",
        *,
        chunks: AsyncIterator[Buffer] | None = None,
        length: int | None = None,
        code: str = "",
    ) -> None:
        self.status = status
        self.lines = lines
        self.body = body
        self.chunks = chunks
        """The body in pieces, *length* bytes together; None when `body` is all of it."""
        self.length = len(body) if length is None else length
        """What Content-Length says; with neither body nor chunks the answer to a HEAD."""
        self.code = code
        """S3's error code, for the log."""


def xml_response(text: str, lines: str = "", status: int = 200) -> Response:
    """An answer whose body is the XML document *text*."""
    return Response(status, lines + "Content-Type: application/xml\r\n", text.encode())
