"""What the door tells of each request, once, behind its last byte: the seam for metrics and the log line. Pure."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class AccessRecord(NamedTuple):
    """One answered request. No secrets: the query, which may hold a signature, is not in it."""

    request_id: str
    operation: str
    """S3's name for it (`GetObject`); `Unknown` when no route matched or the head could not be read."""
    method: str
    path: str
    """As on the wire, without the query."""
    status: int
    error: str
    """S3's error code; empty when there was none."""
    bytes_in: int
    bytes_out: int
    seconds: float
    bucket: str
    user: str
    """Empty until a signature was accepted."""
    remote: str


class AccessLog(Protocol):
    """Who wants to know of requests."""

    def write(self, seen: AccessRecord) -> None:
        """Called once a request. Must neither raise nor block: it runs on the loop, inside every request."""
