"""Group commit, without its I/O: turn many commands into one batch of records and changed rows. Synchronous.

**Theory of operation.** Each command runs in an overlay of its own on top of the batch's overlay. If it succeeds, its
changes are merged into the batch's overlay and its records are appended; if it is refused, they are discarded, so it
does not affect the others.

A command that looks up a row that is not in memory stops with `RowsNotLoaded`. All rows that the commands of a round
miss are loaded together, and these commands run again in the next round. So the commands of a batch have no order among
themselves, like those of a frame on the wire.

A command that misses many rows does not delay the others: it leaves the batch, its rows are loaded in slices
(`BatchRunner.load`), and it joins whichever batch is open by then.

Invariant: each record has the number that its command saw, since a command's records are appended only as a whole and
before the next command runs. A batch that is based on another one, not durable yet, is discarded if that one is refused
(`group_commit.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.errors import EntrepotError, Refused, SessionExpired, Unavailable
from gateway.journal import inline_values
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.columns import pack, unpack
from gateway.journal.commands import CommandTable, Prefetcher, Tx
from gateway.journal.records import Record
from gateway.journal.rows import LoadRequest, Overlay, RowsNotLoaded, max_rows, prefetch
from gateway.journal.server.job_queue import Job
from gateway.journal.server.row_cache import RowCache
from gateway.journal.store import Batch, Head, JournalRow, running_hash
from gateway.journal.tables import SESSION, SITE, SLOT, SessionState, Slot

__all__ = ["NO_SESSION", "BatchRunner", "CommandResult", "Job", "LoadingJob", "OpenBatch", "PreparedBatch"]

log = logging.getLogger(__name__)

ROUNDS_MAX = 200
"""How often a command may miss rows before it is refused. Each round of a path loads `LEVELS_MAX` directories."""
ROWS_PER_TURN = 1024
"""About how many rows are loaded without a break."""
PREFETCH_ROUNDS_MAX = 3
"""How often rows are loaded before the commands run that need them: directories, names, what the names point at."""
STEP_NS = 10**9
"""If the wall clock goes back by less than this, the difference is smoothed: what is written later does not look
older."""
NO_SESSION = 0
"""The session of the committer's own commands."""


class CommandResult(NamedTuple):
    """The result of a job: its command's answer, or the error that refused it."""

    job: Job
    value: Any
    error: EntrepotError | None


@dataclass
class PreparedBatch:
    """A batch that has run and is not durable yet."""

    overlay: Overlay
    results: list[CommandResult]
    batch: Batch
    jobs: Sequence[Job]
    records: int


@dataclass
class LoadingJob:
    """A job whose command waits for rows."""

    job: Job
    wanted: list[LoadRequest]
    """Those that are not loaded yet."""
    rounds: int
    """How often the command has missed rows."""


class BatchTimes(NamedTuple):
    """The times of a batch by three clocks, each in nanoseconds."""

    wall_ns: int
    """The time that people see. It goes back with the wall clock, if that was set back by more than `STEP_NS`."""
    journal_ns: int
    """The batch's own time: later than that of every batch before, even if the wall clock was ahead then."""
    site_ns: int
    """The time of the site's clock (`site_clock`), by which old things are deleted."""

    @classmethod
    def of(cls, now_ns: int, last_ns: int, site_ns: int) -> BatchTimes:
        """The times of a batch at *now_ns* by the wall clock that follows a batch whose own time is *last_ns*."""
        journal_ns = max(now_ns, last_ns + 1)
        return cls(journal_ns if journal_ns - now_ns < STEP_NS else now_ns, journal_ns, site_ns)


