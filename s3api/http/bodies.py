"""Request bodies: their length, how they are verified, and reading a small body as a whole."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import NamedTuple

from gateway.engine.types import Body, Buffer
from gateway.identity.chunked import ChunkedParser, Data, Event, Trailer
from gateway.identity.sigv4 import PayloadKind, VerifiedRequest
from s3api.errors import S3Error
from s3api.format import checksums
from s3api.format.xml_reader import Element, read_xml
from s3api.request import RequestStream, S3Request


class PlainBody(Body):
    """A body without framing. The engine checks its length and its digests."""

    __slots__ = ("_idle_seconds", "_stream")

    def __init__(self, stream: RequestStream, idle_seconds: float) -> None:
        self._stream = stream
        self._idle_seconds = idle_seconds

    def __aiter__(self) -> AsyncIterator[Buffer]:
        return self

    async def __anext__(self) -> Buffer:
        data = await self._stream.read(self._idle_seconds)
        if not data:
            raise StopAsyncIteration
        return data


def declared_length(request: S3Request, name: str = "content-length") -> int | None:
    """Return the value of the length header *name*, if present. Raises S3Error InvalidArgument for an invalid one."""
    text = request.headers.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise S3Error("InvalidArgument", f"{name} is not a length.", ArgumentName=name, ArgumentValue=text)
    return int(text)


class RequestBody(NamedTuple):
    """A request's body and what its headers declare about it."""

    body: Body
    size: int
    """The declared length in bytes, without the frames of aws-chunked."""
    sha256: str | None
    """The SHA-256 (hex) that the client signed for the body, if any."""


def request_body(request: S3Request) -> RequestBody:
    """Return the body of an authenticated request. Raises S3Error MissingContentLength, InvalidArgument."""
    payload = request.verified
    assert payload is not None
    if payload.payload in _STREAMING:
        return _chunked_body(request, payload)
    size = declared_length(request)
    if size is None:
        raise S3Error("MissingContentLength")
    body = PlainBody(request.stream, request.settings.body_idle_seconds)
    return RequestBody(body, size, payload.sha256 if payload.payload is PayloadKind.SIGNED else None)


_STREAMING = {PayloadKind.STREAMING, PayloadKind.STREAMING_TRAILER, PayloadKind.STREAMING_UNSIGNED_TRAILER}


async def read_body(request: S3Request, limit_bytes: int, *, own_checksum: bool = True) -> bytes:
    """Return the whole body after verifying its digests; empty if the request has no body.

    *own_checksum*: the x-amz-checksum- headers are those of this body, and not of an object.

    Raises S3Error MaxMessageLengthExceeded, BadDigest, XAmzContentSHA256Mismatch, IncompleteBody."""
    if "content-length" not in request.headers and "transfer-encoding" not in request.headers:
        return b""
    body, size, sha256 = request_body(request)
    if size > limit_bytes:
        raise S3Error("MaxMessageLengthExceeded", MaxMessageLengthBytes=str(limit_bytes))
    collected = bytearray()
    async for chunk in body:
        collected += chunk
        if len(collected) > size:
            break
    raw = bytes(collected)
    if len(raw) != size:
        raise S3Error("IncompleteBody")
    promised = checksums.requested_checksum(request.headers)[1] if own_checksum else None
    check = partial(
        _check_digests, raw, sha256, checksums.content_md5(request.headers), promised, body.trailing_checksum()
    )
    if size <= HASHED_ON_LOOP_BYTES:
        check()
    else:
        await asyncio.to_thread(check)
    return raw


async def read_xml_body(request: S3Request, root: str, *, own_checksum: bool = True) -> Element:
    """Return the body, an XML document whose outermost element is called *root*. Raises what `read_body` raises, and
    S3Error MalformedXML."""
    return await read_xml(await read_body(request, request.settings.xml_bytes, own_checksum=own_checksum), root)


