"""Reading objects: metadata, ranges, parts, and the bytes.

Nothing that the looked-up rows name is deleted before the last byte was read (docs/architecture.md, "Letting go"). A
small range is read in the turn of the event loop in which its rows are looked up, and the horizon cannot rise within a
turn. Any other read holds the horizon from that turn on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager

from gateway.blocks.read import read_plan
from gateway.blocks.types import BlockFacts, ReadRange
from gateway.engine.base import EngineBase, check_owner, preconditions
from gateway.engine.ranges import resolve
from gateway.engine.types import (
    NO_CONDITIONS,
    Buffer,
    ByteRange,
    Caller,
    Conditions,
    ObjectInfo,
    Opened,
)
from gateway.errors import DeleteMarker, NoSuchKey, NoSuchPart, NoSuchVersion
from gateway.journal.columns import PartSummary, unpack_extents, unpack_map, unpack_parts
from gateway.journal.tables import Shape
from gateway.namespace import keys
from gateway.namespace.conditions import ObjectState, Preconditions, check_read
from gateway.namespace.read import lookups
from gateway.namespace.read.lookups import Content, Found

READ_NOW_BYTES = 256 << 10
"""Ranges of at most this length are read on the event loop if the page cache has them: about 0.1 ms."""


class ReadOperations(EngineBase):
    async def open(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        version: str | None = None,
        byte_range: ByteRange | None = None,
        part: int | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Opened:
        """Open an object for reading. The bytes are those of one version, whatever happens to the name meanwhile.

        Raises `NoSuchBucket`, `AccessDenied`, `NoSuchKey`, `NoSuchVersion`, `DeleteMarker`, `NotModified`,
        `PreconditionFailed`, `InvalidRange`, `NoSuchPart`; `Corrupted` and `Unavailable` if the first bytes cannot
        be read."""
        found, file = self._find(caller, bucket, key, version, conditions)
        start, length, part_summary, count = self._resolve_range(file, byte_range, part)
        info = _info(found, file, count)
        if length <= READ_NOW_BYTES:
            whole = self._reader.read_now(tuple(self._ranges(found, file, start, length)))
            if whole is not None:
                return Opened(info, start, length, part_summary, whole, NO_CHUNKS)
        # Nothing was awaited since the rows were looked up, so no heartbeat has reported a higher horizon.
        token = self._journal.reading()
        token.__enter__()
        chunks = ObjectChunks(self._reader.read(self._ranges(found, file, start, length)), token)
        await chunks.begin()
        return Opened(info, start, length, part_summary, None, chunks)

    async def head(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        version: str | None = None,
        part: int | None = None,
        byte_range: ByteRange | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Opened:
        """Return the metadata that `open` returns, without bytes. Raises as `open` does."""
        found, file = self._find(caller, bucket, key, version, conditions, content=False)
        start, length, part_summary, count = self._resolve_range(file, byte_range, part)
        return Opened(_info(found, file, count), start, length, part_summary, None, NO_CHUNKS)

    async def object_parts(
        self, caller: Caller, bucket: str, key: bytes, version: str | None, after_number: int, limit: int
    ) -> list[PartSummary]:
        """Return up to *limit* parts of an object that was uploaded in parts, with numbers above *after_number*."""
        _, file = self._find(caller, bucket, key, version, NO_CONDITIONS, content=False)
        return [each for each in self._parts(file) if each.number > after_number][:limit]

    def _find(
        self, caller: Caller, bucket: str, key: bytes, version: str | None, conditions: Conditions, content: bool = True
    ) -> tuple[Found, Content]:
        found = lookups.find(self._store, bucket, key, version or "", content)
        return self._check_found(caller, found, bucket, key, version, preconditions(conditions))

    def _check_found(
        self, caller: Caller, found: Found | None, bucket: str, key: bytes, version: str | None,
        wanted: Preconditions | None,
    ) -> tuple[Found, Content]:  # fmt: skip
        if found is None:
            self._bucket_summary(caller, bucket)
            keys.check_new_key(key)
            if version:
                raise NoSuchVersion(key, version)
            raise NoSuchKey(key)
        check_owner(caller, found.bucket)
        if found.file is None:
            raise DeleteMarker(key, found.version_text, bool(found.latest), found.modified_ns)
        if wanted is not None:
            check_read(wanted, ObjectState(found.file.etag, found.file.size, found.modified_ns))
        return found, found.file

    def _resolve_range(
        self, file: Content, byte_range: ByteRange | None, number: int | None
    ) -> tuple[int, int, PartSummary | None, int]:
        """Return (start, length, the requested part, the number of parts)."""
        summaries = self._parts(file)
        if number is None:
            start, length = resolve(byte_range, file.size)
            return start, length, None, len(summaries)
        start = 0
        for part_summary in summaries or [PartSummary(1, file.size, file.etag, 0, "")]:
            if part_summary.number == number:
                return start, part_summary.size, part_summary, len(summaries)
            start += part_summary.size
        raise NoSuchPart(number, file.size)

    def _parts(self, file: Content) -> list[PartSummary]:
        if file.shape != Shape.BODY:
            return []
        row = self._store.query_one("SELECT parts FROM body WHERE id = ?", (file.content,))
        return unpack_parts(row[0]) if row is not None else []

    def _ranges(self, found: Found, file: Content, start: int, length: int) -> Iterable[ReadRange]:
        """Return the ranges of extents to read; a lazy iterator if there may be many."""
        if file.shape == Shape.RUN and found.extents:
            run = unpack_extents(found.extents)
            if len(run) == 1 and found.block is not None and 0 < length <= run[0].length - start:
                return (ReadRange(run[0], start, length, file.content, 0, BlockFacts._make(found.block)),)
            return read_plan.plan_run(file.content, run, start, length)
        lookup = self._lookup
        return read_plan.plan_read(file.shape, file.content, start, length, lookup.extents_of, lookup.pieces_of)


class ObjectChunks:
    """The bytes of an opened object. Holds the horizon until it is read to the end or closed."""

    def __init__(self, pieces: AsyncIterator[Buffer], token: AbstractContextManager[None]) -> None:
        self._pieces = pieces
        self._token: AbstractContextManager[None] | None = token
        self._first: Buffer | None = None

    async def begin(self) -> None:
        """Read the first piece, so that an object that cannot be read is refused before the response begins.

        Raises `Corrupted`, `Unavailable`."""
        self._first = await self.__anext__()

    def __aiter__(self) -> ObjectChunks:
        return self

    async def __anext__(self) -> Buffer:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            return await anext(self._pieces)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Release the horizon. May be called more than once."""
        token, self._token = self._token, None
        if token is not None:
            try:
                await self._pieces.aclose()  # type: ignore[attr-defined]
            finally:
                token.__exit__(None, None, None)

    def __del__(self) -> None:
        if self._token is not None:
            self._token.__exit__(None, None, None)


class _NoChunks:
    """No bytes."""

    def __aiter__(self) -> _NoChunks:
        return self

    async def __anext__(self) -> Buffer:
        raise StopAsyncIteration

    async def aclose(self) -> None:
        pass


NO_CHUNKS = _NoChunks()


def _info(found: Found, file: Content, parts_count: int) -> ObjectInfo:
    return ObjectInfo(
        found.key,
        file.size,
        file.etag,
        found.modified_ns,
        found.shown_version,
        bool(found.latest),
        unpack_map(file.headers),
        len(unpack_map(file.tags)) if file.tags else 0,
        file.checksums,
        parts_count,
        file.owner,
    )
