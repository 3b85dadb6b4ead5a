"""Requests as clients send them: in a body, or in the query of a request that reads or writes content."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from gateway.engine.shares import UserShare
from gateway.engine.types import Body, Caller
from gateway.errors import BadDigest, EntityTooLarge, IncompleteBody, InvalidArgument
from gateway.posix.rpc import protocol
from gateway.posix.rpc.protocol import MethodCall, RpcRequest


class ReceivedRequest(NamedTuple):
    """A request, who sent it, and which attempt of the client it is, from 1."""

    caller: Caller
    request: RpcRequest
    packed: bytes
    """The request as it was sent."""
    attempt: int

    @property
    def call(self) -> MethodCall:
        """The first call; the only one if the request was in a query."""
        return self.request.calls[0]

    @property
    def stored_key(self) -> bytes:
        """The key in the idempotency store: a hash of the client's key, the user and the whole request. Empty without a
        key."""
        key = self.request.idempotency_key
        if not key:
            return b""
        salt = self.caller.user_id.to_bytes(8, "big") * 2
        return hashlib.blake2b(self.packed, digest_size=24, key=key, salt=salt).digest()


async def request_in_body(
    caller: Caller, attempt: int, body: Body, size: int, sha256: str | None, held: UserShare
) -> ReceivedRequest:
    """Read and decode the request in *body*. Raises as `_read_body`, and `InvalidArgument`."""
    packed = await _read_body(body, size, sha256, held)
    return ReceivedRequest(caller, protocol.unpack_request(packed), packed, attempt)


def request_in_query(caller: Caller, query: Mapping[str, str], attempt: int = 1) -> ReceivedRequest:
    """Decode the request, of exactly one call, that *query* carries. Raises `InvalidArgument`, `EntityTooLarge`."""
    text = query.get(protocol.CALL_PARAMETER, "")
    if len(text) > protocol.CALL_CHARS_MOST:
        raise EntityTooLarge(len(text), protocol.CALL_CHARS_MOST)
    try:
        packed = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise InvalidArgument(f"?{protocol.CALL_PARAMETER}= must be URL-safe base64") from None
    request = protocol.unpack_request(packed)
    if len(request.calls) != 1:
        raise InvalidArgument("a request that reads or writes content must have exactly one call")
    return ReceivedRequest(caller, request, packed, attempt)


async def _read_body(body: Body, size: int, sha256: str | None, held: UserShare) -> bytes:
    """Read a small body whole, charging *held* as it arrives. Raises `IncompleteBody`, `BadDigest`, `Busy`."""
    collected = bytearray()
    async for chunk in body:
        held.add(len(chunk))
        collected += chunk
        if len(collected) > size:
            break
    if len(collected) != size:
        raise IncompleteBody(size, len(collected))
    computed = hashlib.sha256(collected).hexdigest()
    if sha256 is not None and computed != sha256:
        raise BadDigest(sha256, computed)
    return bytes(collected)


def attempt_in_query(query: Mapping[str, str]) -> int:
    """Return which attempt of the client a request is. Raises `InvalidArgument`."""
    text = query.get(protocol.ATTEMPT_PARAMETER, "1")
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise InvalidArgument(f"?{protocol.ATTEMPT_PARAMETER}= must be a number")
    return int(text)
