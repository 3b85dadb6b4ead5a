"""The client of a gateway: `FileApi` over HTTP, as the user whose access key signs the requests.

A method without content is a call in a request to `verbs`. Look-ups that are made at the same time share requests, and
so do changes (`call_batcher`). `open` posts to `read`, `put` and `put_part` to `write`.

Each request that changes something carries an idempotency key, so that the gateway runs it once, however often the
transport sends it and whichever worker answers. If the gateway reports that the outcome is unknown, the client sends
the call again under a new key only if running it twice is harmless.
"""

from __future__ import annotations

import base64
import inspect
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar
from urllib.parse import quote

import aiohttp

from gateway.engine.types import (
    NO_CONDITIONS,
    Body,
    ByteRange,
    Conditions,
    ObjectInfo,
    ObjectMeta,
    Opened,
    PartInfo,
    Stored,
)
from gateway.errors import Busy, CommitterGone, EntrepotError, InvalidArgument, Refused, SessionExpired
from gateway.posix.api import FileApi
from gateway.posix.rpc import protocol
from gateway.posix.rpc.call_batcher import CallBatcher
from gateway.posix.rpc.endpoint import Endpoint
from gateway.posix.rpc.framing import read_head
from gateway.posix.rpc.methods import METHODS, OPEN_METHOD, WRITE_METHODS, Method
from gateway.posix.rpc.protocol import MethodCall, RpcRequest, RpcResponse
from gateway.posix.rpc.resumable_read import ResumableRead
from gateway.posix.rpc.schema import SchemaError
from gateway.posix.rpc.transport import Transport
from gateway.timing import Timing, timing_from_environment

P = ParamSpec("P")
R = TypeVar("R")

RESPONSE_BYTES_MOST = 64 << 20
UNSTREAMED_BYTES = 4 << 20
"""Content up to this size is returned as a whole. Larger content is streamed."""
WRITE_TRIES = 3
"""The least number of times that a write is sent, however long each takes."""
LOOKUPS, CHANGES = "lookups", "changes"
"""The two batchers of a client."""
_REPEATABLE = frozenset({"begin_upload", "copy_part", "complete_upload", "abort_upload"})
"""Methods that may run twice. They are called again if the outcome of the first call is unknown."""
_OUTCOME_UNKNOWN = (CommitterGone, SessionExpired)


