"""The verbs over HTTP: a gateway, asked as the user whose access key signs. Bytes go beside the packed verbs."""

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
    CommitterGone,
    EntrepotError,
    InvalidArgument,
    SessionExpired,
)
from gateway.journal.columns import PartFact
from gateway.posix.api import Directory
from gateway.posix.rpc import protocol
from gateway.posix.rpc.client import Asking, all_of, answer_of, result_of
from gateway.posix.rpc.framing import read_head
from gateway.posix.rpc.methods import OPEN, WRITING
from gateway.posix.rpc.protocol import Asked, Verb
from gateway.posix.rpc.resumable_read import Reading

WHOLE_BYTES = 4 << 20
"""What is not longer is read at once."""
WRITE_TRIES = 3
"""At least, however long each of them takes."""


class OverHttp(Asking):
    """A gateway as the user who signs sees it."""

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

        head, response = await self._posting.post(protocol.READ, query, b"", 0, take, keep=True)
        try:
            (answer,) = answer_of(head).results
            found = result_of(OPEN, answer)
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
            once = secrets.token_bytes(protocol.ONCE_BYTES)
            query = _query(Asked([Verb(name, travelling.plain(*arguments))], once=once, knows=self._memory))
            answered = answer_of(await self._posting.post(protocol.WRITE, query, body, size, all_of, tries=WRITE_TRIES))
            (answer,) = answered.results
            found = result_of(travelling, answer)
            if not isinstance(found, EntrepotError):
                return found
            if last or not isinstance(found, CommitterGone | SessionExpired):
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


def _query(asked: Asked) -> str:
    """The query that carries a request. Raises `InvalidArgument` for one that does not fit."""
    call = base64.urlsafe_b64encode(protocol.packed_request(asked)).decode()
    if len(call) > protocol.CALL_CHARS_MOST:
        raise InvalidArgument("what is said of the object besides its bytes is too long")
    return f"{protocol.CALL}={quote(call)}"
