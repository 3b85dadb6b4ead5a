"""The wire between a file system and a gateway: what is asked and answered, packed with msgpack. Pure.

Everything is a POST below `/.entrepot/` on the gateway's S3 port (no bucket has such a name), signed as S3's are.

    verbs   the body: {speaks, verbs: [[name, arguments], …], stop, together, once, knows}
            the answer: {version, memory, results: [[OK, value] | [REFUSED, error, arguments] | [NOT_RUN], …]}
    read    ?call= {speaks, verbs: [["open", arguments]]}; the answer: length of a head, the head (as `verbs` answers),
            then the bytes in frames of `FRAME_BYTES`, the last one shorter, each with its CRC32C behind it
    write   ?call= {speaks, verbs: [["put" or "put_part", arguments]], once, knows}; the body is the bytes;
            the answer is as that of `verbs`

`speaks` are the versions that who asks understands; the answer says which of them it is in. Several verbs are run in
their order, each with its own result; behind one that was refused the others are not run where `stop` says so, nor are
those for whose answers there is no room. Those that are asked `together` may be run in any order and at the same time.
A request that is wrong as a whole is answered as S3 answers (4xx, an XML document).

**Once.** A request that changes something bears 16 random bytes, `once`, under which its answer is kept for
`kept_seconds`: sent again, with `?attempt=` above 1, it is answered and not run again. `memory` names the memory that
keeps answers; who asks says which one it `knows`, so that one which has lost its memory says that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from gateway.errors import BY_WIRE_CODE, EntrepotError, InvalidArgument, Refused
from gateway.posix.rpc.schema import BOOLEAN, BYTES, INTEGER, TEXT, Malformed, Many

VERSION = 1
SPOKEN = (VERSION,)
PREFIX = "/.entrepot/"
VERBS, READ, WRITE = "verbs", "read", "write"
CALL, ATTEMPT = "call", "attempt"

REQUEST_BYTES_MOST = 2 << 20
"""A thousand keys of the greatest length fit."""
CALL_CHARS_MOST = 24 << 10
"""Of `?call=`, in base64."""
VERBS_MOST = 64
ANSWER_BYTES_ENOUGH = 4 << 20
"""Behind so many no further verb of the request is run."""
KEPT_BYTES_ENOUGH = 256 << 10
"""The same where the answer is kept."""
ARGUMENTS_MOST = 16
FRAME_BYTES = 1 << 20
CRC_BYTES = 4
HEAD_BYTES = 4
"""Of the length of a read's head."""
HEAD_BYTES_MOST = 1 << 20
ONCE_BYTES = 16

OK, REFUSED, NOT_RUN = range(3)
CONTENT_TYPE = "application/vnd.entrepot.verbs+msgpack"


class Verb(NamedTuple):
    """One verb of a request, its arguments still plain."""

    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    verbs: Sequence[Verb]
    stop: bool = False
    once: bytes = b""
    knows: str = ""
    version: int = VERSION
    together: bool = False


class Answered(NamedTuple):
    """An answer, its results still plain."""

    version: int
    memory: str
    results: tuple[tuple[Any, ...], ...]


def pack(value: Any) -> bytes:
    """Raises `InvalidArgument` for a text that is not Unicode, or a number of more than 64 bits."""
    try:
        packed: bytes = msgpack.packb(value)
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidArgument(f"this cannot be sent: {error}") from None
    return packed


def unpack(packed: bytes, what: str) -> Any:
    """Raises `Malformed`."""
    try:
        return msgpack.unpackb(packed, use_list=False, max_ext_len=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        raise Malformed(f"{what} is not msgpack as it is spoken here") from None


def packed_request(asked: Asked) -> bytes:
    """A request, ready to travel."""
    verbs = [[each.name, list(each.arguments)] for each in asked.verbs]
    said = {"speaks": SPOKEN, "verbs": verbs, "once": asked.once, "knows": asked.knows}
    return pack(said | {"stop": asked.stop, "together": asked.together})


def read_request(packed: bytes) -> Asked:
    """The request again. Raises `InvalidArgument` that says what is wrong where."""
    try:
        found = unpack(packed, "the request")
        if not isinstance(found, dict):
            raise Malformed("the request is a map")
        speaks = Many(INTEGER, 100).read(found.get("speaks"), "speaks")
        version = max((each for each in speaks if each in SPOKEN), default=0)
        if not version:
            raise Malformed(f"speaks has no version that is spoken here: {', '.join(map(str, SPOKEN))}")
        once = BYTES.read(found.get("once", b""), "once")
        if len(once) not in (0, ONCE_BYTES):
            raise Malformed(f"once is {ONCE_BYTES} bytes")
        stop, knows = BOOLEAN.read(found.get("stop", False), "stop"), TEXT.read(found.get("knows", ""), "knows")
        together = BOOLEAN.read(found.get("together", False), "together")
        if stop and together:
            raise Malformed("what is asked together does not stop where one is refused")
        return Asked(_read_verbs(found.get("verbs")), stop, once, knows, version, together)
    except Malformed as wrong:
        raise InvalidArgument(str(wrong)) from None


def _read_verbs(plain: Any) -> list[Verb]:
    if not isinstance(plain, tuple) or len(plain) > VERBS_MOST:
        raise Malformed(f"verbs is a list of at most {VERBS_MOST}")
    verbs = []
    for number, each in enumerate(plain):
        if not isinstance(each, tuple) or len(each) != 2:
            raise Malformed(f"verbs[{number}] is a name and a list of arguments")
        name, arguments = TEXT.read(each[0], f"verbs[{number}]'s name"), each[1]
        if not isinstance(arguments, tuple) or len(arguments) > ARGUMENTS_MOST:
            raise Malformed(f"verbs[{number}]'s arguments are a list of at most {ARGUMENTS_MOST}")
        verbs.append(Verb(name, arguments))
    return verbs


def packed_answer(version: int, memory: str, packed_results: Sequence[bytes]) -> bytes:
    """An answer, ready to travel, of results that are packed already."""
    packer = msgpack.Packer()
    head = b"".join(
        (packer.pack_map_header(3), pack("version"), pack(version), pack("memory"), pack(memory), pack("results"))
    )
    return b"".join((head, packer.pack_array_header(len(packed_results)), *packed_results))


def read_answer(packed: bytes) -> Answered:
    """The answer again. Raises `Malformed`."""
    found = unpack(packed, "the answer")
    if not isinstance(found, dict) or not isinstance(found.get("results"), tuple):
        raise Malformed("the answer is a map with results")
    version = INTEGER.read(found.get("version"), "version")
    if version not in SPOKEN:
        raise Malformed(f"the answer is in version {version}, which was not asked for")
    return Answered(version, TEXT.read(found.get("memory", ""), "memory"), found["results"])


def plain_error(error: EntrepotError) -> list[Any]:
    """Encode an error as its wire code and plain arguments."""
    return [error.wire_code, [_plain(each) for each in error.args]]


def _plain(argument: Any) -> Any:
    if isinstance(argument, bytes | int | float | bool | None):
        return argument
    return str(argument).encode("utf-8", "backslashreplace").decode()


def error_of(code: Any, args: Any) -> EntrepotError:
    """The error again; of a class that is not known here, the nearest that says as much: `Refused`."""
    if not isinstance(code, str) or not isinstance(args, tuple):
        raise Malformed("an error is a wire code and its arguments")
    kind = BY_WIRE_CODE.get(code)
    return kind(*args) if kind is not None else Refused(f"{code}: {', '.join(map(str, args))}")
