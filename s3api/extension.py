"""Another protocol on S3's port: what is posted below `/.entrepot/`, a name that no bucket can have.

Who asks has signed in the header form, and for the body too; what the other protocol is, this room does not know. Its
errors are told as S3's are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

from gateway.engine.types import Body, Buffer, Caller
from gateway.identity.sigv4 import PayloadKind
from s3api.errors import S3Error
from s3api.http.bodies import request_body
from s3api.request import S3Request
from s3api.response import Response

EXTENSION_BUCKET = ".entrepot"
_UNVOUCHED = {PayloadKind.UNSIGNED, PayloadKind.STREAMING_UNSIGNED_TRAILER}


class ExtensionResponse(Protocol):
    """What goes back, with status 200."""

    @property
    def operation(self) -> str:
        """What metrics and the log call it."""

    @property
    def content_type(self) -> str: ...
    @property
    def body(self) -> Buffer: ...
    @property
    def chunks(self) -> AsyncIterator[Buffer] | None:
        """The body in pieces, `length` bytes together, where it is not `body`."""

    @property
    def length(self) -> int: ...
    @property
    def code(self) -> str:
        """An error's name, for the log."""


ExtensionHandler = Callable[[Caller, str, Mapping[str, str], Body, int, str | None], Awaitable[ExtensionResponse]]
"""Who asks, what stands behind the prefix, the query; the body, its size, and the SHA-256 that was signed for it, None
where its chunks are signed."""


async def handle_extension(request: S3Request) -> Response:
    """POST /.entrepot/… ; to any other key, a method that S3 does not have."""
    extension = request.settings.extension
    if request.bucket != EXTENSION_BUCKET or extension is None:
        raise S3Error("MethodNotAllowed", Method=request.method, ResourceType="OBJECT")
    verified = request.verified
    assert verified is not None
    if verified.presigned or verified.payload in _UNVOUCHED:
        raise S3Error("AccessDenied", "This is signed in the Authorization header, together with its payload.")
    request.operation = "fs"
    # A client that lost its connection asks again under the same idempotency key: there must be an answer to keep.
    request.exchange.task = None
    body, size, sha256 = request_body(request)
    name = request.key.decode("utf-8", "replace")
    reply = await extension(request.caller, name, request.query, body, size, sha256)
    request.operation = reply.operation
    lines = f"Content-Type: {reply.content_type}\r\n"
    if reply.chunks is None:
        return Response(lines=lines, body=reply.body, code=reply.code)
    return Response(lines=lines, chunks=reply.chunks, length=reply.length, code=reply.code)
