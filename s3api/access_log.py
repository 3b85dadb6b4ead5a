"""The interface between the S3 API and its access log: one record for each request, after the last byte was sent."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class AccessRecord(NamedTuple):
    """One completed request. It contains no secrets: the query, which may hold a signature, is not part of it."""

    request_id: str
    operation: str
    """S3's name of the operation (`GetObject`); `Unknown` if no route matched or the head could not be parsed."""
    method: str
    path: str
    """The path as the client sent it, without the query."""
    status: int
    error: str
    """S3's error code; empty without an error."""
    bytes_in: int
    bytes_out: int
    seconds: float
    bucket: str
    user: str
    """The authenticated user; empty if the request was not authenticated."""
    access_key: str
    """The access key id of a request that could not be authenticated; otherwise empty."""
    remote: str
    """The client's address."""


class AccessLog(Protocol):
    """Receives a record of each completed request."""

    def write(self, seen: AccessRecord) -> None:
        """Record one request. It must neither raise nor block, since it runs on the event loop during the request."""
