"""What can go wrong with an exchange over HTTP, apart from `OSError`, `TimeoutError` and `ssl.SSLError`."""

from __future__ import annotations


class HttpError(Exception):
    """The exchange has failed and its connection is closed."""


class MalformedAnswer(HttpError):
    """What the server sent is not HTTP/1.1 as RFC 9112 describes it, or exceeds a limit on heads."""


class BodyTooLong(HttpError):
    """The body has, or is announced with, more bytes than the caller allows. Nothing more of it is read."""

    def __init__(self, bytes_max: int, announced: int | None = None) -> None:
        size = f"more than {bytes_max}" if announced is None else str(announced)
        super().__init__(f"the answer has {size} bytes, and may have {bytes_max}")
        self.announced = announced
        """Its Content-Length; None for a body that turned out too long while it came."""


class ConnectionCut(HttpError):
    """The connection ended before the answer did."""

    def __init__(self, message: str, *, begun: bool) -> None:
        super().__init__(message)
        self.begun = begun
        """Whether a part of the answer had come. If not, a server may have closed an idle connection just then."""
