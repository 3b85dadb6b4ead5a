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
from s3api.http.bodies import body_of
from s3api.request import Call
from s3api.response import Answer

BUCKET = ".entrepot"
_UNVOUCHED = {PayloadKind.UNSIGNED, PayloadKind.STREAMING_UNSIGNED_TRAILER}


class Reply(Protocol):
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


Beside = Callable[[Caller, str, Mapping[str, str], Body, int, str | None], Awaitable[Reply]]
"""Who asks, what stands behind the prefix, the query; the body, its size, and the SHA-256 that was signed for it, None
where its chunks are signed."""


async def post(call: Call) -> Answer:
    """POST /.entrepot/… ; to any other key, a method that S3 does not have."""
    beside = call.settings.beside
    if call.bucket != BUCKET or beside is None:
        raise S3Error("MethodNotAllowed", Method=call.method, ResourceType="OBJECT")
    payload = call.payload
    assert payload is not None
    if payload.presigned or payload.payload in _UNVOUCHED:
        raise S3Error("AccessDenied", "This is signed in the Authorization header, together with its payload.")
    call.operation = "fs"
    # A client that lost its connection asks again under the same idempotency key: there must be an answer to keep.
    call.exchange.work = None
    body, size, sha256 = body_of(call)
    name = call.key.decode("utf-8", "replace")
    reply = await beside(call.caller, name, call.query, body, size, sha256)
    call.operation = reply.operation
    lines = f"Content-Type: {reply.content_type}\r\n"
    if reply.chunks is None:
        return Answer(lines=lines, body=reply.body, code=reply.code)
    return Answer(lines=lines, chunks=reply.chunks, length=reply.length, code=reply.code)
