"""The gateway's end of the wire: what was posted, asked of the site in process, and the answer.

Who asks was verified, and what the request's head says; the payload's hash, where the whole of it is read here, is
checked here. What is held of requests that have arrived and of answers that are not sent yet is bounded, and shared
fairly among users (`shares`): past its share a user is answered `Busy`, which S3's door tells as SlowDown.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from gateway.engine.shares import Held, Shares
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
from gateway.posix.bodies import Vouched
from gateway.posix.in_process import InProcess
from gateway.posix.rpc import protocol
from gateway.posix.rpc.framing import framed, framed_bytes
from gateway.posix.rpc.idempotency import AnsweredMemory
from gateway.posix.rpc.methods import OPEN, TRAVELLING, WRITING, Travelling
from gateway.posix.rpc.protocol import Asked, Verb
from gateway.posix.rpc.schema import Malformed
from gateway.site.paths import journal_folder
from gateway.site.site import Site

HELD_BYTES_MOST = 64 << 20
"""Requests as far as they have arrived, and answers that are not sent yet, of one worker together."""
ONE_PIECE_BYTES = 64 << 10
"""Answers up to here are not counted: they are handed to the socket at once."""
TOGETHER = 16
"""Verbs of one request that run at the same time, where it allows that."""
OPEN_VERB = "open"
_BESIDE_CHANGES = frozenset({"look", "bucket"})
"""What changes nothing, and may go together with what does: its answers are short."""


class Reply(NamedTuple):
    """What goes back."""

    operation: str
    """What metrics and the log call it."""
    body: Buffer = b""
    chunks: AsyncIterator[Buffer] | None = None
    """The body in pieces, *length* bytes together, where it is not `body`."""
    length: int = 0
    code: str = ""
    """The first error's name, for the log."""
    content_type: str = protocol.CONTENT_TYPE


