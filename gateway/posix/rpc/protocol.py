"""The wire protocol between a file system and a gateway: requests and responses, packed with msgpack. Pure.

Every request is a POST below `/.entrepot/` on the gateway's S3 port (no bucket can have that name), signed like a
request of S3.

    verbs   body: {speaks, verbs: [[name, arguments], …], stop, together, once, knows}
            response: {version, memory, results: [[OK, value] | [REFUSED, error, arguments] | [NOT_RUN], …]}
    read    ?call= {speaks, verbs: [["open", arguments]]}
            response: the length of a head, the head (as a response of `verbs`), then the content in frames of
            `FRAME_BYTES` (the last one may be shorter), each followed by its CRC32C
    write   ?call= {speaks, verbs: [["put" or "put_part", arguments]], once, knows}; the body is the content
            response: as that of `verbs`

`speaks` lists the versions that the client understands; the response names the one it is in. The calls of a request
run in order, each with its own result. With `stop`, the calls after a refused one are not run. Calls whose results
would exceed the size limit of the response are not run either. Calls that are sent `together` may run in any order and
concurrently. A request that is invalid as a whole gets an error response of S3 (4xx, an XML document).

**Idempotency.** A request that changes something carries an idempotency key of 16 random bytes, `once`. The gateway
keeps its response under that key for `kept_seconds`: the same request, sent again with `?attempt=` above 1, gets the
kept response and is not run again. `memory` names the gateway's idempotency store. The client repeats that name in
`knows`, so that a gateway that has lost its store can report that the outcome is unknown.

Keys and paths on the wire never change their meaning. The names in this package map to them: `MethodCall` to an element
of `verbs`, `idempotency_key` to `once`, `store` to `memory`, `known_store` to `knows`, `parallel` to `together`,
`stop_on_error` to `stop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from gateway.errors import BY_WIRE_CODE, EntrepotError, InvalidArgument, Refused
from gateway.posix.rpc.schema import BOOLEAN, BYTES, INTEGER, TEXT, ListOf, SchemaError

VERSION = 1
SUPPORTED_VERSIONS = (VERSION,)
PREFIX = "/.entrepot/"
CALLS_PATH, READ_PATH, WRITE_PATH = "verbs", "read", "write"
CALL_PARAMETER, ATTEMPT_PARAMETER = "call", "attempt"

REQUEST_BYTES_MOST = 2 << 20
"""Holds a thousand keys of the maximum length."""
CALL_CHARS_MOST = 24 << 10
"""Of `?call=`, in base64."""
CALLS_MOST = 64
"""In one request."""
RESPONSE_BYTES_ENOUGH = 4 << 20
"""Once the results have this size, no further call of the request is run."""
KEPT_BYTES_ENOUGH = 256 << 10
"""The same, for a response that the idempotency store keeps."""
ARGUMENTS_MOST = 16
FRAME_BYTES = 1 << 20
CRC_BYTES = 4
HEAD_LENGTH_BYTES = 4
"""Size of the length field before the head of a read's response."""
HEAD_BYTES_MOST = 1 << 20
IDEMPOTENCY_KEY_BYTES = 16

OK, REFUSED, NOT_RUN = range(3)
CONTENT_TYPE = "application/vnd.entrepot.verbs+msgpack"


class MethodCall(NamedTuple):
    """One call in a request. Its arguments are encoded."""

    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RpcRequest:
    calls: Sequence[MethodCall]
    stop_on_error: bool = False
    idempotency_key: bytes = b""
    known_store: str = ""
    """The name of the idempotency store that the client knows."""
    version: int = VERSION
    parallel: bool = False
    """Whether the calls may run in any order and concurrently."""


class RpcResponse(NamedTuple):
    """A response. Its results are encoded."""

    version: int
    store: str
    """The name of the gateway's idempotency store."""
    results: tuple[tuple[Any, ...], ...]


def pack(value: Any) -> bytes:
    """Pack encoded values. Raises `InvalidArgument` for text that is not Unicode and for integers above 64 bits."""
    try:
        packed: bytes = msgpack.packb(value)
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidArgument(f"this value cannot be sent: {error}") from None
    return packed


