"""Serve another protocol on the S3 port, for POST requests below `/.entrepot/`. No bucket can have that name.

A request must be signed in the Authorization header, together with its body. This module knows nothing else about the
other protocol (see `extension_types`). Errors raised by its handler become S3 error responses.
"""

from __future__ import annotations

from gateway.identity.sigv4 import PayloadKind
from s3api.authorize import RequestContext
from s3api.errors import S3Error
from s3api.http.bodies import request_body
from s3api.request import S3Request
from s3api.response import Response

EXTENSION_BUCKET = ".entrepot"
_UNSIGNED_PAYLOADS = {PayloadKind.UNSIGNED, PayloadKind.STREAMING_UNSIGNED_TRAILER}


async def handle_extension(request: S3Request) -> Response:
    """POST /.entrepot/path. Raises S3Error MethodNotAllowed for a POST to any other key, which S3 does not have."""
    extension = request.settings.extension
    if request.bucket != EXTENSION_BUCKET or extension is None:
        raise S3Error("MethodNotAllowed", Method=request.method, ResourceType="OBJECT")
    verified = request.verified
    assert verified is not None
    if not verified.access_key:
        raise S3Error("AccessDenied", "Access Denied: the request is not signed")
    if verified.presigned or verified.payload in _UNSIGNED_PAYLOADS:
        raise S3Error("AccessDenied", "This is signed in the Authorization header, together with its payload.")
    request.operation = "fs"
    # A client that lost its connection retries with the same idempotency key, so the request must run to its end.
    request.stream.keep_running()
    body, size, sha256 = request_body(request)
    path = request.key.decode("utf-8", "replace")
    caller = request.caller._replace(context=RequestContext(request))
    reply = await extension(caller, path, request.query, body, size, sha256)
    request.operation = reply.operation
    lines = f"Content-Type: {reply.content_type}\r\n"
    if reply.chunks is None:
        return Response(lines=lines, body=reply.body, code=reply.code)
    return Response(lines=lines, chunks=reply.chunks, length=reply.length, code=reply.code)
