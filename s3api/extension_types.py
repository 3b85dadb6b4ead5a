"""The interface of an extension: another protocol that `s3api.extension` serves on the S3 port. Types only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

from gateway.engine.types import Body, Buffer, Caller


class ExtensionResponse(Protocol):
    """The response of an extension. It is sent with status 200; the extension encodes its errors in the body."""

    @property
    def operation(self) -> str:
        """The operation's name in metrics and in the access log."""

    @property
    def content_type(self) -> str: ...
    @property
    def body(self) -> Buffer:
        """The whole body, unless `chunks` is set."""

    @property
    def chunks(self) -> AsyncIterator[Buffer] | None:
        """The body in chunks of `length` bytes altogether; None if `body` is the whole body."""

    @property
    def length(self) -> int: ...
    @property
    def code(self) -> str:
        """The error's name for the access log; empty without an error."""


ExtensionHandler = Callable[[Caller, str, Mapping[str, str], Body, int, str | None], Awaitable[ExtensionResponse]]
"""Handles a request. The arguments are the authenticated caller, the path after `/.entrepot/`, the decoded query, the
body, its size in bytes, and the SHA-256 that the client signed for the body (None if its chunks are signed)."""