def unpack(packed: bytes, what: str) -> Any:
    """Unpack untrusted bytes. *what* names them in the error. Raises `SchemaError`."""
    try:
        return msgpack.unpackb(packed, use_list=False, max_ext_len=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        raise SchemaError(f"{what} is not valid msgpack") from None


def pack_request(request: RpcRequest) -> bytes:
    """Return the request as msgpack."""
    return pack(
        {
            "speaks": SUPPORTED_VERSIONS,
            "verbs": [[call.name, list(call.arguments)] for call in request.calls],
            "once": request.idempotency_key,
            "knows": request.known_store,
            "stop": request.stop_on_error,
            "together": request.parallel,
        }
    )


def unpack_request(packed: bytes) -> RpcRequest:
    """Validate and decode a client's request. Raises `InvalidArgument`, which names the wrong field."""
    try:
        fields = unpack(packed, "the request")
        if not isinstance(fields, dict):
            raise SchemaError("the request must be a map")
        speaks = ListOf(INTEGER, 100).decode(fields.get("speaks"), "speaks")
        version = max((each for each in speaks if each in SUPPORTED_VERSIONS), default=0)
        if not version:
            supported = ", ".join(map(str, SUPPORTED_VERSIONS))
            raise SchemaError(f"speaks contains no version that this gateway supports: {supported}")
        key = BYTES.decode(fields.get("once", b""), "once")
        if len(key) not in (0, IDEMPOTENCY_KEY_BYTES):
            raise SchemaError(f"once must have {IDEMPOTENCY_KEY_BYTES} bytes")
        stop, known_store = (
            BOOLEAN.decode(fields.get("stop", False), "stop"),
            TEXT.decode(fields.get("knows", ""), "knows"),
        )
        parallel = BOOLEAN.decode(fields.get("together", False), "together")
        if stop and parallel:
            raise SchemaError("stop and together exclude each other")
        return RpcRequest(_decode_calls(fields.get("verbs")), stop, key, known_store, version, parallel)
    except SchemaError as error:
        raise InvalidArgument(str(error)) from None


def _decode_calls(encoded: Any) -> list[MethodCall]:
    if not isinstance(encoded, tuple) or len(encoded) > CALLS_MOST:
        raise SchemaError(f"verbs must be a list of at most {CALLS_MOST} calls")
    calls = []
    for number, each in enumerate(encoded):
        if not isinstance(each, tuple) or len(each) != 2:
            raise SchemaError(f"verbs[{number}] must be a name and a list of arguments")
        name, arguments = TEXT.decode(each[0], f"verbs[{number}]'s name"), each[1]
        if not isinstance(arguments, tuple) or len(arguments) > ARGUMENTS_MOST:
            raise SchemaError(f"verbs[{number}]'s arguments must be a list of at most {ARGUMENTS_MOST}")
        calls.append(MethodCall(name, arguments))
    return calls


def pack_response(version: int, store: str, packed_results: Sequence[bytes]) -> bytes:
    """Return a response as msgpack, from results that are packed already."""
    packer = msgpack.Packer()
    head = b"".join(
        (packer.pack_map_header(3), pack("version"), pack(version), pack("memory"), pack(store), pack("results"))
    )
    return b"".join((head, packer.pack_array_header(len(packed_results)), *packed_results))


def unpack_response(packed: bytes) -> RpcResponse:
    """Validate and decode a gateway's response. Raises `SchemaError`."""
    fields = unpack(packed, "the response")
    if not isinstance(fields, dict) or not isinstance(fields.get("results"), tuple):
        raise SchemaError("the response must be a map with results")
    version = INTEGER.decode(fields.get("version"), "version")
    if version not in SUPPORTED_VERSIONS:
        raise SchemaError(f"the response is in version {version}, which the client did not offer")
    return RpcResponse(version, TEXT.decode(fields.get("memory", ""), "memory"), fields["results"])


def encode_error(error: EntrepotError) -> list[Any]:
    """Encode an error as its wire code and plain arguments."""
    return [error.wire_code, [_encode_argument(each) for each in error.args]]


def _encode_argument(argument: Any) -> Any:
    if isinstance(argument, bytes | int | float | bool | None):
        return argument
    return str(argument).encode("utf-8", "backslashreplace").decode()


def decode_error(code: Any, args: Any) -> EntrepotError:
    """Decode an error. An unknown code becomes `Refused`, with the code in its message. Raises `SchemaError`."""
    if not isinstance(code, str) or not isinstance(args, tuple):
        raise SchemaError("an error must be a wire code and a list of arguments")
    kind = BY_WIRE_CODE.get(code)
    return kind(*args) if kind is not None else Refused(f"{code}: {', '.join(map(str, args))}")
