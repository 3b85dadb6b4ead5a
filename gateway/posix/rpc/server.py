"""The gateway's side of the wire protocol: each request becomes calls of `InProcessApi`, and their results a response.

`s3api` has authenticated the caller and verified the signature of the request's head. If the caller signed a hash of
the body, this module checks it for bodies that it reads whole, and the engine checks it for content.

A worker bounds the memory for requests that have arrived and for responses that are not sent yet, and shares it fairly
among users (`shares`): a user whose share is used up gets `Busy`, which `s3api` reports as SlowDown.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from gateway.engine.shares import Shares, UserShare
from gateway.engine.types import Body, Buffer, Caller, Opened
from gateway.errors import (
    BadDigest,
    Busy,
    CommitterGone,
    EntityTooLarge,
    EntrepotError,
    IncompleteBody,
    InvalidArgument,
)
from gateway.journal.tables import SessionState
from gateway.posix.api import call_method
from gateway.posix.bodies import SignedBody
from gateway.posix.in_process import InProcessApi
from gateway.posix.rpc import protocol
from gateway.posix.rpc.framing import FramedStream, frame_bytes
from gateway.posix.rpc.idempotency import IdempotencyStore
from gateway.posix.rpc.methods import METHODS, OPEN_METHOD, WRITE_METHODS, Method
from gateway.posix.rpc.protocol import MethodCall, RpcRequest
from gateway.posix.rpc.schema import SchemaError
from gateway.site.paths import journal_folder
from gateway.site.site import Site

HELD_BYTES_MOST = 64 << 20
"""Of one worker: the requests that have arrived and the responses that are not sent yet."""
ONE_PIECE_BYTES = 64 << 10
"""Responses up to this size are passed to the socket at once, and not counted."""
SENT_BYTES = 256 << 10
"""The pieces in which a larger response is passed to the socket."""
PARALLEL_CALLS = 16
"""Calls of one request that run concurrently, if the request allows that."""
OPEN = "open"
_ALLOWED_WITH_CHANGES = frozenset({"look", "bucket"})
"""Methods that change nothing and may share a request with changes: their results are short, so they can be kept."""


class RpcReply(NamedTuple):
    """A response as `s3api` sends it: `body`, or else the *length* bytes of `chunks`."""

    operation: str
    """The name of the request in metrics and in the log."""
    body: Buffer = b""
    chunks: AsyncIterator[Buffer] | None = None
    length: int = 0
    code: str = ""
    """The wire code of the first error, for the log."""
    content_type: str = protocol.CONTENT_TYPE


class RpcServer:
    """Answers the requests below `/.entrepot/`. One for each worker."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._store = IdempotencyStore(journal_folder(site.folder, site.config), self._is_live, site.timing)
        self._held = Shares(HELD_BYTES_MOST, "memory for requests and responses of the file API")

    def close(self) -> None:
        """Close the idempotency store."""
        self._store.close()

    def _is_live(self, session: int) -> bool:
        rows = self._site.store.query("SELECT state FROM session WHERE id = ?", (session,))
        return bool(rows) and rows[0][0] == SessionState.LIVE

    async def answer(
        self, caller: Caller, name: str, query: Mapping[str, str], body: Body, size: int, sha256: str | None
    ) -> RpcReply:
        """Run a request that *caller* posted to the path *name*. *body*: *size* bytes with the signed hash *sha256*.

        Raises an error that applies to the request as a whole."""
        api = InProcessApi(self._site, caller)
        if name == protocol.CALLS_PATH:
            return await self._calls(api, caller, _attempt(query), body, size, sha256)
        if name == protocol.READ_PATH:
            return await self._read(api, query, size)
        if name == protocol.WRITE_PATH:
            return await self._write(api, caller, query, body, size, sha256)
        raise InvalidArgument(f"there is nothing at {protocol.PREFIX}{name[:80]}")

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _calls(
        self, api: InProcessApi, caller: Caller, attempt: int, body: Body, size: int, sha256: str | None
    ) -> RpcReply:
        if size > protocol.REQUEST_BYTES_MOST:
            raise EntityTooLarge(size, protocol.REQUEST_BYTES_MOST)
        held = self._held.hold(caller.user_id)
        try:
            packed = await _read_body(body, size, sha256, held)
            request = protocol.unpack_request(packed)
            key = _stored_key(caller, request.idempotency_key, packed)
            results = await self._idempotent(caller, key, request, attempt, lambda: self._run(api, request))
        finally:
            held.release()
        return self._reply(caller, _operation(request), request.version, results)

    async def _idempotent(
        self, caller: Caller, key: bytes, request: RpcRequest, attempt: int,
        run: Callable[[], Awaitable[list[bytes]]], changed_nothing: Callable[[], bool] = lambda: False,
    ) -> list[bytes]:  # fmt: skip
        """Run a request unless an earlier attempt has run. Returns its packed results, or the kept ones.

        *changed_nothing*: called if *run* raised; returns whether it is certain that nothing was changed."""
        _check_idempotency(request)
        if not key:
            return await run()
        try:
            kept = self._store.claim(
                key, self._site.journal.session, attempt, request.known_store,
                user=caller.user_id, calls=len(request.calls),
            )  # fmt: skip
        except CommitterGone as unknown:
            return _refuse_all(request, unknown)
        if kept is not None:
            return list(protocol.unpack(kept, "a kept response"))
        results = _refuse_all(request, CommitterGone("the outcome of an earlier attempt is unknown: it was cut short"))
        try:
            results = await run()
        except BaseException:
            if changed_nothing():
                results = []
            raise
        finally:
            if not results or _is_busy(results):
                self._store.drop(key)
            else:
                self._store.keep(key, protocol.pack(results))
        if _is_busy(results):
            raise Busy("the call itself")
        return results

    async def _run(self, api: InProcessApi, request: RpcRequest) -> list[bytes]:
        """Run the calls of a request, some at a time. Returns their packed results."""
        results: list[bytes] = []
        size, stopped = 0, False
        enough = protocol.KEPT_BYTES_ENOUGH if request.idempotency_key else protocol.RESPONSE_BYTES_ENOUGH
        step = PARALLEL_CALLS if request.parallel else 1
        for at in range(0, len(request.calls), step):
            calls = request.calls[at : at + step]
            if stopped or size > enough:
                results += [protocol.pack([protocol.NOT_RUN])] * len(calls)
                continue
            more = await asyncio.gather(*[_run_call(api, each) for each in calls])
            results += more
            size += sum(map(len, more))
            stopped = request.stop_on_error and bool(_error_code(more[-1]))
        return results

    # --- content ------------------------------------------------------------------------------------------------------

    async def _read(self, api: InProcessApi, query: Mapping[str, str], size: int) -> RpcReply:
        if size:
            raise InvalidArgument("a read has no body")
        request, _ = _request_in_query(query)
        (call,) = request.calls
        if call.name != OPEN:
            raise InvalidArgument(f"`{call.name[:80]}` is not a method that reads content")
        try:
            opened = await api.open(*_decode_arguments(OPEN_METHOD, call))
        except Busy:
            raise
        except EntrepotError as error:
            head = protocol.pack_response(request.version, self._store.name, [_pack_error(error)])
            return RpcReply("fs.open", frame_bytes(head, b""), code=error.wire_code)
        return self._read_reply(opened, request.version)

    def _read_reply(self, opened: Opened, version: int) -> RpcReply:
        result = OPEN_METHOD.result.encode((opened.info, opened.start, opened.length))
        head = protocol.pack_response(version, self._store.name, [protocol.pack([protocol.OK, result])])
        if opened.whole is not None:
            return RpcReply("fs.open", frame_bytes(head, opened.whole))
        chunks = FramedStream(head, opened.chunks, opened.length)
        return RpcReply("fs.open", chunks=chunks, length=chunks.length)

    async def _write(
        self, api: InProcessApi, caller: Caller, query: Mapping[str, str], body: Body, size: int, sha256: str | None
    ) -> RpcReply:
        request, packed = _request_in_query(query)
        (call,) = request.calls
        method = WRITE_METHODS.get(call.name)
        if method is None:
            raise InvalidArgument(f"`{call.name[:80]}` is not a method that writes content")
        arguments = dict(zip(method.arguments, _decode_arguments(method, call), strict=True))
        if arguments["size"] != size:
            raise IncompleteBody(arguments["size"], size)
        signed = SignedBody(body, sha256)
        write = api.put if call.name == "put" else api.put_part

        async def run() -> list[bytes]:
            try:
                result: Any = await write(body=signed, **arguments)
            except (BadDigest, IncompleteBody):
                signed.consumed = False  # the content did not arrive as it was sent: nothing was stored
                raise
            except EntrepotError as error:
                return [_pack_error(error)]
            return [protocol.pack([protocol.OK, method.result.encode(result)])]

        key = _stored_key(caller, request.idempotency_key, packed)
        results = await self._idempotent(
            caller, key, request, _attempt(query), run, changed_nothing=lambda: not signed.consumed
        )
        return self._reply(caller, f"fs.{call.name}", request.version, results)

    # --- responses ----------------------------------------------------------------------------------------------------

    def _reply(self, caller: Caller, operation: str, version: int, results: list[bytes]) -> RpcReply:
        body = protocol.pack_response(version, self._store.name, results)
        code = next((code for code in map(_error_code, results) if code), "")
        if len(body) <= ONE_PIECE_BYTES:
            return RpcReply(operation, body, code=code)
        held = self._held.hold(caller.user_id)
        held.add(len(body))
        return RpcReply(operation, chunks=_HeldResponse(body, held), length=len(body), code=code)


