"""The local driver: a folder of a file system as a backend. Blocking calls run in threads of the backend.

Below the root, a value is a file whose path is its key; `.entrepot/` holds the marker and the working directories (see
`workdir`). A value of up to `SMALL_BYTES` goes through the write-ahead log (see `wal`). A larger one is written to a
temporary file, synced and renamed, and the folders are synced up to the root. Either way a file appears whole, under
its name, by one rename.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import ParamSpec, TypeVar

from backends import base, errors
from backends.base import Buffer, Listed, Marker, Stat
from backends.local import listing, values
from backends.local.dir_sync import DirSyncBatcher
from backends.local.fd_cache import FdCache
from backends.local.files import CONTROL, Root
from backends.local.marker import read_marker, write_claim
from backends.local.wal import LOG_BYTES_MIN, WriteAheadLog
from backends.local.wal_format import PUT, WalEntry
from backends.local.workdir import WorkDir
from backends.local.workdir import acquire as acquire_workdir
from backends.timing import DEFAULTS, DriverTiming

SMALL_BYTES = 256 << 10
WAL_BYTES = 64 << 20  # size of each of the two logs
LISTED_AT_ONCE = 1_000  # values that a thread fetches for a listing in one call
PRUNED_AT_ONCE = 256  # cached descriptors checked in one turn of the event loop
THREADS_MIN = 2  # while closing, one thread waits for the sync in another

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Local(base.Backend):
    """Values as files below one folder, which several processes may share.

    Created by `open`. Not usable after a fork."""

    def __init__(
        self, root: Root, *, threads: int, descriptors: int, wal_bytes: int, recovers: bool, timing: DriverTiming
    ) -> None:
        """Called by `open` alone."""
        self._root = root
        self._recovers = recovers
        self._wal_bytes = wal_bytes
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="local")
        self._fd_cache = FdCache(descriptors)
        self._workdir: WorkDir | None = None
        self._workdir_lock = asyncio.Lock()
        self._wal: WriteAheadLog | None = None
        self._dir_sync = DirSyncBatcher(lambda folders: self._run(values.sync_names, root, folders))
        self._preparing: asyncio.Task[None] | None = None
        self._pruner: asyncio.TimerHandle | None = None
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._unfinished = 0  # calls of several steps, for which `close` waits
        self._finished = asyncio.Event()

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        name: str = "local",
        threads: int = 8,
        descriptors: int = 1_024,
        wal_bytes: int = WAL_BYTES,
        make: bool = True,
        recovers: bool = True,
        timing: DriverTiming = DEFAULTS,
    ) -> Local:
        """Open the folder *path*, creating it where only its last part is missing, and restore the values that a
        process or a machine that died left in its write-ahead logs.

        *descriptors* is the number of files that are kept open for reads. *wal_bytes* is the size of each of the two
        logs; with 0 there are none. Without *make*, a folder that is missing, or was never a backend, is refused, and
        nothing is created: it would be in the way of the disk that has to be mounted there. Without *recovers*, nothing
        is restored from logs, here and in `list`: for a caller that only reads, and changes nothing in the folder.

        On a read-only file system, the backend opens for reading if nothing has to be restored. Raises
        `Misconfigured`, `Denied`, `ReadOnly`, `Full`, `Unavailable`.
        """
        if threads < THREADS_MIN:
            raise ValueError(f"a local backend needs {THREADS_MIN} threads, not {threads}")
        if wal_bytes and wal_bytes < LOG_BYTES_MIN:
            raise ValueError(f"a write-ahead log has at least {LOG_BYTES_MIN} bytes, not {wal_bytes}")
        root = await asyncio.to_thread(Root, path, name, make=make)
        self = cls(
            root, threads=threads, descriptors=descriptors, wal_bytes=wal_bytes, recovers=recovers, timing=timing
        )
        try:
            if recovers:
                await self._run(values.prepare, root, make=make)
            else:
                await self._run(values.require_backend, root)
        except BaseException:
            await self.close()
            raise
        return self

    async def warm(self) -> None:
        """Prepare the write-ahead logs, which takes some tenths of a second. Otherwise the first put begins it."""
        await self._ensure_workdir()
        if self._preparing is not None:
            await asyncio.shield(self._preparing)

    @property
    def name(self) -> str:
        return self._root.name

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        base.check_key(key)
        self._check_usable()
        self._unfinished += 1
        try:
            workdir = self._workdir
            if workdir is None or (self._preparing is None and self._wal_bytes):
                workdir = await self._ensure_workdir()
            entry = WalEntry(PUT, key, value, base.size_of(value), crc32c)
            if entry.size > SMALL_BYTES or self._wal is None:
                await self._run(values.store_checked, self._root, workdir, entry)
            else:
                values.verify_checksum(self._root, entry)
                await self._wal.put(entry)
        finally:
            self._end_call()

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        base.check_key(key)
        base.check_range(start, length)
        self._check_usable()
        future: asyncio.Future[Buffer] = self._loop.create_future()
        self._pool.submit(self._read, future, key, start, length)
        return await future

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        value = self._fd_cache.read(key, start, length)
        if value is None and key not in self._fd_cache and self._open_without_waiting(key):
            return self._fd_cache.read(key, start, length)
        return value

    async def stat(self, key: str) -> Stat:
        base.check_key(key)
        self._check_usable()
        return Stat(await self._run(values.size_of_value, self._root, key))

    async def delete(self, key: str) -> None:
        base.check_key(key)
        self._check_usable()
        self._unfinished += 1
        try:
            self._fd_cache.drop(key)
            if self._wal is not None and (logged := self._wal.delete(key)) is not None:
                await logged
            else:
                await self._run(values.remove, self._root, key)
            await self._dir_sync.make_durable(key.rpartition("/")[0])
        finally:
            self._end_call()

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        self._check_usable()
        if self._recovers:
            async with self._workdir_lock:  # while another process restores, only one thread waits for it
                with suppress(errors.ReadOnly):  # as in `open`
                    await self._run(values.prepare, self._root)
        found = listing.walk(self._root, prefix, after)
        while page := await self._run(_next_page, self._root, found):
            for value in page:
                yield value
            self._check_usable()

    async def marker(self) -> Marker | None:
        self._check_usable()
        return await self._run(read_marker, self._root)

    async def claim(self, marker: Marker) -> None:
        self._check_usable()
        self._unfinished += 1
        try:
            workdir = self._workdir or await self._ensure_workdir(logs=False)
            await self._run(write_claim, self._root, workdir, marker)
        finally:
            self._end_call()

    async def close(self) -> None:
        self._closed = True
        if self._closing is None:
            self._closing = asyncio.create_task(self._close_all())
        await asyncio.shield(self._closing)  # the caller may be cancelled, or may not be the first

    async def _close_all(self) -> None:
        """Wait for the calls under way; then release everything, whatever any of the steps raises."""
        async with AsyncExitStack() as held:
            for release in (self._root.close, self._release_workdir, self._fd_cache.clear, self._release_wal):
                held.callback(release)
            held.push_async_callback(asyncio.to_thread, self._pool.shutdown)
            held.push_async_callback(self._dir_sync.close)
            while self._unfinished:
                await self._finished.wait()
            if self._pruner is not None:
                self._pruner.cancel()
            if self._preparing is not None:
                await asyncio.wait([self._preparing])
            if self._wal is not None:
                await self._wal.close()

    def _release_wal(self) -> None:
        if self._wal is not None:
            self._wal.release()

    def _release_workdir(self) -> None:
        if self._workdir is not None:
            self._workdir.release()

    # ---- on the event loop --------------------------------------------------------------------------------------

    def _end_call(self) -> None:
        """Count the end of a call of several steps."""
        self._unfinished -= 1
        if self._closed and not self._unfinished:
            self._finished.set()

    def _check_usable(self) -> None:
        if self._closed:
            raise errors.Misconfigured("it is closed", backend=self.name)
        if os.getpid() != self._pid:
            message = "opened by the process that this one was forked from; open it anew after a fork"
            raise errors.Misconfigured(message, backend=self.name)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self._pool.submit(call, *args, **kwargs))

    async def _ensure_workdir(self, *, logs: bool = True) -> WorkDir:
        """Acquire a working directory, which the first write needs, and begin to prepare its *logs*."""
        async with self._workdir_lock:
            if self._workdir is None:
                self._workdir = await self._run(_acquire_workdir, self._root)
            if logs and self._preparing is None and self._wal_bytes:
                self._preparing = asyncio.create_task(self._prepare_wal(self._workdir))
            return self._workdir

    async def _prepare_wal(self, workdir: WorkDir) -> None:
        """Prepare the logs. Without space for them, every value is stored without a log: slower, and as safe."""
        try:
            await self._run(_prepare_logs, self._root, workdir, self._wal_bytes)
        except errors.BackendError as error:
            _log.warning("no write-ahead log, so small puts are slower: %s", error)
            return
        store = functools.partial(values.store, self._root, workdir)
        self._wal = WriteAheadLog(self._root, workdir, self._pool, store, self._retire_wal, self._timing)

    def _retire_wal(self) -> None:
        """Called when no small value was put for a while: discard the logs, until the next put prepares new ones."""
        if self._wal is not None and self._workdir is not None and not self._closed:
            wal, self._wal = self._wal, None
            self._preparing = asyncio.create_task(self._discard_wal(wal, self._workdir))

    async def _discard_wal(self, wal: WriteAheadLog, workdir: WorkDir) -> None:
        """Close *wal* and remove its logs.

        Where a log still holds records, since the disk fails to sync their files, both logs stay for the next recovery,
        and this process goes on without: to make new ones would lose the records."""
        await wal.close()
        await self._run(wal.release)
        if not wal.empty:
            return
        try:
            await self._run(workdir.discard_logs)
        except OSError as error:
            _log.warning("%s: empty write-ahead logs cannot be removed: %s", self._root.path, error)
        self._preparing = None

    def _read(self, future: asyncio.Future[Buffer], key: str, start: int, length: int | None) -> None:
        """In a thread: read, and hand the result and the descriptor over to the event loop in one call."""
        try:
            fd, size = values.open_value(self._root, key)
        except BaseException as error:  # noqa: BLE001 (it goes to the caller)
            self._loop.call_soon_threadsafe(self._settle, future, None, error)
            return
        data: Buffer | None = None
        failure: BaseException | None = None
        try:
            data = values.read_range(self._root, key, fd, size, start, length)
        except BaseException as error:  # noqa: BLE001 (it goes to the caller)
            failure = error
        self._loop.call_soon_threadsafe(self._finish_read, future, data, failure, key, fd)

    def _open_without_waiting(self, key: str) -> bool:
        """Open and cache the file of *key* if the kernel has its path in its caches, so that no thread is needed.

        Return whether it was opened."""
        if self._closed or not self._fd_cache.usable or os.getpid() != self._pid:
            return False
        base.check_key(key)
        fd = self._root.open_cached(key)
        if fd is None:
            return False
        self._keep_open(key, fd)
        return True

    def _keep_open(self, key: str, fd: int) -> None:
        self._fd_cache.add(key, fd)
        if self._pruner is None:
            self._pruner = self._loop.call_later(self._timing.prune_seconds, self._prune)

    def _finish_read(
        self,
        future: asyncio.Future[Buffer],
        data: Buffer | None,
        failure: BaseException | None,
        key: str,
        fd: int,
    ) -> None:
        self._settle(future, data, failure)
        if self._closed:
            os.close(fd)
            return
        self._keep_open(key, fd)

    def _settle(self, future: asyncio.Future[Buffer], data: Buffer | None, failure: BaseException | None) -> None:
        """Complete *future*, unless its caller was cancelled."""
        source = failure.__cause__ if failure is not None else None
        if isinstance(source, OSError) and source.errno == errno.EMFILE:
            self._fd_cache.halve()
        if future.done():
            return
        if data is not None:
            future.set_result(data)
        elif failure is not None:
            future.set_exception(failure)

    def _prune(self, keys: Sequence[str] = ()) -> None:
        """Drop the cached descriptors of deleted files, `PRUNED_AT_ONCE` per turn of the event loop."""
        keys = keys or self._fd_cache.keys()
        self._fd_cache.drop_deleted(keys[:PRUNED_AT_ONCE])
        left, self._pruner = keys[PRUNED_AT_ONCE:], None
        if left:
            self._pruner = self._loop.call_later(0, self._prune, left)
        elif len(self._fd_cache):
            self._pruner = self._loop.call_later(self._timing.prune_seconds, self._prune)


def _acquire_workdir(root: Root) -> WorkDir:
    with root.translated(CONTROL):
        return acquire_workdir(root)


def _prepare_logs(root: Root, workdir: WorkDir, log_bytes: int) -> None:
    with root.translated(workdir.path):
        workdir.prepare_logs(log_bytes)


def _next_page(root: Root, listing: Iterator[Listed]) -> tuple[Listed, ...]:
    with root.translated(""):
        return tuple(itertools.islice(listing, LISTED_AT_ONCE))