class OpenBatch:
    """A batch that still accepts commands."""

    def __init__(
        self,
        cache: RowCache,
        commands: CommandTable,
        overlay: Overlay,
        head: Head,
        times: BatchTimes,
        loading: deque[LoadingJob],
    ) -> None:
        """*head* is where the batch before this one ends. Jobs that miss many rows are appended to *loading*."""
        self._cache = cache
        self._loading = loading
        self._commands = commands
        self._before = head
        self.overlay = overlay
        self._times = times
        self.next_id = head.next_id
        self.records: list[Record] = []
        self.results: list[CommandResult] = []
        self.size = 0
        """Bytes of its commands."""

    @property
    def jobs(self) -> list[Job]:
        """The jobs that have a result in this batch."""
        return [result.job for result in self.results]

    def run(self, jobs: Sequence[Job]) -> None:
        """Run *jobs*, and load the rows that they miss."""
        self.size += sum(job.size for job in jobs)
        self._prefetch(jobs)
        self._run(jobs, 0)

    def resume(self, loaded: LoadingJob) -> None:
        """Run a job again whose rows are in memory now."""
        self.size += loaded.job.size
        self._run([loaded.job], loaded.rounds)

    def _run(self, jobs: Sequence[Job], rounds: int) -> None:
        """Run *jobs* in rounds until each has a result, or has left the batch since together they miss many rows."""
        rows = 0
        while jobs:
            waiting = self._run_round(jobs)
            jobs = [job for job, _ in waiting]
            rounds += 1
            if rounds >= ROUNDS_MAX:
                refused = Unavailable("the command looks up more rows than a command may")
                self.results += [CommandResult(job, None, refused) for job in jobs]
                return
            missing = list(dict.fromkeys(each for _, these in waiting for each in these))
            rows += sum(map(max_rows, missing))
            if rows > ROWS_PER_TURN:
                self._loading.extend(LoadingJob(job, list(these), rounds) for job, these in waiting)
                self.size -= sum(job.size for job in jobs)
                return
            self._cache.load(missing)

    def _prefetch(self, jobs: Sequence[Job]) -> None:
        """Load the rows that *jobs* are known to look up, before they run."""
        by_prefetcher: dict[Prefetcher, list[Any]] = {}
        for job in jobs:
            prefetcher = type(job.command).PREFETCH
            if prefetcher is not None:
                by_prefetcher.setdefault(prefetcher, []).append(job.command)
        for prefetcher, commands in by_prefetcher.items():
            for _ in range(PREFETCH_ROUNDS_MAX):
                try:
                    wanted = set(prefetcher(commands, self.overlay))
                except Exception:
                    log.exception("%s failed", prefetcher.__name__)  # the command that causes it fails alone, later
                    break
                if not wanted:
                    break
                self._cache.load(list(wanted))

    def _run_round(self, jobs: Sequence[Job]) -> list[tuple[Job, tuple[LoadRequest, ...]]]:
        """Run each job once. Returns the jobs that missed rows, with these rows."""
        waiting: list[tuple[Job, tuple[LoadRequest, ...]]] = []
        for job in jobs:
            try:
                self.results.append(self._run_job(job))
            except RowsNotLoaded as missing:
                waiting.append((job, missing.wanted))
        return waiting

    def _run_job(self, job: Job) -> CommandResult:
        """Run one command. Raises `RowsNotLoaded`."""
        overlay = Overlay(self.overlay)
        tx = Tx(
            overlay,
            number=self._before.number + 1 + len(self.records),
            next_id=self.next_id,
            at_ns=self._times.wall_ns,
            site_ns=self._times.site_ns,
            session=job.session,
        )
        try:
            if job.session != NO_SESSION:
                repeated = _slot_of_repeated(overlay, job)
                if repeated is not None:
                    return CommandResult(job, unpack(repeated.answer), None)
                inline_values.store(overlay, job.attachment, job.session, tx.number)
            value = self._commands[type(job.command)](job.command, tx)
            answer = pack(value)
            _check_feature(tx)
        except EntrepotError as refused:
            return CommandResult(job, None, refused)
        except RowsNotLoaded:
            raise
        except Exception as bug:
            log.exception("the command %s failed", type(job.command).__name__)
            return CommandResult(job, None, Refused(f"{type(job.command).__name__} failed: {bug!r}"))
        if job.session != NO_SESSION and tx.records:
            overlay.put(SLOT, Slot(job.session, job.slot, job.number, answer))
        self.next_id = tx.next_id
        self.records += tx.records
        overlay.merge_into(self.overlay)
        return CommandResult(job, value, None)

    def to_batch(self) -> Batch:
        """Return what is to be written. The head advances even without a record: an id that was part of an answer is
        never drawn again."""
        if self.records:
            before = self._before
            packed = RECORD_CODEC.pack(self.records)
            hashed = running_hash(before.hash, packed)
            at_ns = self._times.journal_ns
            head = Head(before.number + len(self.records), hashed, at_ns, self.next_id)
            row = JournalRow(before.number + 1, len(self.records), at_ns, self.next_id, hashed, packed)
            batch = Batch(head, row)
        else:
            batch = Batch(self._before._replace(next_id=self.next_id), None)
        batch.add_changes(self.overlay)
        return batch