class WireServer:
    """Answers what is posted below `/.entrepot/`. For one worker."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._memory = AnsweredMemory(journal_folder(site.folder, site.config), self._lives, site.timing)
        self._held = Shares(HELD_BYTES_MOST, "what the file API holds in memory")

    def close(self) -> None:
        self._memory.close()

    def _lives(self, session: int) -> bool:
        rows = self._site.store.query("SELECT state FROM session WHERE id = ?", (session,))
        return bool(rows) and rows[0][0] == SessionState.LIVE

    async def answer(
        self, caller: Caller, name: str, query: Mapping[str, str], body: Body, size: int, sha256: str | None
    ) -> Reply:
        """The answer to *body*, of *size* bytes with that hash, that *caller* posted to *name*. Raises what is wrong
        with the request as a whole."""
        verbs = InProcess(self._site, caller)
        if name == protocol.VERBS:
            return await self._verbs(verbs, caller, _attempt(query), body, size, sha256)
        if name == protocol.READ:
            return await self._read(verbs, query, size)
        if name == protocol.WRITE:
            return await self._write(verbs, caller, query, body, size, sha256)
        raise InvalidArgument(f"nothing is asked at {protocol.PREFIX}{name[:80]}")

    # --- verbs --------------------------------------------------------------------------------------------------------

    async def _verbs(
        self, verbs: InProcess, caller: Caller, attempt: int, body: Body, size: int, sha256: str | None
    ) -> Reply:
        if size > protocol.REQUEST_BYTES_MOST:
            raise EntityTooLarge(size, protocol.REQUEST_BYTES_MOST)
        held = self._held.hold(caller.user_id)
        try:
            packed = await _whole(body, size, sha256, held)
            asked = protocol.read_request(packed)
            operation = _operation(asked)
            once = _once(caller, asked.once, packed)
            results = await self._once(caller, once, asked, attempt, lambda: self._run(verbs, asked))
        finally:
            held.release()
        return self._reply(caller, operation, asked.version, results)

    async def _once(
        self, caller: Caller, once: bytes, asked: Asked, attempt: int, run: Callable[[], Awaitable[list[bytes]]],
        untouched: Callable[[], bool] = lambda: False,
    ) -> list[bytes]:  # fmt: skip
        """The packed results; those of an earlier try, if it had any. *untouched*: where *run* raised, whether it is
        sure that it changed nothing."""
        if not once:
            if any(_changes(each.name) for each in asked.verbs):
                raise InvalidArgument(f"what changes something needs `once`, {protocol.ONCE_BYTES} bytes")
            return await run()
        if any(not _changes(each.name) and each.name not in _BESIDE_CHANGES for each in asked.verbs):
            raise InvalidArgument("listings are not asked for together with changes, whose answers are kept")
        try:
            kept = self._memory.claim(
                once, self._site.journal.session, attempt, asked.knows, user=caller.user_id, verbs=len(asked.verbs)
            )
        except CommitterGone as unknown:
            return _all_refused(asked, unknown)
        if kept is not None:
            return list(protocol.unpack(kept, "an answer that was kept"))
        results = _all_refused(asked, CommitterGone("what became of an earlier try is not known: it was cut short"))
        try:
            results = await run()
        except BaseException:
            if untouched():
                results = []
            raise
        finally:
            if not results or (len(results) == 1 and _code(results[0]) == "Busy"):
                self._memory.drop(once)
            else:
                self._memory.keep(once, protocol.pack(results))
        if _code(results[0]) == "Busy" and len(results) == 1:
            raise Busy("the verb's own")
        return results

    async def _run(self, verbs: InProcess, asked: Asked) -> list[bytes]:
        results: list[bytes] = []
        size, stopped = 0, False
        enough = protocol.KEPT_BYTES_ENOUGH if asked.once else protocol.ANSWER_BYTES_ENOUGH
        at_once = TOGETHER if asked.together else 1
        for at in range(0, len(asked.verbs), at_once):
            some = asked.verbs[at : at + at_once]
            if stopped or size > enough:
                results += [protocol.pack([protocol.NOT_RUN])] * len(some)
                continue
            found = await asyncio.gather(*[_answered(verbs, each) for each in some])
            results += found
            size += sum(map(len, found))
            stopped = asked.stop and bool(_code(found[-1]))
        return results

    # --- bytes --------------------------------------------------------------------------------------------------------

    async def _read(self, verbs: InProcess, query: Mapping[str, str], size: int) -> Reply:
        if size:
            raise InvalidArgument("a read has no body")
        asked, _ = _call(query)
        (each,) = asked.verbs
        if each.name != OPEN_VERB:
            raise InvalidArgument(f"`{each.name[:80]}` reads no bytes")
        try:
            arguments, _ = _read_arguments(OPEN, each)
            opened = await verbs.open(*arguments)
        except EntrepotError as error:
            if isinstance(error, Busy):
                raise
            result = protocol.pack([protocol.REFUSED, *protocol.plain_error(error)])
            head = protocol.packed_answer(asked.version, self._memory.name, [result])
            return Reply("fs.open", framed_bytes(head, b""), code=error.wire_code)
        return self._reading(opened, asked.version)

    def _reading(self, opened: Opened, version: int) -> Reply:
        told = OPEN.result.plain((opened.info, opened.start, opened.length))
        head = protocol.packed_answer(version, self._memory.name, [protocol.pack([protocol.OK, told])])
        if opened.whole is not None:
            return Reply("fs.open", framed_bytes(head, opened.whole))
        chunks = framed(head, opened.chunks, opened.length)
        return Reply("fs.open", chunks=chunks, length=chunks.length)

    async def _write(
        self, verbs: InProcess, caller: Caller, query: Mapping[str, str], body: Body, size: int, sha256: str | None
    ) -> Reply:
        asked, packed = _call(query)
        (each,) = asked.verbs
        travelling = WRITING.get(each.name)
        if travelling is None:
            raise InvalidArgument(f"`{each.name[:80]}` writes no bytes")
        arguments, _ = _read_arguments(travelling, each)
        told = arguments[list(travelling.arguments).index("size")]
        if told != size:
            raise IncompleteBody(told, size)
        vouched = Vouched(body, sha256)

        async def run() -> list[bytes]:
            try:
                if each.name == "put":
                    bucket, key, _, meta, conditions = arguments
                    result: Any = await verbs.put(bucket, key, vouched, size, meta, conditions)
                else:
                    bucket, key, upload, number, _ = arguments
                    result = await verbs.put_part(bucket, key, upload, number, vouched, size)
            except (BadDigest, IncompleteBody):
                vouched.ended = False
                raise  # the bytes did not come as they were sent: as if nothing had been asked
            except EntrepotError as error:
                return [protocol.pack([protocol.REFUSED, *protocol.plain_error(error)])]
            return [protocol.pack([protocol.OK, travelling.result.plain(result)])]

        results = await self._once(
            caller, _once(caller, asked.once, packed), asked, _attempt(query), run, lambda: not vouched.ended
        )
        return self._reply(caller, f"fs.{each.name}", asked.version, results)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _reply(self, caller: Caller, operation: str, version: int, results: list[bytes]) -> Reply:
        body = protocol.packed_answer(version, self._memory.name, results)
        code = next((code for code in map(_code, results) if code), "")
        if len(body) <= ONE_PIECE_BYTES:
            return Reply(operation, body, code=code)
        held = self._held.hold(caller.user_id)
        held.add(len(body))
        return Reply(operation, chunks=_Sent(body, held), length=len(body), code=code)


class _Sent:
    """An answer in pieces, which is held until it is sent or given up."""

    def __init__(self, body: bytes, held: Held) -> None:
        self._pieces = iter([memoryview(body)[at : at + (1 << 18)] for at in range(0, len(body), 1 << 18)])
        self._held = held

    def __aiter__(self) -> _Sent:
        return self

    async def __anext__(self) -> Buffer:
        piece = next(self._pieces, None)
        if piece is None:
            self._held.release()
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        self._held.release()


async def _answered(verbs: InProcess, verb: Verb) -> bytes:
    """Run one verb; its result, packed."""
    try:
        return protocol.pack([protocol.OK, await _one(verbs, verb)])
    except EntrepotError as error:
        return protocol.pack([protocol.REFUSED, *protocol.plain_error(error)])


async def _one(verbs: InProcess, verb: Verb) -> Any:
    """Run one verb; its result, plain."""
    travelling = TRAVELLING.get(verb.name)
    if travelling is None:
        raise InvalidArgument(f"`{verb.name[:80]}` is no verb")
    values, by_name = _read_arguments(travelling, verb)
    return travelling.result.plain(await getattr(verbs, verb.name)(*values, **by_name))


def _read_arguments(travelling: Travelling, verb: Verb) -> tuple[list[Any], dict[str, Any]]:
    try:
        return travelling.read(verb.name, verb.arguments)
    except Malformed as wrong:
        raise InvalidArgument(str(wrong)) from None


async def _whole(body: Body, size: int, sha256: str | None, held: Held) -> bytes:
    """All of a small body; *held* is charged as it arrives. Raises `IncompleteBody`, `BadDigest`, `Busy`."""
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


def _call(query: Mapping[str, str]) -> tuple[Asked, bytes]:
    """The request in a query, which is for one verb."""
    text = query.get(protocol.CALL, "")
    if len(text) > protocol.CALL_CHARS_MOST:
        raise EntityTooLarge(len(text), protocol.CALL_CHARS_MOST)
    try:
        packed = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise InvalidArgument(f"?{protocol.CALL}= is base64, in the alphabet for addresses") from None
    asked = protocol.read_request(packed)
    if len(asked.verbs) != 1:
        raise InvalidArgument("bytes are read and written by one verb")
    return asked, packed


def _attempt(query: Mapping[str, str]) -> int:
    text = query.get(protocol.ATTEMPT, "1")
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise InvalidArgument(f"?{protocol.ATTEMPT}= is a number")
    return int(text)


def _once(caller: Caller, once: bytes, packed: bytes) -> bytes:
    """What a change is known by: who asks, its `once`, and all that is asked; empty without a `once`."""
    if not once:
        return b""
    return hashlib.blake2b(packed, digest_size=24, key=once, salt=caller.user_id.to_bytes(8, "big") * 2).digest()


def _changes(name: str) -> bool:
    travelling = TRAVELLING.get(name) or WRITING.get(name)
    return travelling is not None and travelling.changes


def _operation(asked: Asked) -> str:
    """What a request is called: few names, whatever clients send."""
    if len(asked.verbs) == 1 and asked.verbs[0].name in TRAVELLING:
        return f"fs.{asked.verbs[0].name}"
    return "fs.verbs"


def _code(result: bytes) -> str:
    """The error's name in a packed result."""
    if result[1:2] != bytes((protocol.REFUSED,)):
        return ""
    return str(protocol.unpack(result, "a result")[1])


def _all_refused(asked: Asked, error: EntrepotError) -> list[bytes]:
    return [protocol.pack([protocol.REFUSED, *protocol.plain_error(error)]) for _ in asked.verbs]
