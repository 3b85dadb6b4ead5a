"""An object on its way: small ones go in one put, others in parts. Nothing is visible before it is committed.

Parts are durable as they come and belong to an upload, so that a writer may take hours, and one that is killed leaves
an upload that expires. What is appended to is taken over as parts that share its bytes. A few parts are stored while
the next one is filled; one that fails is told to whoever adds more or commits, and nothing is committed without it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from gateway.engine.types import NO_CONDITIONS, Body, Buffer, ByteRange, Conditions, ObjectInfo, ObjectMeta, WantedPart
from gateway.errors import NameExists, NoSuchBucket, NoSuchName, NoSuchUpload, PreconditionFailed
from gateway.posix.api import Directory, FileApi
from gateway.posix.bodies import BytesBody, read_all
from gateway.posix.paths import ObjectPath

LEAST_PART_BYTES = 5 << 20
"""Of every part but the last; S3's rule."""
PART_BYTES = 8 << 20
GROW_EACH = 1_000
"""Parts are a step larger behind so many, for there are at most 10,000: 440 GiB out of steps of 8 MiB."""


PARTS_IN_FLIGHT = 3
BYTES_IN_FLIGHT = PARTS_IN_FLIGHT * PART_BYTES
"""Of one object. A part that is larger goes alone."""


class MultipartWriter:
    """One object being written. *connect* answers the verbs, anew for each step. Its errors are `gateway.errors`."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[FileApi]],
        place: ObjectPath,
        meta: ObjectMeta,
        conditions: Conditions = NO_CONDITIONS,
        step_bytes: int = PART_BYTES,
    ) -> None:
        self._connect = connect
        self._parse = place
        self._meta = meta
        self._conditions = conditions
        self._appends = False
        self._step_bytes = max(step_bytes, LEAST_PART_BYTES)
        self._upload: str | None = None
        self._parts: list[WantedPart] = []
        self._under_way: deque[tuple[asyncio.Task[WantedPart], int]] = deque()
        self._failed: BaseException | None = None
        self.finished = False
        """It was committed or discarded."""

    @property
    def part_bytes(self) -> int:
        """How many bytes the next part should have."""
        return self._step_bytes * (1 + (self._next_number() - 1) // GROW_EACH)

    def _next_number(self) -> int:
        return len(self._parts) + len(self._under_way) + 1

    @property
    def begun(self) -> bool:
        """Some of it is stored in parts already."""
        return self._upload is not None

    async def begin_append(self) -> tuple[int, bytes]:
        """Begin with the bytes of what stands there, if anything does. Answers how many they are, and those at their
        end that are to be written again with what follows, since a part cannot be as small.

        Committing is refused if it has changed by then."""
        self._appends = True
        api = await self._connect()
        try:
            found = await api.look(*self._parse)
        except NoSuchName:
            found = Directory(made=False)
        if not isinstance(found, ObjectInfo):
            self._conditions = Conditions(if_none_match=("*",))
            return 0, b""
        self._conditions = Conditions(if_match=(found.etag,))
        if self._meta == ObjectMeta():
            self._meta = ObjectMeta(found.headers, await api.tags(*self._parse) if found.tags_count else {})
        sizes = [part.size for part in await api.parts(*self._parse)] or [found.size]
        kept = sizes if sizes[-1] >= LEAST_PART_BYTES else sizes[:-1]
        at = 0
        for size in kept:
            await self._take_over(api, found.etag, at, size)
            at += size
        if at == found.size:
            return found.size, b""
        opened = await api.open(*self._parse, ByteRange(at, None), self._conditions)
        return found.size, await read_all(opened)

    async def _take_over(self, api: FileApi, etag: str, at: int, size: int) -> None:
        upload = await self._begin(api)
        number = len(self._parts) + 1
        stretch = ByteRange(at, at + size - 1)
        part = await api.copy_part(*self._parse, upload, number, self._parse.key, stretch, etag)
        self._parts.append(WantedPart(number, part.etag))

    async def _begin(self, api: FileApi) -> str:
        if self._upload is None:
            self._upload = await api.begin_upload(*self._parse, self._meta)
        return self._upload

    async def add(self, data: Buffer) -> None:
        """Store one more part, which nobody changes any more. Returns while it is on its way; raises what became of
        one before it."""
        while self._under_way and not self._room_for(len(data)):
            await self._land()
        self._check()
        api = await self._connect()
        upload, number = await self._begin(api), self._next_number()
        task = asyncio.create_task(self._store(api, upload, number, BytesBody(data), len(data)))
        task.add_done_callback(_taken_note_of)
        self._under_way.append((task, len(data)))

    async def add_body(self, body: Body, size: int) -> None:
        """Store one more part, of *size* bytes that are still to come. Returns once it is stored."""
        await self._land_all()
        api = await self._connect()
        self._parts.append(await self._store(api, await self._begin(api), self._next_number(), body, size))

    async def _store(self, api: FileApi, upload: str, number: int, body: Body, size: int) -> WantedPart:
        part = await api.put_part(*self._parse, upload, number, body, size)
        return WantedPart(number, part.etag)

    def _room_for(self, size: int) -> bool:
        held = sum(each for _, each in self._under_way)
        return len(self._under_way) < PARTS_IN_FLIGHT and held + size <= BYTES_IN_FLIGHT

    async def _land(self) -> None:
        """Wait for the oldest part on its way; who waits may be cancelled, and the part goes on."""
        task, _ = self._under_way[0]
        await asyncio.wait([task])
        self._under_way.popleft()
        try:
            self._parts.append(task.result())
        except (Exception, asyncio.CancelledError) as error:
            self._failed = self._failed or error
            raise

    async def _land_all(self) -> None:
        while self._under_way:
            await self._land()
        self._check()

    def _check(self) -> None:
        """A part that failed is missing for good."""
        if self._failed is not None:
            raise self._failed

    async def put(self, data: Buffer) -> None:
        """Store and commit all of it at once; only where it has not begun."""
        await self.put_body(BytesBody(data), len(data))

    async def put_body(self, body: Body, size: int) -> None:
        """As `put`, for *size* bytes that are still to come."""
        self.finished = True
        api = await self._connect()
        with self._told_if_taken():
            await api.put(*self._parse, body, size, self._meta, self._conditions)

    async def commit(self) -> None:
        """Make what was added the object. Raises `NameExists` where one was to be made that is there by now, and
        `PreconditionFailed` where what is added to has changed."""
        if self.finished or self._upload is None:
            return
        await self._land_all()
        api = await self._connect()
        with self._told_if_taken():
            await api.complete_upload(*self._parse, self._upload, self._parts, self._conditions)
        self.finished = True

    @contextmanager
    def _told_if_taken(self) -> Iterator[None]:
        """That an object stands there which was to be created is an error of its own."""
        try:
            yield
        except PreconditionFailed:
            if self._appends or not self._conditions.if_none_match:
                raise
            raise NameExists(self._parse.key) from None

    async def discard(self) -> None:
        """Throw away what was added. Doing it twice does no harm."""
        upload, self._upload = self._upload, None
        if self.finished or upload is None:
            self.finished = True
            return
        self.finished = True
        tasks = [task for task, _ in self._under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(NoSuchUpload, NoSuchBucket):
            await (await self._connect()).abort_upload(*self._parse, upload)


def _taken_note_of(task: asyncio.Task[WantedPart]) -> None:
    """A file that was dropped may have nobody left to hear of it."""
    if not task.cancelled():
        task.exception()
