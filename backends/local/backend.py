"""A folder of a local file system as a backend. Blocking calls run in threads of its own; this file is the front.

Below the root a value is a file under its key; `.entrepot/` holds the marker and the desks (see `desk`). Values up to
`SMALL_BYTES` go through the intake log (see `intake`), larger ones are written beside, synced, renamed, and the folders
synced up to the root. Either way a file appears whole, under its name, by one rename.
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
from backends.local import listing, values, workdir
from backends.local.dir_sync import DirSyncBatcher
from backends.local.fd_cache import FdCache
from backends.local.files import CONTROL, Root
from backends.local.marker import read_marker, write_claim
from backends.local.wal import LOG_BYTES_MIN, WriteAheadLog
from backends.local.wal_format import PUT, WalEntry
from backends.timing import DEFAULTS, DriverTiming

SMALL_BYTES = 256 << 10
WAL_BYTES = 64 << 20  # of each of the two logs
LISTED_AT_ONCE = 1_000
PRUNED_AT_ONCE = 256
THREADS_MIN = 2  # closing waits in one for the syncing in another

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Local(base.Backend):
    """Values as files below one folder, which several processes may share. Made by `open`; not usable after a fork."""

    def __init__(self, root: Root, *, threads: int, descriptors: int, wal_bytes: int, timing: DriverTiming) -> None:
        """For `open` alone."""
        self._root = root
        self._wal_bytes = wal_bytes
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="local")
        self._fd_cache = FdCache(descriptors)
        self._workdir: workdir.WorkDir | None = None
        self._workdir_lock = asyncio.Lock()
        self._wal: WriteAheadLog | None = None
        self._dir_sync = DirSyncBatcher(lambda folders: self._run(values.sync_names, root, folders))
        self._preparing: asyncio.Task[None] | None = None
        self._pruner: asyncio.TimerHandle | None = None
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._unfinished = 0  # calls of several steps, which closing lets come to their end
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
        timing: DriverTiming = DEFAULTS,
    ) -> Local:
        """Open the folder *path*, making it if only its last part is missing, and restore what a process or a
        machine that died left in an intake log. *wal_bytes*: the size of each of two logs; 0 does without them.
        Without *make* a folder that is missing, or was never a backend's, is refused, and nothing is made there: it
        would be in the way of the one that belongs there.

        On a read-only file system it opens for reading, if nothing is to be restored. Raises `Misconfigured`,
        `Denied`, `ReadOnly`, `Full`, `Unavailable`.
        """
        if threads < THREADS_MIN:
            raise ValueError(f"a local backend needs {THREADS_MIN} threads, not {threads}")
        if wal_bytes and wal_bytes < LOG_BYTES_MIN:
            raise ValueError(f"an intake log has at least {LOG_BYTES_MIN} bytes, not {wal_bytes}")
        root = await asyncio.to_thread(Root, path, name, make=make)
        self = cls(root, threads=threads, descriptors=descriptors, wal_bytes=wal_bytes, timing=timing)
        try:
            await self._run(values.prepare, root, make=make)
        except BaseException:
            await self.close()
            raise
        return self

    async def warm(self) -> None:
        """Make the intake logs ready, which takes some tenths of a second; else the first small put begins it."""
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
            own = self._workdir
            if own is None or (self._preparing is None and self._wal_bytes):
                own = await self._ensure_workdir()
            entry = WalEntry(PUT, key, value, base.size_of(value), crc32c)
            if entry.size > SMALL_BYTES or self._wal is None:
                await self._run(values.store_checked, self._root, own, entry)
            else:
                values.check_sum(self._root, entry)
                await self._wal.put(entry)
        finally:
            self._leave()

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        base.check_key(key)
        base.check_range(start, length)
        self._check_usable()
        future: asyncio.Future[Buffer] = self._loop.create_future()
        self._pool.submit(self._read, future, key, start, length)
        return await future

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        value = self._fd_cache.read(key, start, length)
        if value is None and key not in self._fd_cache and self._open_now(key):
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
            await self._dir_sync.durable(key.rpartition("/")[0])
        finally:
            self._leave()

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        self._check_usable()
        async with self._workdir_lock:  # while another process restores, one thread waits for it, not all
            with suppress(errors.ReadOnly):  # as when it was opened
                await self._run(values.prepare, self._root)
        lines = listing.walk(self._root, prefix, after)
        while page := await self._run(_next_page, self._root, lines):
            for line in page:
                yield line
            self._check_usable()

    async def marker(self) -> Marker | None:
        self._check_usable()
        return await self._run(read_marker, self._root)

    async def claim(self, marker: Marker) -> None:
        self._check_usable()
        self._unfinished += 1
        try:
            own = self._workdir or await self._ensure_workdir()
            await self._run(write_claim, self._root, own, marker)
        finally:
            self._leave()

    async def close(self) -> None:
        self._closed = True
        if self._closing is None:
            self._closing = asyncio.create_task(self._let_go())
        await asyncio.shield(self._closing)  # whoever closes may be cancelled, or come second

    async def _let_go(self) -> None:
        """Calls under way come to their end first; then, whatever goes wrong, nothing is held on to."""
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

    def _leave(self) -> None:
        """A call of several steps has come to its end."""
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

    async def _ensure_workdir(self) -> workdir.WorkDir:
        """Take a desk, which a process needs before its first write, and begin to prepare its logs."""
        async with self._workdir_lock:
            if self._workdir is None:
                self._workdir = await self._run(_acquire_workdir, self._root)
            if self._preparing is None and self._wal_bytes:
                self._preparing = asyncio.create_task(self._prepare_wal(self._workdir))
            return self._workdir

    async def _prepare_wal(self, own: workdir.WorkDir) -> None:
        """Without room for the logs every put is made durable the plain way: slower, and as safe."""
        try:
            await self._run(_prepare_logs, self._root, own, self._wal_bytes)
        except errors.BackendError as error:
            _log.warning("no intake log, so small puts are slower: %s", error)
            return
        store = functools.partial(values.store, self._root, own)
        self._wal = WriteAheadLog(self._root, own, self._pool, store, self._retire_wal, self._timing)

    def _retire_wal(self) -> None:
        """Nothing small was put for a while: puts are made durable the plain way, until there are logs again."""
        if self._wal is not None and self._workdir is not None and not self._closed:
            intake, self._wal = self._wal, None
            self._preparing = asyncio.create_task(self._drop_logs(intake, self._workdir))

    async def _drop_logs(self, intake: WriteAheadLog, own: workdir.WorkDir) -> None:
        """Where a log still holds something (the disk refuses to sync it), both stay for whoever restores them, and
        this process does without: making new ones would lose what they hold."""
        await intake.close()
        await self._run(intake.release)
        if not intake.empty:
            return
        try:
            await self._run(own.discard_logs)
        except OSError as error:
            _log.warning("%s: empty intake logs stay: %s", self._root.path, error)
        self._preparing = None

    def _read(self, future: asyncio.Future[Buffer], key: str, start: int, length: int | None) -> None:
        """In a thread: read, and hand the answer and the descriptor over in one call to the loop."""
        try:
            fd, size = values.open_value(self._root, key)
        except BaseException as error:  # noqa: BLE001 (it goes to who waits)
            self._loop.call_soon_threadsafe(self._answer, future, None, error)
            return
        data: Buffer | None = None
        failure: BaseException | None = None
        try:
            data = values.read_range(self._root, key, fd, size, start, length)
        except BaseException as error:  # noqa: BLE001 (it goes to who waits)
            failure = error
        self._loop.call_soon_threadsafe(self._finish_read, future, data, failure, key, fd)

    def _open_now(self, key: str) -> bool:
        """Whether the file of *key* is among the open ones now. No thread is needed where the kernel knows its path."""
        if self._closed or not self._fd_cache.usable or os.getpid() != self._pid:
            return False
        base.check_key(key)
        fd = self._root.open_now(key)
        if fd is None:
            return False
        self._keep_open(key, fd)
        return True

    def _keep_open(self, key: str, fd: int) -> None:
        self._fd_cache.offer(key, fd)
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
        self._answer(future, data, failure)
        if self._closed:
            os.close(fd)
            return
        self._keep_open(key, fd)

    def _answer(self, future: asyncio.Future[Buffer], data: Buffer | None, failure: BaseException | None) -> None:
        """Settle *future*, unless its caller has gone away."""
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
        """Look for deleted files among the open ones, some at a time."""
        keys = keys or self._fd_cache.keys()
        self._fd_cache.drop_deleted(keys[:PRUNED_AT_ONCE])
        left, self._pruner = keys[PRUNED_AT_ONCE:], None
        if left:
            self._pruner = self._loop.call_later(0, self._prune, left)
        elif len(self._fd_cache):
            self._pruner = self._loop.call_later(self._timing.prune_seconds, self._prune)


def _acquire_workdir(root: Root) -> workdir.WorkDir:
    with root.translated(CONTROL):
        return workdir.take(root)


def _prepare_logs(root: Root, own: workdir.WorkDir, log_bytes: int) -> None:
    with root.translated(own.path):
        own.prepare_logs(log_bytes)


def _next_page(root: Root, lines: Iterator[Listed]) -> tuple[Listed, ...]:
    with root.translated(""):
        return tuple(itertools.islice(lines, LISTED_AT_ONCE))
