"""A folder of a local file system as a backend. Blocking calls run in threads of its own; this file is the front.

Below the root a value is a file under its key; `.entrepot/` holds the marker and the desks (see `desk`). Values up to
`SMALL_BYTES` go through the intake log (see `intake`), larger ones are written beside, synced, renamed, and the folders
synced up to the root. Either way a file appears whole, under its name, by one rename.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from backends import base, desk, errors, local_listing
from backends.base import Buffer, Listed, Marker, Stat
from backends.descriptors import Descriptors
from backends.intake import LOG_BYTES_MIN, Intake
from backends.intake_log import PUT, Entry
from backends.local_files import CONTROL, Root, read_all

SMALL_BYTES = 256 << 10
INTAKE_BYTES = 64 << 20  # of each of the two logs
LISTED_AT_ONCE = 1_000
PRUNE_SECONDS = 5.0
MARKER = f"{CONTROL}/marker"

P = ParamSpec("P")
T = TypeVar("T")


class Local(base.Backend):
    """Values as files below one folder, which several processes may share. Made by `open`; not usable after a fork."""

    def __init__(self, root: Root, *, threads: int, descriptors: int, intake_bytes: int) -> None:
        """For `open` alone."""
        self._root = root
        self._intake_bytes = intake_bytes
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="local")
        self._descriptors = Descriptors(descriptors)
        self._desk: desk.Desk | None = None
        self._desk_lock = asyncio.Lock()
        self._intake: Intake | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._pruner: asyncio.TimerHandle | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        name: str = "local",
        threads: int = 8,
        descriptors: int = 1_024,
        intake_bytes: int = INTAKE_BYTES,
    ) -> Local:
        """Open the folder *path*, making it if only its last part is missing, and restore what a process or a
        machine that died left in an intake log. *intake_bytes*: the size of each of two logs; 0 does without them.

        On a read-only file system it opens for reading, if nothing is to be restored. Raises `Misconfigured`,
        `Denied`, `ReadOnly`, `Full`, `Unavailable`.
        """
        if intake_bytes and intake_bytes < LOG_BYTES_MIN:
            raise ValueError(f"an intake log has at least {LOG_BYTES_MIN} bytes, not {intake_bytes}")
        root = await asyncio.to_thread(Root, path, name)
        self = cls(root, threads=threads, descriptors=descriptors, intake_bytes=intake_bytes)
        try:
            await self._run(_prepare, root)
        except BaseException:
            await self.close()
            raise
        return self

    async def warm(self) -> None:
        """Make the intake logs ready, which takes some tenths of a second; else the first small put begins it."""
        await self._own_desk()
        if self._preparing is not None:
            await asyncio.shield(self._preparing)

    @property
    def name(self) -> str:
        return self._root.name

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        base.check_key(key)
        self._check_usable()
        size = base.size_of(value)
        if self._desk is None:
            await self._own_desk()
        entry = Entry(PUT, key, value, size, crc32c)
        if size > SMALL_BYTES or self._intake is None:
            await self._run(self._store_checked, entry)
            return
        self._check_sum(entry)
        await self._intake.put(entry)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        base.check_key(key)
        base.check_range(start, length)
        self._check_usable()
        future: asyncio.Future[Buffer] = self._loop.create_future()
        self._pool.submit(self._read, future, key, start, length)
        return await future

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        return self._descriptors.read(key, start, length)

    async def stat(self, key: str) -> Stat:
        base.check_key(key)
        self._check_usable()
        return Stat(await self._run(self._size, key))

    async def delete(self, key: str) -> None:
        base.check_key(key)
        self._check_usable()
        self._descriptors.drop(key)
        if self._intake is not None and (logged := self._intake.delete(key)) is not None:
            await logged
            return
        await self._run(self._remove, key)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        self._check_usable()
        await self._run(_prepare, self._root)
        lines = local_listing.walk(self._root, prefix, after)
        while page := await self._run(self._take_page, lines):
            for line in page:
                yield line

    async def marker(self) -> Marker | None:
        return await self._run(self._read_marker)

    async def claim(self, marker: Marker) -> None:
        await self._own_desk()
        await self._run(self._claim, marker)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._pruner is not None:
            self._pruner.cancel()
        if self._preparing is not None:
            with suppress(errors.BackendError):
                await self._preparing
        if self._intake is not None:
            await self._intake.close()
        await asyncio.to_thread(self._pool.shutdown)
        self._descriptors.clear()
        if self._desk is not None:
            self._desk.release()
        self._root.close()

    # ---- on the event loop --------------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._closed:
            raise errors.Misconfigured("it is closed", backend=self.name)
        if os.getpid() != self._pid:
            message = "opened by the process that this one was forked from; open it anew after a fork"
            raise errors.Misconfigured(message, backend=self.name)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self._pool.submit(call, *args, **kwargs))

    async def _own_desk(self) -> None:
        """Take a desk, which a process needs before its first write, and begin to prepare its logs."""
        async with self._desk_lock:
            if self._desk is None:
                self._desk = await self._run(self._take_desk)
            if self._preparing is None and self._intake_bytes:
                self._preparing = asyncio.create_task(self._prepare_intake(self._desk))

    async def _prepare_intake(self, own: desk.Desk) -> None:
        """Without room for the logs every put is made durable the plain way: slower, and as safe."""
        with suppress(errors.Full):
            await self._run(self._prepare_logs, own)
            self._intake = Intake(self._root, own, self._pool, self._store)

    def _offer(self, key: str, fd: int, size: int) -> None:
        if self._closed:
            os.close(fd)
            return
        self._descriptors.offer(key, fd, size)
        if self._pruner is None:
            self._pruner = self._loop.call_later(PRUNE_SECONDS, self._prune)

    def _prune(self) -> None:
        self._pruner = None
        self._descriptors.drop_deleted()
        if len(self._descriptors):
            self._pruner = self._loop.call_later(PRUNE_SECONDS, self._prune)

    # ---- in the threads -----------------------------------------------------------------------------------------

    def _take_desk(self) -> desk.Desk:
        with self._root.translated(CONTROL):
            return desk.take(self._root)

    def _prepare_logs(self, own: desk.Desk) -> None:
        with self._root.translated(own.path):
            own.prepare_logs(self._intake_bytes)

    def _check_sum(self, entry: Entry) -> None:
        if base.crc32c_of(entry.value) != entry.crc32c:
            raise errors.Damaged("the value differs from its crc32c", backend=self.name, key=entry.key)

    def _store_checked(self, entry: Entry) -> None:
        self._check_sum(entry)
        self._store(entry)

    def _store(self, entry: Entry) -> None:
        """The plain way: bytes, name, folders, each synced."""
        assert self._desk is not None, "put takes a desk first"
        temporary = self._desk.temporary()
        with self._root.translated(entry.key, entry.key):
            self._root.write(temporary, entry.value, sync=True)
            self._root.place(temporary, entry.key)
            self._root.sync_folders([entry.key.rpartition("/")[0]])

    def _read(self, future: asyncio.Future[Buffer], key: str, start: int, length: int | None) -> None:
        """Read, answer *future*, and offer the descriptor, in one call to the loop."""
        try:
            fd, size = self._open_value(key)
        except BaseException as error:  # noqa: BLE001 (it goes to who waits)
            self._loop.call_soon_threadsafe(_answer, future, None, error)
            return
        data, failure = None, None
        try:
            data = self._read_range(fd, size, key, start, length)
        except BaseException as error:  # noqa: BLE001 (it goes to who waits)
            failure = error
        self._loop.call_soon_threadsafe(self._finish_read, future, data, failure, key, fd, size)

    def _finish_read(
        self,
        future: asyncio.Future[Buffer],
        data: Buffer | None,
        failure: BaseException | None,
        key: str,
        fd: int,
        size: int,
    ) -> None:
        _answer(future, data, failure)
        self._offer(key, fd, size)

    def _open_value(self, key: str) -> tuple[int, int]:
        with self._absent(key), self._root.translated(key, key):
            return self._root.open(key)

    def _read_range(self, fd: int, size: int, key: str, start: int, length: int | None) -> Buffer:
        end = size if length is None else start + length
        if not start <= end <= size:
            message = f"{self._root.path}/{key}: {size} bytes end before {max(start, end)}"
            raise errors.Damaged(message, backend=self.name, key=key)
        with self._root.translated(key, key):
            data = read_all(fd, start, end - start)
        if len(data) != end - start:
            raise errors.Damaged(f"{self._root.path}/{key}: cut short while it was read", backend=self.name, key=key)
        return data

    def _size(self, key: str) -> int:
        with self._absent(key), self._root.translated(key, key):
            return os.stat(key, dir_fd=self._root.fd).st_size

    @contextmanager
    def _absent(self, key: str) -> Iterator[None]:
        try:
            yield
        except errors.Misconfigured as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                raise errors.NotFound("no such value", backend=self.name, key=key) from error.__cause__
            raise

    def _remove(self, key: str) -> None:
        with self._root.translated(key, key):
            self._root.remove(key)

    def _take_page(self, lines: Iterator[Listed]) -> Sequence[Listed]:
        with self._root.translated(""):
            return list(itertools.islice(lines, LISTED_AT_ONCE))

    def _read_marker(self) -> Marker | None:
        with self._root.translated(MARKER):
            try:
                fd, size = self._root.open(MARKER)
            except FileNotFoundError:
                return None
            try:
                raw = bytes(read_all(fd, 0, size))
            finally:
                os.close(fd)
        try:
            held = json.loads(raw)
            return Marker(str(held["site"]), int(held["backend"]), int(held["incarnation"]))
        except (ValueError, KeyError, TypeError) as error:
            message = f"{self._root.path}/{MARKER}: is no marker; see whose folder this is, then remove that file"
            raise errors.Foreign(message, backend=self.name) from error

    def _claim(self, wanted: Marker) -> None:
        """Under a lock, for two sites may claim one folder at the same moment."""
        assert self._desk is not None, "claim takes a desk first"
        with self._root.translated(MARKER):
            lock = os.open(f"{MARKER}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self._root.fd)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                reason = base.check_claim(self._read_marker(), wanted)
                if reason is not None:
                    raise errors.Foreign(f"{self._root.path}: {reason}", backend=self.name)
                temporary = self._desk.temporary()
                raw = json.dumps(wanted._asdict()).encode()
                self._root.write(temporary, [raw], sync=True)
                self._root.place(temporary, MARKER)
                self._root.sync_folders([CONTROL])
            finally:
                os.close(lock)


def _prepare(root: Root) -> None:
    """Make the control folder and restore what the dead left behind; on a read-only disk see that there is nothing."""
    with root.translated(CONTROL):
        try:
            with suppress(FileExistsError):
                os.mkdir(CONTROL, 0o700, dir_fd=root.fd)
            desk.recover(root)
        except OSError as error:
            word = root.complaint(error, CONTROL)
            if not isinstance(word, errors.ReadOnly):
                raise
            with suppress(FileNotFoundError):
                if keys := desk.unrestored(root):
                    message = f"{root.path}: {len(keys)} values are to be restored from an intake log; "
                    raise errors.ReadOnly(message + "mount it writable once", backend=root.name) from error


def _answer(future: asyncio.Future[T], result: T | None, error: BaseException | None) -> None:
    """Settle *future*, unless its caller has gone away."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)  # type: ignore[arg-type]  # no error: there is a result