HASHED_ON_LOOP_BYTES = 128 << 10
"""A larger body is hashed in a thread: 4 MiB take about ten milliseconds for each digest."""


def _check_digests(raw: bytes, sha256: str | None, md5: bytes | None, *all_promised: tuple[str, str] | None) -> None:
    """Raise S3Error if the body does not match one of its digests."""
    if sha256 is not None and hashlib.sha256(raw).hexdigest() != sha256:
        raise S3Error("XAmzContentSHA256Mismatch")
    if md5 is not None and hashlib.md5(raw, usedforsecurity=False).digest() != md5:
        raise S3Error("BadDigest")
    for promised in all_promised:
        if promised is not None and checksums.compute(promised[0], raw) != promised[1]:
            raise S3Error("BadDigest", f"The {promised[0]} you specified did not match the calculated checksum.")


def require_digest(request: S3Request) -> None:
    """Raise S3Error InvalidRequest unless the request has a digest of its body, as S3 requires for DeleteObjects."""
    if "content-md5" not in request.headers and checksums.requested_checksum(request.headers) == (None, None):
        raise S3Error("InvalidRequest", "Missing required header for this request: Content-MD5 OR x-amz-checksum-*")


CHUNKS_PER_TURN = 64
"""How many chunks are returned before the event loop runs. One read may bring a hundred thousand chunks of one byte."""


class ChunkedBody(Body):
    """A body in the aws-chunked encoding, without its frames. The signatures of the chunks and of the trailer are
    verified before the iterator ends."""

    __slots__ = ("_events", "_events_in_turn", "_idle_seconds", "_parser", "_promised", "_stream", "_trailing")

    def __init__(self, request: S3Request, payload: VerifiedRequest, size: int) -> None:
        self._stream = request.stream
        self._idle_seconds = request.settings.body_idle_seconds
        self._parser = ChunkedParser(payload, size)
        self._events: Iterator[Event] = iter(())
        promised = request.headers.get("x-amz-trailer", "").lower().split(",")
        self._promised = {each.strip() for each in promised if each.strip()}
        self._trailing: tuple[str, str] | None = None
        self._events_in_turn = 0

    def __aiter__(self) -> AsyncIterator[Buffer]:
        return self

    async def __anext__(self) -> Buffer:
        self._events_in_turn += 1
        if self._events_in_turn >= CHUNKS_PER_TURN:
            self._events_in_turn = 0
            await asyncio.sleep(0)
        while True:
            for event in self._events:
                if isinstance(event, Data):
                    return event.data
                if isinstance(event, Trailer):
                    self._accept_trailer(event.name, event.value)
            data = await self._stream.read(self._idle_seconds)
            if not data:
                self._finish()
                raise StopAsyncIteration
            self._events = self._parser.feed(data)

    def _accept_trailer(self, name: str, value: str) -> None:
        if self._trailing is not None:
            raise S3Error("MalformedTrailerError", "The request contains more than one trailer.")
        if name not in self._promised or name not in checksums.HEADERS:
            raise S3Error(
                "MalformedTrailerError", f"The trailer {name} is not announced in x-amz-trailer, or is not supported."
            )
        algorithm = checksums.HEADERS[name]
        self._trailing = (algorithm, checksums.check_value(algorithm, value, "trailing header"))

    def _finish(self) -> None:
        self._parser.finish()
        if self._promised and self._trailing is None:
            raise S3Error("MalformedTrailerError", "The announced trailer is missing.")

    def trailing_checksum(self) -> tuple[str, str] | None:
        return self._trailing


def _chunked_body(request: S3Request, payload: VerifiedRequest) -> RequestBody:
    size = declared_length(request, "x-amz-decoded-content-length")
    if size is None:
        raise S3Error("MissingContentLength", "You must provide the x-amz-decoded-content-length HTTP header.")
    return RequestBody(ChunkedBody(request, payload, size), size, None)
