"""Writing one object: small ones in one put, others as a multipart upload. Nothing is visible before it is committed.

**Theory of operation.** A writer is *new*, *begun* (it has an upload), or *finished* (committed or discarded).

- `put` and `put_body` store a new writer's content at once, and finish it.
- `add` begins an upload if there is none, and starts a task that stores a part. At most `PARTS_IN_FLIGHT` parts are in
  flight. `commit` awaits them and completes the upload; `discard` cancels them and aborts it.
- A part that fails makes the writer fail: the error is raised by the next `add` and by `commit`, and nothing is
  committed.

Parts are durable once they are stored, so a writer may take hours. If its process is killed, the upload expires. When
appending, the existing content becomes parts that share its runs.
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
"""S3's minimum for every part except the last."""
PART_BYTES = 8 << 20
GROW_EACH = 1_000
"""After this many parts, they become a step larger, since there are at most 10,000: with steps of 8 MiB, an object may
have 440 GiB."""
PARTS_IN_FLIGHT = 3
BYTES_IN_FLIGHT = PARTS_IN_FLIGHT * PART_BYTES
"""Of one object. A larger part is sent alone."""


class MultipartWriter:
    """Writes one object. *connect*: returns the tree; called for each step. Raises errors of `gateway.errors`."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[FileApi]],
        path: ObjectPath,
        meta: ObjectMeta,
        conditions: Conditions = NO_CONDITIONS,
        step_bytes: int = PART_BYTES,
    ) -> None:
        self._connect = connect
        self._path = path
        self._meta = meta
        self._conditions = conditions
        self._appending = False
        self._step_bytes = max(step_bytes, LEAST_PART_BYTES)
        self._upload: str | None = None
        self._parts: list[WantedPart] = []
        self._in_flight: deque[tuple[asyncio.Task[WantedPart], int]] = deque()
        self._failed: BaseException | None = None
        self.finished = False
        """Whether it was committed or discarded."""

    @property
    def part_bytes(self) -> int:
        """The size that the next part should have."""
        return self._step_bytes * (1 + (self._next_number() - 1) // GROW_EACH)

    def _next_number(self) -> int:
        return len(self._parts) + len(self._in_flight) + 1

    @property
    def begun(self) -> bool:
        """Whether there is an upload, so that content is stored in parts."""
        return self._upload is not None

    async def begin_append(self) -> tuple[int, bytes]:
        """Begin with the content of the existing object, if there is one. Returns its size, and the bytes at its end
        that the caller must write again with what follows, since they are too few for a part.

        If the object is changed meanwhile, `commit` is refused."""
        self._appending = True
        api = await self._connect()
        try:
            entry: ObjectInfo | Directory = await api.look(*self._path)
        except NoSuchName:
            entry = Directory(made=False)
        if not isinstance(entry, ObjectInfo):
            self._conditions = Conditions(if_none_match=("*",))
            return 0, b""
        self._conditions = Conditions(if_match=(entry.etag,))
        if self._meta == ObjectMeta():
            self._meta = ObjectMeta(entry.headers, await api.tags(*self._path) if entry.tags_count else {})
        sizes = [part.size for part in await api.parts(*self._path)] or [entry.size]
        kept = sizes if sizes[-1] >= LEAST_PART_BYTES else sizes[:-1]
        at = 0
        for size in kept:
            await self._copy_part(api, entry.etag, at, size)
            at += size
        if at == entry.size:
            return entry.size, b""
        opened = await api.open(*self._path, ByteRange(at, None), self._conditions)
        return entry.size, await read_all(opened)

    async def _copy_part(self, api: FileApi, etag: str, at: int, size: int) -> None:
        upload = await self._begin(api)
        number = len(self._parts) + 1
        range_ = ByteRange(at, at + size - 1)
        part = await api.copy_part(*self._path, upload, number, self._path.key, range_, etag)
        self._parts.append(WantedPart(number, part.etag))

    async def _begin(self, api: FileApi) -> str:
        if self._upload is None:
            self._upload = await api.begin_upload(*self._path, self._meta)
        return self._upload

    async def add(self, data: Buffer) -> None:
        """Store one more part; the caller must not change *data*. Returns while the part is being sent. Raises the
        error of an earlier part."""
        while self._in_flight and not self._fits(len(data)):
            await self._await_oldest_part()
        self._raise_failure()
        api = await self._connect()
        upload, number = await self._begin(api), self._next_number()
        task = asyncio.create_task(self._store(api, upload, number, BytesBody(data), len(data)))
        task.add_done_callback(_retrieve_exception)
        self._in_flight.append((task, len(data)))

    async def add_body(self, body: Body, size: int) -> None:
        """Store one more part, of *size* bytes that are read from *body*. Returns once it is stored."""
        await self._await_all_parts()
        api = await self._connect()
        self._parts.append(await self._store(api, await self._begin(api), self._next_number(), body, size))

    async def _store(self, api: FileApi, upload: str, number: int, body: Body, size: int) -> WantedPart:
        part = await api.put_part(*self._path, upload, number, body, size)
        return WantedPart(number, part.etag)

    def _fits(self, size: int) -> bool:
        in_flight = sum(each for _, each in self._in_flight)
        return len(self._in_flight) < PARTS_IN_FLIGHT and in_flight + size <= BYTES_IN_FLIGHT

    async def _await_oldest_part(self) -> None:
        """Wait for the oldest part in flight. If the caller is cancelled, the part is still sent."""
        task, _ = self._in_flight[0]
        await asyncio.wait([task])
        self._in_flight.popleft()
        try:
            self._parts.append(task.result())
        except (Exception, asyncio.CancelledError) as error:
            self._failed = self._failed or error
            raise

    async def _await_all_parts(self) -> None:
        while self._in_flight:
            await self._await_oldest_part()
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise the error of a part that failed."""
        if self._failed is not None:
            raise self._failed

    async def put(self, data: Buffer) -> None:
        """Store and commit all content at once. Only for a writer that has not begun."""
        await self.put_body(BytesBody(data), len(data))

    async def put_body(self, body: Body, size: int) -> None:
        """Like `put`, for *size* bytes that are read from *body*."""
        self.finished = True
        api = await self._connect()
        with self._name_exists_error():
            await api.put(*self._path, body, size, self._meta, self._conditions)

    async def commit(self) -> None:
        """Make the parts the object. Raises `NameExists` if the object was to be created and exists by now, and
        `PreconditionFailed` if the object to append to has changed."""
        if self.finished or self._upload is None:
            return
        await self._await_all_parts()
        api = await self._connect()
        with self._name_exists_error():
            await api.complete_upload(*self._path, self._upload, self._parts, self._conditions)
        self.finished = True

    @contextmanager
    def _name_exists_error(self) -> Iterator[None]:
        """Raise `NameExists` if an object exists that was to be created."""
        try:
            yield
        except PreconditionFailed:
            if self._appending or not self._conditions.if_none_match:
                raise
            raise NameExists(self._path.key) from None

    async def discard(self) -> None:
        """Abort the upload. Calling it twice is harmless."""
        upload, self._upload = self._upload, None
        if self.finished or upload is None:
            self.finished = True
            return
        self.finished = True
        tasks = [task for task, _ in self._in_flight]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(NoSuchUpload, NoSuchBucket):
            await (await self._connect()).abort_upload(*self._path, upload)


def _retrieve_exception(task: asyncio.Task[WantedPart]) -> None:
    """Retrieve the task's exception, since nobody may await the task of a file that was dropped."""
    if not task.cancelled():
        task.exception()