def _remote(
    method: Callable[Concatenate[FileApi, P], Awaitable[R]], batch: str | None = None
) -> Callable[Concatenate[RpcClient, P], Coroutine[Any, Any, R]]:
    """Return a client method with the signature of *method* that calls the method of that name at the gateway.

    *batch*: the batcher in which the call may share a request with others."""
    name, signature = method.__name__, inspect.signature(method)

    async def call(self: RpcClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        _, *arguments = bound.arguments.values()
        result: R = await self._call(name, arguments) if batch is None else await self._batched(batch, name, arguments)
        return result

    call.__name__, call.__doc__ = name, method.__doc__
    return call


class _Content(NamedTuple):
    """The response to a read: the object, the range of its content, and the connection that brings it."""

    info: ObjectInfo
    start: int
    length: int
    response: aiohttp.ClientResponse


class RpcClient(FileApi):
    """A gateway, as one user sees it. Created by `connect`. For one event loop of one process."""

    def __init__(self, transport: Transport, timing: Timing) -> None:
        self._transport = transport
        self._timing = timing.files
        self._store = ""
        """The name of the gateway's idempotency store, from its last response."""
        self._batchers = {name: CallBatcher(self._send_batch, protocol.CALLS_MOST) for name in (LOOKUPS, CHANGES)}

    @classmethod
    async def connect(cls, endpoint: Endpoint, timing: Timing | None = None) -> Self:
        """Return a client of a gateway that has answered. *timing*: that of the environment by default.

        Raises `AccessDenied`, `Unavailable`, `Misconfigured`, and `Refused` without a common protocol version."""
        timing = timing or timing_from_environment()
        self = cls(Transport(endpoint, timing), timing)
        try:
            await self._send(RpcRequest(()))  # checks that the gateway answers and accepts the key; learns its store
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    end_session = close

    def detach(self) -> None:
        """Drop the connections without closing them: they belong to the parent process, or their loop has ended."""
        self._transport.detach()

    def presigned_url(self, bucket: str, key: bytes, seconds: int) -> str:
        """Return a URL with which anyone may read an object for *seconds*."""
        return self._transport.presigned_url(b"/" + bucket.encode() + b"/" + key, seconds)

    # --- methods without content --------------------------------------------------------------------------------------

    buckets = _remote(FileApi.buckets)
    bucket = _remote(FileApi.bucket, LOOKUPS)
    make_bucket = _remote(FileApi.make_bucket)
    drop_bucket = _remote(FileApi.drop_bucket)
    look = _remote(FileApi.look, LOOKUPS)
    page = _remote(FileApi.page)
    copy = _remote(FileApi.copy, CHANGES)
    move = _remote(FileApi.move, CHANGES)
    remove = _remote(FileApi.remove)
    rename = _remote(FileApi.rename)
    mkdir = _remote(FileApi.mkdir, CHANGES)
    rmdir = _remote(FileApi.rmdir)
    begin_upload = _remote(FileApi.begin_upload)
    copy_part = _remote(FileApi.copy_part)
    tags = _remote(FileApi.tags)
    parts = _remote(FileApi.parts)
    complete_upload = _remote(FileApi.complete_upload)
    abort_upload = _remote(FileApi.abort_upload)

    async def compound(self, calls: Sequence[tuple[str, tuple[Any, ...]]], *, stop: bool = False) -> list[Any]:
        results: list[Any] = []
        while len(results) < len(calls):
            some = calls[len(results) : len(results) + protocol.CALLS_MOST]
            more = await self._send_calls(some, stop)
            if not more:
                raise Refused("the gateway ran none of the calls")
            results += more
            if stop and isinstance(results[-1], EntrepotError):
                break
        return results + [None] * (len(calls) - len(results))

    async def _call(self, name: str, arguments: Sequence[Any]) -> Any:
        """Send one call in a request of its own, and once more if its outcome is unknown and it is repeatable."""
        (result,) = await self._send_calls([(name, tuple(arguments))], stop=False)
        if isinstance(result, _OUTCOME_UNKNOWN) and name in _REPEATABLE:
            (result,) = await self._send_calls([(name, tuple(arguments))], stop=False)
        if isinstance(result, EntrepotError):
            raise result
        return result

    async def _batched(self, batch: str, name: str, arguments: Sequence[Any]) -> Any:
        """Send one call in a request that it may share with other calls."""
        protocol.pack(METHODS[name].encode(*arguments))  # arguments that cannot be sent fail here, not the whole batch
        result = await self._batchers[batch].call(name, tuple(arguments))
        if isinstance(result, Busy):
            return await self._call(name, arguments)  # alone, so that the transport retries it until it is accepted
        if isinstance(result, EntrepotError):
            raise result
        return result

    async def _send_batch(self, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        return await self._send_calls(calls, stop=False, parallel=len(calls) > 1)

    async def _send_calls(
        self, calls: Sequence[tuple[str, tuple[Any, ...]]], stop: bool, parallel: bool = False
    ) -> list[Any]:
        """Send one request. Return the results of the leading calls that the gateway ran."""
        encoded = [MethodCall(name, METHODS[name].encode(*arguments)) for name, arguments in calls]
        key = _new_key() if any(METHODS[name].changes for name, _ in calls) else b""
        encoded_results = await self._send(RpcRequest(encoded, stop, key, self._store, parallel=parallel))
        results: list[Any] = []
        for (name, _), encoded_result in zip(calls, encoded_results, strict=True):
            if encoded_result[0] == protocol.NOT_RUN:
                break
            results.append(decode_result(METHODS[name], encoded_result))
        return results

    async def _send(self, request: RpcRequest) -> tuple[tuple[Any, ...], ...]:
        packed = protocol.pack_request(request)
        seconds = self._timing.retry_seconds if request.calls else self._timing.hello_seconds
        response = parse_response(
            await self._transport.post(protocol.CALLS_PATH, "", packed, len(packed), read_whole, seconds=seconds)
        )
        self._store = response.store
        if len(response.results) != len(request.calls):
            raise Refused(f"the gateway sent {len(response.results)} results for {len(request.calls)} calls")
        return response.results

    # --- reading content ----------------------------------------------------------------------------------------------

    async def open(
        self, bucket: str, key: bytes, wanted: ByteRange | None = None, conditions: Conditions = NO_CONDITIONS
    ) -> Opened:
        info, start, length, response = await self._begin_read(bucket, key, wanted, conditions)
        end = start + length

        async def reopen(at: int) -> aiohttp.ClientResponse:
            """Read the rest of the same version. Raises `PreconditionFailed` if the object has changed."""
            same = Conditions(if_match=(info.etag,))
            return (await self._begin_read(bucket, info.key, ByteRange(at, end - 1), same)).response

        reading = ResumableRead(reopen, start, end, response)
        if length > UNSTREAMED_BYTES:
            return Opened(info, start, length, None, None, reading)
        async with aclosing(reading):
            whole = b"".join([piece async for piece in reading])
        return Opened(info, start, length, None, whole, reading)

    async def _begin_read(self, bucket: str, key: bytes, wanted: ByteRange | None, conditions: Conditions) -> _Content:
        query = _query(RpcRequest([MethodCall("open", OPEN_METHOD.encode(bucket, key, wanted, conditions))]))

        async def take_head(response: aiohttp.ClientResponse) -> tuple[bytes, aiohttp.ClientResponse]:
            return await read_head(response.content), response

        head, response = await self._transport.post(protocol.READ_PATH, query, b"", 0, take_head, keep=True)
        try:
            (encoded_result,) = parse_response(head).results
            result = decode_result(OPEN_METHOD, encoded_result)
            if isinstance(result, EntrepotError):
                raise result
        except BaseException:
            response.release()
            raise
        info, start, length = result
        return _Content(info, start, length, response)

    # --- writing content ----------------------------------------------------------------------------------------------

    async def put(
        self, bucket: str, key: bytes, body: Body, size: int, meta: ObjectMeta, conditions: Conditions = NO_CONDITIONS
    ) -> Stored:
        arguments, repeatable = (bucket, key, size, meta, conditions), conditions == NO_CONDITIONS
        stored: Stored = await self._write("put", body, size, arguments, repeatable=repeatable)
        return stored

    async def put_part(self, bucket: str, key: bytes, upload: str, number: int, body: Body, size: int) -> PartInfo:
        arguments = (bucket, key, upload, number, size)
        part: PartInfo = await self._write("put_part", body, size, arguments, repeatable=True)
        return part

    async def _write(self, name: str, body: Body, size: int, arguments: tuple[Any, ...], *, repeatable: bool) -> Any:
        """Send content, and once more under a new key if the outcome is unknown and the write is repeatable."""
        result = await self._write_once(name, body, size, arguments)
        if isinstance(result, _OUTCOME_UNKNOWN) and repeatable:
            result = await self._write_once(name, body, size, arguments)
        if isinstance(result, EntrepotError):
            raise result
        return result

    async def _write_once(self, name: str, body: Body, size: int, arguments: tuple[Any, ...]) -> Any:
        method = WRITE_METHODS[name]
        call = MethodCall(name, method.encode(*arguments))
        query = _query(RpcRequest([call], idempotency_key=_new_key(), known_store=self._store))
        response = await self._transport.post(protocol.WRITE_PATH, query, body, size, read_whole, tries=WRITE_TRIES)
        (encoded_result,) = parse_response(response).results
        return decode_result(method, encoded_result)


def _new_key() -> bytes:
    return secrets.token_bytes(protocol.IDEMPOTENCY_KEY_BYTES)


def _query(request: RpcRequest) -> str:
    """Return the query string that carries a request. Raises `InvalidArgument` if the request is too long for it."""
    call = base64.urlsafe_b64encode(protocol.pack_request(request)).decode()
    if len(call) > protocol.CALL_CHARS_MOST:
        raise InvalidArgument("the key and the metadata of the object are too long together")
    return f"{protocol.CALL_PARAMETER}={quote(call)}"


async def read_whole(response: aiohttp.ClientResponse) -> bytes:
    """Read the body of a response. Raises `Refused` if it is too long, or of unknown length."""
    length = response.content_length
    if length is None or length > RESPONSE_BYTES_MOST:
        raise Refused(f"the gateway sent a response of {length} bytes")
    return await response.content.readexactly(length)


def parse_response(packed: bytes) -> RpcResponse:
    """Decode a response. Raises `Refused` if it is invalid."""
    try:
        return protocol.unpack_response(packed)
    except SchemaError as error:
        raise _invalid_response(error) from None


def decode_result(method: Method, encoded: tuple[Any, ...]) -> Any:
    """Return a call's result, or the error that it was refused with. Raises `Refused` if the encoding is invalid."""
    try:
        if encoded[0] == protocol.OK:
            return method.result.decode(encoded[1], "the result")
        return protocol.decode_error(encoded[1], encoded[2])
    except (SchemaError, IndexError, TypeError) as error:
        raise _invalid_response(error) from None


def _invalid_response(error: Exception) -> Refused:
    return Refused(f"the gateway's response is invalid: {error}")
