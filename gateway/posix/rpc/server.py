"""The gateway's side of the wire protocol: each request becomes calls of `InProcessApi`, and their results a response.

`s3api` has authenticated the caller and verified the signature of the request's head. If the caller signed a hash of
the body, this module checks it for bodies that it reads whole, and the engine checks it for content.

A worker bounds the memory for requests that have arrived and for responses that are not sent yet, and shares it fairly
among users (`shares`): a user whose share is used up gets `Busy`, which `s3api` reports as SlowDown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from gateway.engine.shares import Shares, UserShare
from gateway.engine.types import Body, Buffer, Caller, Opened
from gateway.errors import BadDigest, Busy, EntityTooLarge, EntrepotError, IncompleteBody, InvalidArgument
from gateway.journal.tables import SessionState
from gateway.posix.api import call_method
from gateway.posix.bodies import SignedBody
from gateway.posix.in_process import InProcessApi
from gateway.posix.rpc import protocol
from gateway.posix.rpc.framing import FramedStream, frame_bytes
from gateway.posix.rpc.idempotency import IdempotencyStore
from gateway.posix.rpc.idempotent_runs import error_code, pack_error, pack_result, run_once
from gateway.posix.rpc.methods import METHODS, OPEN_METHOD, WRITE_METHODS, Method
from gateway.posix.rpc.protocol import MethodCall, RpcRequest
from gateway.posix.rpc.received import ReceivedRequest, attempt_in_query, request_in_body, request_in_query
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
Run = Callable[[], Awaitable[list[bytes]]]
"""Runs the calls of a request. Returns their packed results."""


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
            return await self._calls(api, caller, attempt_in_query(query), body, size, sha256)
        if name == protocol.READ_PATH:
            if size:
                raise InvalidArgument("a read has no body")
            return await self._read(api, request_in_query(caller, query))
        if name == protocol.WRITE_PATH:
            return await self._write(api, request_in_query(caller, query, attempt_in_query(query)), body, size, sha256)
        raise InvalidArgument(f"there is nothing at {protocol.PREFIX}{name[:80]}")

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _calls(
        self, api: InProcessApi, caller: Caller, attempt: int, body: Body, size: int, sha256: str | None
    ) -> RpcReply:
        if size > protocol.REQUEST_BYTES_MOST:
            raise EntityTooLarge(size, protocol.REQUEST_BYTES_MOST)
        held = self._held.new_share(caller.user_id)
        try:
            received = await request_in_body(caller, attempt, body, size, sha256, held)
            results = await self._run_once(received, lambda: _run_calls(api, received.request))
        finally:
            held.release()
        return self._reply(received, _operation(received.request), results)

    async def _run_once(
        self, received: ReceivedRequest, run: Run, changed_nothing: Callable[[], bool] = lambda: False
    ) -> list[bytes]:
        return await run_once(self._store, self._site.journal.session, received, run, changed_nothing)

    # --- content ------------------------------------------------------------------------------------------------------

    async def _read(self, api: InProcessApi, received: ReceivedRequest) -> RpcReply:
        call, version = received.call, received.request.version
        if call.name != OPEN:
            raise InvalidArgument(f"`{call.name[:80]}` is not a method that reads content")
        try:
            opened = await api.open(*_decode_arguments(OPEN_METHOD, call))
        except Busy:
            raise
        except EntrepotError as error:
            head = protocol.pack_response(version, self._store.name, [pack_error(error)])
            return RpcReply("fs.open", frame_bytes(head, b""), code=error.wire_code)
        return self._read_reply(opened, version)

    def _read_reply(self, opened: Opened, version: int) -> RpcReply:
        result = pack_result(OPEN_METHOD, (opened.info, opened.start, opened.length))
        head = protocol.pack_response(version, self._store.name, [result])
        if opened.whole is not None:
            return RpcReply("fs.open", frame_bytes(head, opened.whole))
        chunks = FramedStream(head, opened.chunks, opened.length)
        return RpcReply("fs.open", chunks=chunks, length=chunks.length)

    async def _write(
        self, api: InProcessApi, received: ReceivedRequest, body: Body, size: int, sha256: str | None
    ) -> RpcReply:
        call = received.call
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
                return [pack_error(error)]
            return [pack_result(method, result)]

        results = await self._run_once(received, run, changed_nothing=lambda: not signed.consumed)
        return self._reply(received, f"fs.{call.name}", results)

    # --- responses ----------------------------------------------------------------------------------------------------

    def _reply(self, received: ReceivedRequest, operation: str, results: list[bytes]) -> RpcReply:
        body = protocol.pack_response(received.request.version, self._store.name, results)
        code = next((code for code in map(error_code, results) if code), "")
        if len(body) <= ONE_PIECE_BYTES:
            return RpcReply(operation, body, code=code)
        held = self._held.new_share(received.caller.user_id)
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


async def _run_calls(api: InProcessApi, request: RpcRequest) -> list[bytes]:
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
        stopped = request.stop_on_error and bool(error_code(more[-1]))
    return results


async def _run_call(api: InProcessApi, call: MethodCall) -> bytes:
    """Run one call. Returns its packed result, or the packed error that it was refused with."""
    try:
        method = METHODS.get(call.name)
        if method is None:
            raise InvalidArgument(f"`{call.name[:80]}` is not a method")
        result = await call_method(api, call.name, _decode_arguments(method, call))
        return pack_result(method, result)
    except EntrepotError as error:
        return pack_error(error)


def _decode_arguments(method: Method, call: MethodCall) -> list[Any]:
    try:
        return method.decode(call.name, call.arguments)
    except SchemaError as error:
        raise InvalidArgument(str(error)) from None


def _operation(request: RpcRequest) -> str:
    """Return the request's name in metrics: one of few, whatever clients send."""
    if len(request.calls) == 1 and request.calls[0].name in METHODS:
        return f"fs.{request.calls[0].name}"
    return "fs.verbs"