class _HeldResponse:
    """A response in pieces. Its bytes are charged to the user until it is sent or closed."""

    def __init__(self, body: bytes, held: UserShare) -> None:
        self._pieces = iter([memoryview(body)[at : at + SENT_BYTES] for at in range(0, len(body), SENT_BYTES)])
        self._held = held

    def __aiter__(self) -> _HeldResponse:
        return self

    async def __anext__(self) -> Buffer:
        piece = next(self._pieces, None)
        if piece is None:
            self._held.release()
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        self._held.release()


async def _run_call(api: InProcessApi, call: MethodCall) -> bytes:
    """Run one call. Returns its packed result, or the packed error that it was refused with."""
    try:
        method = METHODS.get(call.name)
        if method is None:
            raise InvalidArgument(f"`{call.name[:80]}` is not a method")
        result = await call_method(api, call.name, _decode_arguments(method, call))
        return protocol.pack([protocol.OK, method.result.encode(result)])
    except EntrepotError as error:
        return _pack_error(error)


def _decode_arguments(method: Method, call: MethodCall) -> list[Any]:
    try:
        return method.decode(call.name, call.arguments)
    except SchemaError as error:
        raise InvalidArgument(str(error)) from None


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


def _request_in_query(query: Mapping[str, str]) -> tuple[RpcRequest, bytes]:
    """Return the request, of exactly one call, that the query carries, decoded and packed."""
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
    return request, packed