class BatchRunner:
    """Runs batches one after the other. A second one may be open while the first is being made durable."""

    def __init__(self, cache: RowCache, commands: CommandTable, head: Head) -> None:
        self._cache = cache
        self._cache.fresh_id = head.next_id
        self._commands = commands
        self.loading: deque[LoadingJob] = deque()
        """Jobs that are in no batch, since they wait for rows."""
        self.head = head
        """Where the journal ends once all prepared batches are durable."""

    def begin(self, now_ns: int, below: PreparedBatch | None = None, *, site_ns: int | None = None) -> OpenBatch:
        """Open a batch on top of *below*, a batch that is being made durable, or of the cache. *now_ns* is the wall
        clock's time. *site_ns* is that of the site's clock; None: the same."""
        # Rows are evicted only here: between this and `finish`, the row before each change must be in memory.
        self._cache.shrink()
        overlay = Overlay(below.overlay if below else self._cache)
        times = BatchTimes.of(now_ns, self.head.at_ns, now_ns if site_ns is None else site_ns)
        return OpenBatch(self._cache, self._commands, overlay, self.head, times, self.loading)

    def load(self) -> list[LoadingJob]:
        """Load about `ROWS_PER_TURN` rows for jobs that wait for them; these take turns. Returns those that can run."""
        wanted: list[LoadRequest] = []
        ready: list[LoadingJob] = []
        rows = 0
        while self.loading and rows < ROWS_PER_TURN:
            first = self.loading.popleft()
            while first.wanted and rows < ROWS_PER_TURN:
                wanted.append(first.wanted.pop())
                rows += max_rows(wanted[-1])
            if first.wanted:
                self.loading.append(first)
            else:
                ready.append(first)
        self._cache.load(list(dict.fromkeys(wanted)))
        return ready

    def finish(self, batch: OpenBatch) -> PreparedBatch:
        """Close *batch*: it accepts no more commands."""
        to_write = batch.to_batch()
        self.head = to_write.head
        return PreparedBatch(batch.overlay, batch.results, to_write, batch.jobs, len(batch.records))

    def prepare(self, jobs: Sequence[Job], now_ns: int, *, site_ns: int | None = None) -> PreparedBatch:
        """Run *jobs* as one batch. The times are those of `begin`."""
        batch = self.begin(now_ns, site_ns=site_ns)
        batch.run(jobs)
        while self.loading:
            for loaded in self.load():
                batch.resume(loaded)
        return self.finish(batch)

    def mark_durable(self, prepared: PreparedBatch, above: OpenBatch | None = None) -> None:
        """*prepared* is durable: merge its rows into the cache, and base the batch *above* it on the cache."""
        self._cache.merge(prepared.overlay.changed)
        self._cache.fresh_id = prepared.batch.head.next_id
        if above is not None:
            above.overlay.rebase(self._cache)


def _slot_of_repeated(overlay: Overlay, job: Job) -> Slot | None:
    """Return the slot row with the stored answer if this very command has run before, otherwise None. Raises
    `SessionExpired` for a session that may not commit."""
    try:
        session = overlay.get(SESSION, (job.session,))
        slot = overlay.get(SLOT, (job.session, job.slot))
    except RowsNotLoaded:
        prefetch(overlay, [(SESSION, (job.session,)), (SLOT, (job.session, job.slot))])
        raise
    if session is None or session.state != SessionState.LIVE:
        raise SessionExpired(job.session)
    if slot is None or slot.number < job.number:
        return None
    if slot.number > job.number:
        raise Unavailable(f"slot {job.slot} of session {job.session} is already at number {slot.number}")
    return slot


def _check_feature(tx: Tx) -> None:
    """Raise `Refused` if a record needs a higher feature level than the journal has."""
    needed = max((record.FEATURE for record in tx.records), default=1)  # type: ignore[union-attr]
    if needed > 1:
        site = tx.get(SITE, (0,))
        if site is None or site.feature < needed:
            raise Refused(f"this journal's feature level does not allow records of level {needed}")
