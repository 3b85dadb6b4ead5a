"""The commit loop: batches gather while the one before is made durable. One event loop, one commit thread.

The crash argument: an answer is sent only after its batch's one transaction is durable. Killed before, nothing of
the batch stands and nobody was answered; each client sends its commands again to the successor under the same
(session, slot, number). Killed behind the commit and before the answer, the slot rows of that same transaction hold
the answers, and the repeated command gets its own, once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gateway.errors import Busy, DiskFull, EntrepotError
from gateway.journal.batch import NO_SESSION, Answer, BatchRunner, Job, Prepared
from gateway.journal.cache import RowCache
from gateway.journal.commands import CommandTable
from gateway.journal.sqlite.store import SqliteStore

log = logging.getLogger(__name__)

BATCH_COMMANDS = 512
BATCH_BYTES = 8 << 20
QUEUE_COMMANDS = 8192
QUEUE_BYTES = 64 << 20
RESERVE_BYTES = 16 << 20
IDLE_SECONDS = 0.5


class Committing:
    """Takes jobs, answers each once its batch is durable. `answered` is told the answers of a batch together."""

    def __init__(
        self,
        store: SqliteStore,
        commands: CommandTable,
        folder: Path,
        answered: Callable[[Sequence[Answer]], None],
        observe: Callable[[int, int, float], None] = lambda commands, records, seconds: None,
    ) -> None:
        self._store = store
        self._cache = RowCache(store)
        self._runner = BatchRunner(self._cache, commands, store.head())
        self._answered = answered
        self._observe = observe
        self._queue: deque[Job] = deque()
        self._queued_bytes = 0
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._reserve = Reserve(folder / "reserve")
        self.durable = store.head().number
        """The number of the last durable record."""

    def add(self, job: Job) -> None:
        """Queue *job*. Raises `Busy` if the queue is full, `DiskFull` where only deletions are taken."""
        if len(self._queue) >= QUEUE_COMMANDS or self._queued_bytes + job.size > QUEUE_BYTES:
            raise Busy("the committer's queue")
        if self._reserve.spent and not type(job.command).FREES:
            raise DiskFull("the journal's disk is full: only deletions are taken")
        self._queue.append(job)
        self._queued_bytes += job.size
        self._arrived.set()

    async def run(self) -> None:
        """Commit until cancelled. At most two batches are in the making: one is written, the next is prepared."""
        writing: asyncio.Future[None] | None = None
        below: Prepared | None = None
        while True:
            if writing is not None and below is not None and (writing.done() or not self._queue):
                await self._finish(writing, below)
                writing = below = None
            if not self._queue:
                await self._wait()
                continue
            prepared = self._prepare(below)
            if writing is not None and below is not None:
                if not await self._finish(writing, below):
                    self._requeue(prepared)
                    writing = below = None
                    continue
                self._runner.rebase(prepared)
            writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, prepared)
            below = prepared
            # What comes in this very moment meets this batch's commit, and is the next.
            await asyncio.sleep(0)

    async def _wait(self) -> None:
        self._arrived.clear()
        try:
            await asyncio.wait_for(self._arrived.wait(), IDLE_SECONDS)
        except TimeoutError:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._tidy)

    def _tidy(self) -> None:
        self._store.checkpoint(idle=True)
        self._reserve.keep()

    def _prepare(self, below: Prepared | None) -> Prepared:
        jobs: list[Job] = []
        size = 0
        while self._queue and len(jobs) < BATCH_COMMANDS and size < BATCH_BYTES:
            job = self._queue.popleft()
            size += job.size
            jobs.append(job)
        self._queued_bytes -= size
        if below is None:
            self._cache.shrink()
        return self._runner.prepare(jobs, time.time_ns(), below)

    def _write(self, prepared: Prepared) -> None:
        """In the commit thread."""
        batch = prepared.batch
        if batch.journal is None and not batch.puts and not batch.drops:
            return
        started = time.perf_counter()
        try:
            self._store.write(batch)
        except DiskFull:
            # The reserve is for deletions, and a batch of nothing else may have it now.
            if not all(type(job.command).FREES for job in prepared.jobs):
                self._reserve.spend()
                raise
            self._reserve.spend()
            self._store.write(batch)
        self._observe(len(prepared.jobs), prepared.records, time.perf_counter() - started)
        self._store.checkpoint(idle=False)

    async def _finish(self, writing: asyncio.Future[None], prepared: Prepared) -> bool:
        """Wait until *prepared* is durable, and answer. False if it was not committed."""
        try:
            await writing
        except EntrepotError as error:
            log.error("a batch of %d commands was not committed: %s", len(prepared.jobs), error)
            self._runner.head = self._store.head()
            self._fail(prepared, error)
            return False
        self._runner.done(prepared)
        self.durable = prepared.batch.head.number
        self._answered(prepared.answers)
        return True

    def _fail(self, prepared: Prepared, error: EntrepotError) -> None:
        """On a full disk what frees is tried again by itself; everything else has its error."""
        freeing = []
        if isinstance(error, DiskFull):
            freeing = [job for job in prepared.jobs if type(job.command).FREES]
        again = {id(job) for job in freeing}
        self._queue.extendleft(reversed(freeing))
        self._queued_bytes += sum(job.size for job in freeing)
        self._answered([Answer(job, None, error) for job in prepared.jobs if id(job) not in again])

    def _requeue(self, prepared: Prepared) -> None:
        """It ran above a batch that failed: run it again."""
        self._runner.head = self._store.head()
        self._queue.extendleft(reversed(prepared.jobs))
        self._queued_bytes += sum(job.size for job in prepared.jobs)

    def own(self, command: Any, waiter: Any) -> None:
        """Queue a command of the committer's own."""
        self._queue.append(Job(NO_SESSION, 0, 0, command, 0, waiter))
        self._arrived.set()

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """Do something with the writing connection, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        self._thread.shutdown(wait=True)


class Reserve:
    """Disk kept back, so that deletions still commit when all else is full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.spent = False
        self.keep()

    def keep(self) -> None:
        """Set the reserve aside (again), where there is room for it and as much beside it."""
        if self._path.exists() and self._path.stat().st_size >= RESERVE_BYTES:
            self.spent = False
            return
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < 3 * RESERVE_BYTES:
            return
        try:
            with self._path.open("wb") as kept:
                os.posix_fallocate(kept.fileno(), 0, RESERVE_BYTES)
                os.fsync(kept.fileno())
        except OSError:
            self._path.unlink(missing_ok=True)
            return
        self.spent = False

    def spend(self) -> None:
        """Give the reserve back to the disk."""
        self.spent = True
        self._path.unlink(missing_ok=True)
