"""The verbs over HTTP: a gateway, asked as the user whose access key signs."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import aiohttp

from gateway.engine.types import (
    NO_CONDITIONS,
    Body,
    BucketInfo,
    ByteRange,
    Conditions,
    Meta,
    ObjectInfo,
    Opened,
    Page,
    PartInfo,
    Stored,
    WantedPart,
)
from gateway.errors import (
    Busy,
    CommitterGone,
    EntrepotError,
    InvalidArgument,
    Refused,
    SessionOver,
)
from gateway.journal.packed import PartFact
from gateway.posix import wire
from gateway.posix.gateways import Gateway
from gateway.posix.gathering import Gathering
from gateway.posix.posting import RETRY_SECONDS, Posting
from gateway.posix.reading import Reading
from gateway.posix.shapes import Malformed
from gateway.posix.verbs import Directory, Verbs
from gateway.posix.wire import Asked, Verb
from gateway.posix.wire_frames import read_head
from gateway.posix.wire_verbs import OPEN, TRAVELLING, WRITING, Travelling

WHOLE_BYTES = 4 << 20
"""What is not longer is read at once."""
ANSWER_BYTES_MOST = 64 << 20
HELLO_SECONDS = 10.0
"""How long a gateway may take to be there when it is first spoken to."""
WRITE_TRIES = 3
"""At least, however long each of them takes."""
_TWICE = frozenset({"begin_upload", "put_part", "copy_part", "complete_upload", "abort_upload"})
"""What may be done twice: it is asked for anew where nobody knows what became of it."""


class OverHttp(Verbs):
    """A gateway as the user who signs sees it. Made by `connect`; for one event loop of one process."""

    def __init__(self, posting: Posting) -> None:
        self._posting = posting
        self._memory = ""
        self._looks = Gathering(self._together, wire.VERBS_MOST)
        self._changes = Gathering(self._together, wire.VERBS_MOST)

    @classmethod
    async def connect(cls, gateway: Gateway) -> OverHttp:
        """Raises `AccessDenied`, `Unavailable`, `Misconfigured`; `Refused` where no version is spoken by both."""
        self = cls(Posting(gateway))
        try:
            await self._ask(Asked(()))  # is it there, is one known there, and which memory has it?
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """End its connections."""
        await self._posting.close()

    leave = close

    def forget(self) -> None:
        """It was inherited by a fork and is the parent's, or nobody runs its loop any more."""
        self._posting.forget()

    def presigned(self, bucket: str, key: bytes, seconds: int) -> str:
        """The address under which whoever has it may read an object for so long."""
        return self._posting.presigned(b"/" + bucket.encode() + b"/" + key, seconds)

    # --- asking -------------------------------------------------------------------------------------------------------

    async def compound(self, calls: Sequence[tuple[str, tuple[Any, ...]]], *, stop: bool = False) -> list[Any]:
        found: list[Any] = []
        while len(found) < len(calls):
            some = calls[len(found) : len(found) + wire.VERBS_MOST]
            results = await self._results(some, stop)
            if not results:
                raise Refused("the gateway ran none of the verbs")
            found += results
            if stop and isinstance(found[-1], EntrepotError):
                break
        return found + [None] * (len(calls) - len(found))

    async def _together(self, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        return await self._results(calls, stop=False, together=len(calls) > 1)

    async def _results(
        self, calls: Sequence[tuple[str, tuple[Any, ...]]], stop: bool, together: bool = False
    ) -> list[Any]:
        """Those of the first ones; the rest was not run."""
        verbs = [Verb(name, TRAVELLING[name].plain(*arguments)) for name, arguments in calls]
        once = secrets.token_bytes(wire.ONCE_BYTES) if any(TRAVELLING[name].changes for name, _ in calls) else b""
        answers = await self._ask(Asked(verbs, stop, once, self._memory, together=together))
        found: list[Any] = []
        for (name, _), answer in zip(calls, answers, strict=True):
            if answer[0] == wire.NOT_RUN:
                break
            found.append(_result(TRAVELLING[name], answer))
        return found

    async def _call(self, name: str, *arguments: Any) -> Any:
        for last in (False, True):
            (found,) = await self._results([(name, arguments)], stop=False)
            if not isinstance(found, EntrepotError):
                return found
            if last or name not in _TWICE or not isinstance(found, CommitterGone | SessionOver):
                raise found
        raise AssertionError("the last one is raised")

    async def _gathered(self, through: Gathering, name: str, *arguments: Any) -> Any:
        """One call, which shares its trip with others that are asked at the same time."""
        wire.pack(TRAVELLING[name].plain(*arguments))  # what cannot travel is its own caller's mistake
        found = await through.call(name, arguments)
        if isinstance(found, Busy):
            return await self._call(name, *arguments)  # alone, and until there is room for it
        if isinstance(found, EntrepotError):
            raise found
        return found

    async def _ask(self, asked: Asked) -> tuple[tuple[Any, ...], ...]:
        packed = wire.packed_request(asked)

        seconds = RETRY_SECONDS if asked.verbs else HELLO_SECONDS
        posted = self._posting.post(wire.VERBS, "", packed, len(packed), _all, seconds=seconds)
        answered = _read_answer(await posted)
        self._memory = answered.memory
        if len(answered.results) != len(asked.verbs):
            raise Refused(f"{len(answered.results)} results for {len(asked.verbs)} verbs")
        return answered.results

    # --- bytes --------------------------------------------------------------------------------------------------------

    async def open(
        self, bucket: str, key: bytes, wanted: ByteRange | None = None, conditions: Conditions = NO_CONDITIONS
    ) -> Opened:
        info, start, length, response = await self._begin_read(bucket, key, wanted, conditions)

        async def reopen(start: int) -> aiohttp.ClientResponse:
            return await self._reopen(bucket, info, start, end)

        end = start + length
        reading = Reading(reopen, start, end, response)
        if length > WHOLE_BYTES:
            return Opened(info, start, length, None, None, reading)
        async with aclosing(reading):
            whole = b"".join([piece async for piece in reading])
        return Opened(info, start, length, None, whole, reading)

    async def _begin_read(
        self, bucket: str, key: bytes, wanted: ByteRange | None, conditions: Conditions
    ) -> tuple[ObjectInfo, int, int, aiohttp.ClientResponse]:
        """The facts, the first byte and the length of what comes, and where it comes from."""
        query = _query(Asked([Verb("open", OPEN.plain(bucket, key, wanted, conditions))]))

        async def take(response: aiohttp.ClientResponse) -> tuple[bytes, aiohttp.ClientResponse]:
            return await read_head(response.content), response

        head, response = await self._posting.post(wire.READ, query, b"", 0, take, keep=True)
        try:
            (answer,) = _read_answer(head).results
            found = _result(OPEN, answer)
            if isinstance(found, EntrepotError):
                raise found
        except BaseException:
            response.release()
            raise
        info, start, length = found
        return info, start, length, response

    async def _reopen(self, bucket: str, info: ObjectInfo, start: int, end: int) -> aiohttp.ClientResponse:
        """The rest of a read that broke off, of the same version. Raises `PreconditionFailed` where it is gone."""
        rest, same = ByteRange(start, end - 1), Conditions(if_match=(info.etag,))
        *_, response = await self._begin_read(bucket, info.key, rest, same)
        return response

    async def put(
        self, bucket: str, key: bytes, body: Body, size: int, meta: Meta, conditions: Conditions = NO_CONDITIONS
    ) -> Stored:
        stored: Stored = await self._write(
            "put", body, size, (bucket, key, size, meta, conditions), twice=conditions == NO_CONDITIONS
        )
        return stored

    async def put_part(self, bucket: str, key: bytes, upload: str, number: int, body: Body, size: int) -> PartInfo:
        part: PartInfo = await self._write("put_part", body, size, (bucket, key, upload, number, size), twice=True)
        return part

    async def _write(self, name: str, body: Body, size: int, arguments: tuple[Any, ...], *, twice: bool) -> Any:
        travelling = WRITING[name]
        for last in (not twice, True):
            once = secrets.token_bytes(wire.ONCE_BYTES)
            query = _query(Asked([Verb(name, travelling.plain(*arguments))], once=once, knows=self._memory))
            answered = _read_answer(await self._posting.post(wire.WRITE, query, body, size, _all, tries=WRITE_TRIES))
            (answer,) = answered.results
            found = _result(travelling, answer)
            if not isinstance(found, EntrepotError):
                return found
            if last or not isinstance(found, CommitterGone | SessionOver):
                raise found
        raise AssertionError("the last one is raised")

    # --- the verbs ----------------------------------------------------------------------------------------------------

    async def buckets(self, after: str = "") -> tuple[list[BucketInfo], str | None]:
        found: tuple[list[BucketInfo], str | None] = await self._call("buckets", after)
        return found

    async def bucket(self, name: str) -> BucketInfo:
        found: BucketInfo = await self._gathered(self._looks, "bucket", name)
        return found

    async def make_bucket(self, name: str) -> None:
        await self._call("make_bucket", name)

    async def drop_bucket(self, name: str) -> None:
        await self._call("drop_bucket", name)

    async def look(self, bucket: str, key: bytes) -> ObjectInfo | Directory:
        found: ObjectInfo | Directory = await self._gathered(self._looks, "look", bucket, key)
        return found

    async def page(self, bucket: str, prefix: bytes, delimiter: bytes = b"", after: bytes = b"") -> Page:
        found: Page = await self._call("page", bucket, prefix, delimiter, after)
        return found

    async def copy(
        self, bucket: str, key: bytes, to_bucket: str, to_key: bytes, meta: Meta | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Stored:  # fmt: skip
        arguments = (bucket, key, to_bucket, to_key, meta, conditions)
        stored: Stored = await self._gathered(self._changes, "copy", *arguments)
        return stored

    async def move(self, bucket: str, key: bytes, to_bucket: str, to_key: bytes) -> None:
        await self._gathered(self._changes, "move", bucket, key, to_bucket, to_key)

    async def remove(self, bucket: str, keys: Sequence[bytes], *, must_exist: bool) -> list[EntrepotError | None]:
        outcomes: list[EntrepotError | None] = await self._call("remove", bucket, keys, must_exist)
        return outcomes

    async def rename(self, bucket: str, path: bytes, to_path: bytes, *, directory: bool) -> None:
        await self._call("rename", bucket, path, to_path, directory)

    async def mkdir(self, bucket: str, path: bytes) -> None:
        await self._gathered(self._changes, "mkdir", bucket, path)

    async def rmdir(self, bucket: str, path: bytes) -> None:
        await self._call("rmdir", bucket, path)

    async def begin_upload(self, bucket: str, key: bytes, meta: Meta) -> str:
        upload: str = await self._call("begin_upload", bucket, key, meta)
        return upload

    async def copy_part(
        self, bucket: str, key: bytes, upload: str, number: int, source: bytes, wanted: ByteRange, etag: str
    ) -> PartInfo:
        part: PartInfo = await self._call("copy_part", bucket, key, upload, number, source, wanted, etag)
        return part

    async def tags(self, bucket: str, key: bytes) -> Mapping[str, str]:
        found: Mapping[str, str] = await self._call("tags", bucket, key)
        return found

    async def parts(self, bucket: str, key: bytes) -> Sequence[PartFact]:
        found: Sequence[PartFact] = await self._call("parts", bucket, key)
        return found

    async def complete_upload(
        self, bucket: str, key: bytes, upload: str, parts: list[WantedPart], conditions: Conditions = NO_CONDITIONS
    ) -> Stored:
        stored: Stored = await self._call("complete_upload", bucket, key, upload, parts, conditions)
        return stored

    async def abort_upload(self, bucket: str, key: bytes, upload: str) -> None:
        await self._call("abort_upload", bucket, key, upload)


async def _all(response: aiohttp.ClientResponse) -> bytes:
    """An answer that is read whole."""
    length = response.content_length
    if length is None or length > ANSWER_BYTES_MOST:
        raise Refused(f"an answer of {length} bytes")
    return await response.content.readexactly(length)


def _query(asked: Asked) -> str:
    """The query that carries a request. Raises `InvalidArgument` for one that does not fit."""
    call = base64.urlsafe_b64encode(wire.packed_request(asked)).decode()
    if len(call) > wire.CALL_CHARS_MOST:
        raise InvalidArgument("what is said of the object besides its bytes is too long")
    return f"{wire.CALL}={quote(call)}"


def _read_answer(packed: bytes) -> wire.Answered:
    try:
        return wire.read_answer(packed)
    except Malformed as wrong:
        raise Refused(f"the gateway's answer cannot be understood: {wrong}") from None


def _result(travelling: Travelling, answer: tuple[Any, ...]) -> Any:
    """A verb's result, or the error that it was refused with."""
    try:
        if answer[0] == wire.OK:
            return travelling.result.read(answer[1], "the result")
        return wire.error_of(answer[1], answer[2])
    except (Malformed, IndexError, TypeError) as wrong:
        raise Refused(f"the gateway's answer cannot be understood: {wrong}") from None