def _attempt(query: Mapping[str, str]) -> int:
    text = query.get(protocol.ATTEMPT_PARAMETER, "1")
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise InvalidArgument(f"?{protocol.ATTEMPT_PARAMETER}= must be a number")
    return int(text)


def _check_idempotency(request: RpcRequest) -> None:
    """Raise `InvalidArgument` for changes without a key, and for long results under one, which would be kept."""
    changing = [_changes(each.name) for each in request.calls]
    if not request.idempotency_key:
        if any(changing):
            raise InvalidArgument(f"a request with changes needs `once`, {protocol.IDEMPOTENCY_KEY_BYTES} bytes")
        return
    pairs = zip(request.calls, changing, strict=True)
    if any(not changes and call.name not in _ALLOWED_WITH_CHANGES for call, changes in pairs):
        raise InvalidArgument("listings cannot share a request with changes, whose results are kept")


def _stored_key(caller: Caller, key: bytes, packed: bytes) -> bytes:
    """Return the key in the store: a hash of the client's key, the user and the whole request. Empty without a key."""
    if not key:
        return b""
    return hashlib.blake2b(packed, digest_size=24, key=key, salt=caller.user_id.to_bytes(8, "big") * 2).digest()


def _changes(name: str) -> bool:
    method = METHODS.get(name) or WRITE_METHODS.get(name)
    return method is not None and method.changes


def _operation(request: RpcRequest) -> str:
    """Return the request's name in metrics: one of few, whatever clients send."""
    if len(request.calls) == 1 and request.calls[0].name in METHODS:
        return f"fs.{request.calls[0].name}"
    return "fs.verbs"


def _pack_error(error: EntrepotError) -> bytes:
    return protocol.pack([protocol.REFUSED, *protocol.encode_error(error)])


def _refuse_all(request: RpcRequest, error: EntrepotError) -> list[bytes]:
    return [_pack_error(error) for _ in request.calls]


def _error_code(packed_result: bytes) -> str:
    """Return the wire code of the error in a packed result; empty for other results."""
    if packed_result[1:2] != bytes((protocol.REFUSED,)):
        return ""
    return str(protocol.unpack(packed_result, "a result")[1])


def _is_busy(results: list[bytes]) -> bool:
    """Whether the request is one call that was refused with `Busy`, so that it may be sent again as a whole."""
    return len(results) == 1 and _error_code(results[0]) == "Busy"
