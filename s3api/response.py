"""A response: status, header lines, and a body that is in memory or comes in chunks. Pure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus

from gateway.engine.types import Buffer

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
BODILESS = frozenset({204, 304})
"""Statuses without a body and without Content-Length (RFC 9110 section 8.6)."""


class Response:
    """One response. *lines* holds complete header lines, each with its CR LF. The caller guarantees that their values
    contain no control characters."""

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
        """The body in chunks of *length* bytes altogether; None if `body` is the whole body."""
        self.length = len(body) if length is None else length
        """The value of Content-Length. In a response to HEAD there is neither a body nor chunks."""
        self.code = code
        """S3's error code, for the access log."""


def xml_response(text: str, lines: str = "", status: int = 200) -> Response:
    """Return a response whose body is the XML document *text*."""
    return Response(status, lines + "Content-Type: application/xml\r\n", text.encode())
