"""The commit loop: it gathers commands into a batch while the batch before it is made durable.

**Theory of operation.** There is one event loop and one commit thread. A batch has these states:

- *open* (`OpenBatch`): the event loop runs commands in it. At most one batch is open. The rows that its commands have
  changed are in its *overlay* (`rows.Overlay`), on top of the rows as they are durable (`RowCache`).
- *prepared* (`PreparedBatch`): it accepts no more commands. The commit thread writes it, in one transaction with one
  fsync. At most one batch is being written, so the open batch collects whatever arrives meanwhile, and no timer is
  needed: its overlay is on top of that of the prepared batch, so its commands see the rows that are being written.
- *durable*: its rows are merged into the cache, the overlay of the open batch is put on top of the cache, and its
  commands are answered.
- *refused*: the disk was full, and nothing of the batch was written. Its commands, and those of the open batch, which
  saw rows that do not exist now, are answered with `DiskFull`, or queued again if they free space (`_refuse`).

A small batch is committed on the event loop itself, if no command waits and the disk has been fast lately: handing it
to the thread would take longer than the commit. Whoever uses the writing connection holds `_writing` meanwhile.

**Crash argument.** An answer is sent only after the transaction of its batch is durable. If the process is killed
before, nothing of the batch was written and nobody was answered; each client sends its commands again to the next
committer under the same (session, slot, number). If the process is killed after the commit and before the answer, the
slot rows of that same transaction contain the answers, and a repeated command gets its own answer and is not run again.
If a commit fails for any reason except a full disk, it is not known whether the batch is durable. The process then ends
without an answer, and its successor finds out as after a crash. A process whose commit thread hangs ends in the same
way (`commit_watch.py`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gateway import failpoints
from gateway.errors import Busy, DiskFull
from gateway.journal.commands import CommandTable
from gateway.journal.inline_values import INLINE_BYTES_MAX, counted_bytes
from gateway.journal.server.batch import NO_SESSION, BatchRunner, CommandResult, OpenBatch, PreparedBatch
from gateway.journal.server.commit_watch import CommitWatch, end_process
from gateway.journal.server.job_queue import Job, JobQueue
from gateway.journal.server.reserve import Reserve
from gateway.journal.server.row_cache import RowCache
from gateway.journal.site_clock import CommitterClock, clock_reader
from gateway.journal.sqlite.store import CHECKPOINT_BYTES, SqliteStore
from gateway.timing import Timing

log = logging.getLogger(__name__)

BATCH_COMMANDS = 512
BATCH_BYTES = 8 << 20
BATCH_ROWS = 8192
"""A batch that changes this many rows accepts no more commands: the next one waits until they are written."""
QUEUE_COMMANDS = 8192
QUEUE_BYTES = 64 << 20
LOOP_COMMIT_ROWS = 64
"""A batch that changes more rows is not committed on the event loop."""
LOOP_COMMIT_BYTES = 64 << 10
"""A batch whose records and inline values are longer is not committed on the event loop."""

FULL = "the journal's disk is full: only deletions are accepted"


class GroupCommitter:
    """Accepts jobs, and answers each of them once its batch is durable."""

    def __init__(
        self,
        store: SqliteStore,
        commands: CommandTable,
        reserve: Reserve,
        deliver: Callable[[Sequence[CommandResult]], None],
        observe: Callable[[int, int, float], None] = lambda commands, records, seconds: None,
        *,
        timing: Timing,
        end: Callable[[], None] = end_process,
    ) -> None:
        """*deliver* is called on the event loop with all results of a batch. *observe* is called after each commit with
        the number of commands, the number of records and the seconds that it took. *end* ends this process if its
        commit thread hangs."""
        self.timing = timing
        self._watch = CommitWatch(timing, end)
        self._store = store
        self.clock = CommitterClock(store, clock_reader(timing.clock))
        """The site's clock."""
        self._cache = RowCache(store)
        self._durable_head = store.head()
        self._runner = BatchRunner(self._cache, commands, self._durable_head)
        self._deliver = deliver
        self._observe = observe
        self._queue = JobQueue()
        self._wake: asyncio.Future[None] | None = None
        self._stopping = False
        self._commits = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._writing = threading.Lock()
        self._mean_commit_seconds = 0.0
        """How long commits of small batches took lately: a moving mean in which the last one has a weight of 1/8."""
        self._reserve = reserve
        self._inline_bytes = store.inline_bytes()
        """An upper bound of what the stored inline values count for: rows that are dropped are not subtracted, and the
        rows are counted again once half of the limit is reached."""
        self.durable = self._durable_head.number
        """The number of the last durable record."""

    @property
    def accepts_values(self) -> bool:
        """Whether clients may attach values to commands."""
        return (
            self._inline_bytes < INLINE_BYTES_MAX
            and self._queue.size < QUEUE_BYTES // 4
            and self._store.wal_bytes < 2 * CHECKPOINT_BYTES
        )

    def add(self, job: Job) -> None:
        """Queue *job*. Raises `Busy` if the queue is full, `DiskFull` if only deletions are accepted."""
        if len(self._queue) >= QUEUE_COMMANDS or self._queue.size + job.size > QUEUE_BYTES:
            raise Busy("the committer's queue")
        if self._reserve.spent and not type(job.command).FREES:
            raise DiskFull(FULL)
        self._push(job)

    def add_internal(self, command: Any, waiter: Callable[[CommandResult], None] | None = None) -> None:
        """Queue a command of the committer itself. It belongs to no session, and no limit applies."""
        self._push(Job(NO_SESSION, 0, 0, command, 0, waiter))

    def _push(self, job: Job) -> None:
        self._queue.push(job)
        self._notify()

    def _notify(self, _: object = None) -> None:
        """Wake the commit loop."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def run(self) -> None:
        """Commit until `stop` was called and no job is left. Raises the error of a commit that failed."""
        tasks = [asyncio.create_task(each) for each in (self._commit_loop(), self._maintain(), self._watch.run())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            self._thread.shutdown(wait=True)

    def stop(self) -> None:
        """Make `run` return once all queued jobs are answered."""
        self._stopping = True
        self._notify()

    # --- the commit loop ----------------------------------------------------------------------------------------------

    async def _commit_loop(self) -> None:
        loop = asyncio.get_running_loop()
        commit: asyncio.Future[None] | None = None
        prepared: PreparedBatch | None = None  # the batch that *commit* writes
        batch: OpenBatch | None = None
        while True:
            if batch is None or _has_capacity(batch):
                batch = self._run_jobs(batch, prepared)
            if commit is not None and prepared is not None and commit.done():
                if not self._finish_commit(commit, prepared, batch):
                    batch = None
                commit = prepared = None
            if commit is None and batch is not None and batch.results:
                prepared, batch = self._runner.finish(batch), None
                if self._commit_on_loop(prepared):
                    prepared = None
                    continue
                commit = loop.run_in_executor(self._thread, self._commit_in_thread, prepared)
                commit.add_done_callback(self._notify)
            elif commit is None and not self._has_pending and self._stopping:
                return
            if self._has_pending and (batch is None or _has_capacity(batch)):
                await asyncio.sleep(0)
            else:
                await self._sleep(commit)

    @property
    def _has_pending(self) -> bool:
        """Whether jobs wait to be run."""
        return bool(self._queue or self._runner.loading)

    def _run_jobs(self, batch: OpenBatch | None, prepared: PreparedBatch | None) -> OpenBatch | None:
        """Run as many jobs as fit into one turn of the event loop. Returns the open batch, which is begun on top of
        *prepared* if there was none."""
        loaded = self._runner.load() if self._runner.loading else []
        if not self._queue and not loaded:
            return batch
        batch = batch or self._runner.begin(self.timing.clock.wall_ns(), prepared, site_ns=self.clock.now_ns())
        for each in loaded:
            batch.resume(each)
        if _has_capacity(batch):
            batch.run(self._queue.take(BATCH_COMMANDS - len(batch.results), BATCH_BYTES - batch.size))
        return batch

    async def _sleep(self, commit: asyncio.Future[None] | None) -> None:
        """Wait until a job is queued or *commit* is done."""
        self._wake = asyncio.get_running_loop().create_future()
        if commit is None or not commit.done():
            await self._wake
        self._wake = None

    def _finish_commit(self, commit: asyncio.Future[None], prepared: PreparedBatch, batch: OpenBatch | None) -> bool:
        """Answer the commands of *prepared*, which *commit* has written. Returns False if the disk was full: nothing of
        *prepared* was written, and the commands of *batch*, which was based on it, are queued again or refused. Raises
        any other error of the commit."""
        try:
            commit.result()
        except DiskFull as full:
            self._runner.head = self._durable_head
            self._refuse(prepared, full, [] if batch is None else batch.jobs)
            return False
        self._answer(prepared, batch)
        return True

    def _answer(self, prepared: PreparedBatch, batch: OpenBatch | None) -> None:
        self._runner.mark_durable(prepared, batch)
        self.durable = prepared.batch.head.number
        self._deliver(prepared.results)
        failpoints.reach("batch-answered")

    def _refuse(self, prepared: PreparedBatch, full: DiskFull, open_jobs: Sequence[Job]) -> None:
        """Handle a full disk. Commands that free space are queued again, to be tried without the others. All others
        are answered with `DiskFull`, also those that wait. If *prepared* consists only of commands that free space,
        they are answered with `DiskFull` too."""
        only_frees = all(type(job.command).FREES for job in prepared.jobs)
        loading = [loading.job for loading in self._runner.loading]
        self._runner.loading.clear()
        waiting = [*([] if only_frees else prepared.jobs), *open_jobs, *loading, *self._queue.clear()]
        refused = list(prepared.jobs) if only_frees else []
        for job in waiting:
            if type(job.command).FREES:
                self._queue.push(job)
            else:
                refused.append(job)
        self._deliver([CommandResult(job, None, full) for job in refused])

    # --- writing ------------------------------------------------------------------------------------------------------

    def _commit_in_thread(self, prepared: PreparedBatch) -> None:
        """Write a batch. Called in the commit thread."""
        if self._is_unchanged(prepared):
            return
        with self._watch.working(), self._writing:
            failpoints.reach("batch-prepared")
            started = time.perf_counter()
            try:
                self._store.write(prepared.batch)
            except DiskFull:
                self._write_on_full_disk(prepared)
            self._record_commit(prepared, time.perf_counter() - started)
            self._store.checkpoint(idle=False, longest=self._reserve.wal_bytes())

    def _commit_on_loop(self, prepared: PreparedBatch) -> bool:
        """Write and answer a small batch on the event loop. Returns False if the batch is for the commit thread: it is
        not small, the disk is slow, other commands wait, a checkpoint is due, or the disk is full."""
        quick = (
            not self._queue
            and self._mean_commit_seconds <= self.timing.journal.loop_commit_seconds
            and _is_small(prepared)
        )
        if not quick or not self._writing.acquire(blocking=False):
            return False
        try:
            if not self._is_unchanged(prepared):
                if self._store.checkpoint_due(longest=self._reserve.wal_bytes()):
                    return False
                failpoints.reach("batch-prepared")
                started = time.perf_counter()
                self._store.write(prepared.batch)
                self._record_commit(prepared, time.perf_counter() - started)
        except DiskFull:
            return False
        finally:
            self._writing.release()
        self._answer(prepared, None)
        return True

    def _is_unchanged(self, prepared: PreparedBatch) -> bool:
        """Whether the batch has nothing to write."""
        batch = prepared.batch
        return batch.head == self._durable_head and not batch.puts and not batch.drops

    def _record_commit(self, prepared: PreparedBatch, seconds: float) -> None:
        failpoints.reach("batch-durable")
        self._durable_head = prepared.batch.head
        self._commits += 1
        self._inline_bytes += sum(map(counted_bytes, prepared.batch.inline_values))
        self._observe(len(prepared.jobs), prepared.records, seconds)
        if _is_small(prepared):
            counted_seconds = min(seconds, self.timing.journal.hiccup_seconds)
            self._mean_commit_seconds += (counted_seconds - self._mean_commit_seconds) / 8

    def _write_on_full_disk(self, prepared: PreparedBatch) -> None:
        """Free the space of the reserve and of the WAL, and write a batch that consists only of commands that free
        space. Raises `DiskFull` for any other batch, or if it still does not fit."""
        self._reserve.spend()
        self._store.shrink_wal()
        if not all(type(job.command).FREES for job in prepared.jobs):
            raise DiskFull(FULL)
        self._store.write(prepared.batch)

    # --- maintenance --------------------------------------------------------------------------------------------------

    async def _maintain(self) -> None:
        """Periodically restore the reserve, store the site's clock, and checkpoint the WAL if nothing was committed
        since the last time."""
        commits = -1
        while True:
            await self.timing.clock.sleep(self.timing.journal.tidy_seconds)
            idle = commits == self._commits
            commits = self._commits
            await self.in_thread(lambda: self._maintain_once(idle))  # noqa: B023

    def _maintain_once(self, idle: bool) -> None:
        if idle:
            self._store.checkpoint(idle=True)
        self._reserve.restore()
        self.clock.store_if_due()
        if self._inline_bytes >= INLINE_BYTES_MAX // 2:
            self._inline_bytes = self._store.inline_bytes()

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """Call *work* in the commit thread, between two batches, so that it may use the writing connection."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run_exclusively, work)

    def _run_exclusively(self, work: Callable[[], Any]) -> Any:
        with self._watch.working(), self._writing:
            return work()


def _has_capacity(batch: OpenBatch) -> bool:
    """Whether *batch* accepts more commands."""
    rows = len(batch.overlay.changed)
    return len(batch.results) < BATCH_COMMANDS and batch.size < BATCH_BYTES and rows < BATCH_ROWS


def _is_small(prepared: PreparedBatch) -> bool:
    """Whether *prepared* may be committed on the event loop."""
    batch = prepared.batch
    records_bytes = len(batch.journal.records) if batch.journal is not None else 0
    values_bytes = sum(map(len, batch.inline_values))
    return len(prepared.overlay.changed) <= LOOP_COMMIT_ROWS and records_bytes + values_bytes <= LOOP_COMMIT_BYTES
