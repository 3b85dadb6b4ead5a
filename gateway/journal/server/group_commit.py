"""The commit loop: a batch gathers while the one before is made durable. One event loop, one commit thread.

A small batch behind which nobody waits is committed on the loop itself, where the disk has lately been quick: two
hops between threads take longer than such a commit. Whoever uses the writing connection holds `_writing` meanwhile.

The crash argument: an answer is sent only after its batch's one transaction is durable. Killed before, nothing of
the batch stands and nobody was answered; each client sends its commands again to the successor under the same
(session, slot, number). Killed behind the commit and before the answer, the slot rows of that same transaction hold
the answers, and the repeated command gets its own, once. Where a commit fails for any other reason than a full disk,
nobody can say whether it stands: the process ends without an answer, and its successor finds out as after a crash. So
does one whose commit thread hangs (`commit_watch.py`).
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
from gateway.journal.server.batch import NO_SESSION, Answer, BatchRunner, Gathering, Prepared
from gateway.journal.server.commit_watch import CommitWatch, end_process
from gateway.journal.server.job_queue import Job, JobQueue
from gateway.journal.server.reserve import Reserve
from gateway.journal.server.row_cache import RowCache
from gateway.journal.site_clock import KeptClock, moments
from gateway.journal.sqlite.store import SqliteStore
from gateway.timing import Timing

log = logging.getLogger(__name__)

BATCH_COMMANDS = 512
BATCH_BYTES = 8 << 20
BATCH_ROWS = 8192
"""A batch that changes so many rows takes no more commands: the next one waits until they are written."""
QUEUE_COMMANDS = 8192
QUEUE_BYTES = 64 << 20
HERE_ROWS = 64
"""A batch that changes more rows is not committed on the loop."""
HERE_BYTES = 64 << 10
"""Nor is one whose records are longer."""

FULL = "the journal's disk is full: only deletions are taken"


class GroupCommitter:
    """Takes jobs, answers each once its batch is durable. `answered` is told the answers of a batch together."""

    def __init__(
        self,
        store: SqliteStore,
        commands: CommandTable,
        reserve: Reserve,
        answered: Callable[[Sequence[Answer]], None],
        observe: Callable[[int, int, float], None] = lambda commands, records, seconds: None,
        *,
        timing: Timing,
        end: Callable[[], None] = end_process,
    ) -> None:
        """*end*: what ends this process where its commit thread hangs."""
        self.timing = timing
        self._watch = CommitWatch(timing, end)
        self._store = store
        self.clock = KeptClock(store, moments(timing.clock))
        """The site's clock."""
        self._cache = RowCache(store)
        self._written = store.head()
        self._runner = BatchRunner(self._cache, commands, self._written)
        self._answered = answered
        self._observe = observe
        self._queue = JobQueue()
        self._wake: asyncio.Future[None] | None = None
        self._stopping = False
        self._commits = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._writing = threading.Lock()
        self._usual_seconds = 0.0
        """What the commits of small batches took lately: a mean in which the last one counts an eighth."""
        self._reserve = reserve
        self.durable = self._written.number
        """The number of the last durable record."""

    def add(self, job: Job) -> None:
        """Queue *job*. Raises `Busy` if the queue is full, `DiskFull` where only deletions are taken."""
        if len(self._queue) >= QUEUE_COMMANDS or self._queue.size + job.size > QUEUE_BYTES:
            raise Busy("the committer's queue")
        if self._reserve.spent and not type(job.command).FREES:
            raise DiskFull(FULL)
        self._push(job)

    def own(self, command: Any, waiter: Callable[[Answer], None] | None = None) -> None:
        """Queue a command of the committer's own."""
        self._push(Job(NO_SESSION, 0, 0, command, 0, waiter))

    def _push(self, job: Job) -> None:
        self._queue.push(job)
        self._awake()

    def _awake(self, _: object = None) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def run(self) -> None:
        """Commit until `stop` was called and nothing is left. Raises what a commit failed with."""
        tasks = [asyncio.create_task(each) for each in (self._run(), self._tidy(), self._watch.run())]
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
        """Take what is queued to its end, and no longer."""
        self._stopping = True
        self._awake()

    async def _run(self) -> None:
        """At most two batches are in the making: one is written while the next gathers what comes meanwhile."""
        loop = asyncio.get_running_loop()
        flying: asyncio.Future[None] | None = None
        below: Prepared | None = None
        above: Gathering | None = None
        while True:
            if above is None or _has_room(above):
                above = self._gather(above, below)
            if flying is not None and below is not None and flying.done():
                if not self._landed(flying, below, above):
                    above = None
                flying = below = None
            if flying is None and above is not None and above.answers:
                below, above = self._runner.finish(above), None
                if self._write_here(below):
                    below = None
                    continue
                flying = loop.run_in_executor(self._thread, self._write, below)
                flying.add_done_callback(self._awake)
            elif flying is None and not self._pending and self._stopping:
                return
            if self._pending and (above is None or _has_room(above)):
                await asyncio.sleep(0)
            else:
                await self._sleep(flying)

    @property
    def _pending(self) -> bool:
        """Whether jobs wait to be run."""
        return bool(self._queue or self._runner.loading)

    def _gather(self, above: Gathering | None, below: Prepared | None) -> Gathering | None:
        """Run, in the batch that gathers, as many jobs as a turn of the loop has time for. Returns the batch."""
        loaded = self._runner.load() if self._runner.loading else []
        if not self._queue and not loaded:
            return above
        above = above or self._runner.begin(self.timing.clock.wall_ns(), below, site_ns=self.clock.now_ns())
        for each in loaded:
            above.resume(each)
        if _has_room(above):
            above.run(self._queue.take(BATCH_COMMANDS - len(above.answers), BATCH_BYTES - above.size))
        return above

    async def _sleep(self, flying: asyncio.Future[None] | None) -> None:
        """Until something is queued or the batch on its way has landed."""
        self._wake = asyncio.get_running_loop().create_future()
        if flying is None or not flying.done():
            await self._wake
        self._wake = None

    def _write(self, prepared: Prepared) -> None:
        """In the commit thread."""
        if self._nothing_in(prepared):
            return
        with self._watch.working(), self._writing:
            failpoints.reach("batch-prepared")
            started = time.perf_counter()
            try:
                self._store.write(prepared.batch)
            except DiskFull:
                self._write_on_full_disk(prepared)
            self._wrote(prepared, time.perf_counter() - started)
            self._store.checkpoint(idle=False, longest=self._reserve.wal_bytes())

    def _write_here(self, prepared: Prepared) -> bool:
        """Commit on the loop, and answer, what takes no longer than handing it over. False: that is for the thread,
        and so are the checkpoint that is due and what to do on a full disk."""
        quick = (
            not self._queue and self._usual_seconds <= self.timing.journal.loop_commit_seconds and _is_small(prepared)
        )
        if not quick or not self._writing.acquire(blocking=False):
            return False
        try:
            if not self._nothing_in(prepared):
                if self._store.checkpoint_due(longest=self._reserve.wal_bytes()):
                    return False
                failpoints.reach("batch-prepared")
                started = time.perf_counter()
                self._store.write(prepared.batch)
                self._wrote(prepared, time.perf_counter() - started)
        except DiskFull:
            return False
        finally:
            self._writing.release()
        self._answer(prepared, None)
        return True

    def _nothing_in(self, prepared: Prepared) -> bool:
        batch = prepared.batch
        return batch.head == self._written and not batch.puts and not batch.drops

    def _wrote(self, prepared: Prepared, seconds: float) -> None:
        failpoints.reach("batch-durable")
        self._written = prepared.batch.head
        self._commits += 1
        self._observe(len(prepared.jobs), prepared.records, seconds)
        if _is_small(prepared):
            counted_seconds = min(seconds, self.timing.journal.hiccup_seconds)
            self._usual_seconds += (counted_seconds - self._usual_seconds) / 8

    def _write_on_full_disk(self, prepared: Prepared) -> None:
        """Give the reserve back, and with its room that of the WAL; deletions have it now."""
        self._reserve.spend()
        self._store.shrink_wal()
        if not all(type(job.command).FREES for job in prepared.jobs):
            raise DiskFull(FULL)
        self._store.write(prepared.batch)

    def _landed(self, flying: asyncio.Future[None], prepared: Prepared, above: Gathering | None) -> bool:
        """Answer what is durable now. False where the disk was full: nothing of *prepared* stands, and what was
        gathered above it is queued again. Any other failure is raised."""
        try:
            flying.result()
        except DiskFull as full:
            self._runner.head = self._written
            self._refuse(prepared, full, [] if above is None else above.jobs)
            return False
        self._answer(prepared, above)
        return True

    def _answer(self, prepared: Prepared, above: Gathering | None) -> None:
        self._runner.done(prepared, above)
        self.durable = prepared.batch.head.number
        self._answered(prepared.answers)
        failpoints.reach("batch-answered")

    def _refuse(self, prepared: Prepared, full: DiskFull, above: Sequence[Job]) -> None:
        """On a full disk what frees is tried again by itself; everything else has its error, also what waits."""
        alone = all(type(job.command).FREES for job in prepared.jobs)
        loading = [loading.job for loading in self._runner.loading]
        self._runner.loading.clear()
        waiting = [*([] if alone else prepared.jobs), *above, *loading, *self._queue.clear()]
        lost = list(prepared.jobs) if alone else []
        for job in waiting:
            if type(job.command).FREES:
                self._queue.push(job)
            else:
                lost.append(job)
        self._answered([Answer(job, None, full) for job in lost])

    async def _tidy(self) -> None:
        """Now and then: see to the reserve and to the site's clock, and bring the WAL home while nobody commits."""
        seen = -1
        while True:
            await self.timing.clock.sleep(self.timing.journal.tidy_seconds)
            idle = seen == self._commits
            seen = self._commits
            await self.in_thread(lambda: self._keep(idle))  # noqa: B023

    def _keep(self, idle: bool) -> None:
        if idle:
            self._store.checkpoint(idle=True)
        self._reserve.keep()
        self.clock.keep()

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """Do something with the writing connection, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._alone, work)

    def _alone(self, work: Callable[[], Any]) -> Any:
        with self._watch.working(), self._writing:
            return work()


def _has_room(gathering: Gathering) -> bool:
    rows = len(gathering.overlay.changed)
    return len(gathering.answers) < BATCH_COMMANDS and gathering.size < BATCH_BYTES and rows < BATCH_ROWS


def _is_small(prepared: Prepared) -> bool:
    journal = prepared.batch.journal
    return len(prepared.overlay.changed) <= HERE_ROWS and (journal is None or len(journal.records) <= HERE_BYTES)
