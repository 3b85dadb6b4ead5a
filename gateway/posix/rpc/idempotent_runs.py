"""Runs each request with an idempotency key once, however often the client sends it. Packs results and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from gateway.errors import Busy, CommitterGone, EntrepotError, InvalidArgument
from gateway.posix.rpc import protocol
from gateway.posix.rpc.idempotency import IdempotencyStore
from gateway.posix.rpc.methods import METHODS, WRITE_METHODS, Method
from gateway.posix.rpc.protocol import RpcRequest
from gateway.posix.rpc.received import ReceivedRequest

_ALLOWED_WITH_CHANGES = frozenset({"look", "bucket"})
"""Methods that change nothing and may share a request with changes: their results are short, so they can be kept."""


async def run_once(
    store: IdempotencyStore, session: int, received: ReceivedRequest, run: Callable[[], Awaitable[list[bytes]]],
    changed_nothing: Callable[[], bool] = lambda: False,
) -> list[bytes]:  # fmt: skip
    """Run a request unless an earlier attempt has run. Returns its packed results, or the kept ones. *session*: of this
    worker.

    *changed_nothing*: called if *run* raised; returns whether it is certain that nothing was changed."""
    request, key = received.request, received.stored_key
    _check_idempotency(request)
    if not key:
        return await run()
    try:
        kept = store.claim(
            key, session, received.attempt, request.known_store,
            user=received.caller.user_id, calls=len(request.calls),
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
            store.drop(key)
        else:
            store.keep(key, protocol.pack(results))
    if _is_busy(results):
        raise Busy("the call itself")
    return results


def pack_result(method: Method, result: Any) -> bytes:
    """Return the packed *result* of *method*."""
    return protocol.pack([protocol.OK, method.result.encode(result)])


def pack_error(error: EntrepotError) -> bytes:
    """Return the packed result of a call that was refused with *error*."""
    return protocol.pack([protocol.REFUSED, *protocol.encode_error(error)])


def error_code(packed_result: bytes) -> str:
    """Return the wire code of the error in a packed result; empty for other results."""
    if packed_result[1:2] != bytes((protocol.REFUSED,)):
        return ""
    return str(protocol.unpack(packed_result, "a result")[1])


def _refuse_all(request: RpcRequest, error: EntrepotError) -> list[bytes]:
    return [pack_error(error) for _ in request.calls]


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


def _changes(name: str) -> bool:
    method = METHODS.get(name) or WRITE_METHODS.get(name)
    return method is not None and method.changes


def _is_busy(results: list[bytes]) -> bool:
    """Whether the request is one call that was refused with `Busy`, so that it may be sent again as a whole."""
    return len(results) == 1 and error_code(results[0]) == "Busy"
