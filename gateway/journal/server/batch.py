"""Group commit, without its I/O: many commands become one batch of records and changed rows. Synchronous.

Each command runs in an overlay of its own above the batch's: one that is refused takes nobody down with it. One that
misses rows is set aside; what all of them miss is loaded together, and they run again. So the commands of a batch
are in no order among themselves, as those of a frame are.

A command that misses many rows does not hold up the others: it leaves the batch, its rows are loaded a slice at a time
(`BatchRunner.load`), and it joins whichever batch gathers then.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.errors import EntrepotError, Refused, SessionExpired, Unavailable
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.columns import pack, unpack
from gateway.journal.commands import CommandTable, Prefetcher, Tx
from gateway.journal.records import Record
from gateway.journal.rows import LoadRequest, Overlay, RowsNotLoaded, prefetch, rows_in
from gateway.journal.server.job_queue import Job
from gateway.journal.server.row_cache import RowCache
from gateway.journal.store import Batch, Head, JournalRow, running_hash
from gateway.journal.tables import SESSION, SITE, SLOT, SessionState, Slot

__all__ = ["NO_SESSION", "Answer", "BatchRunner", "Gathering", "Job", "Loading", "Prepared"]

log = logging.getLogger(__name__)

ROUNDS_MAX = 200
"""How often a command may miss rows before it is refused. Each round of a path brings `LEVELS_MAX` directories."""
ROWS_TURN = 1024
"""Rows that are loaded without a break, about."""
PREFETCH_ROUNDS_MAX = 3
"""How often rows are loaded before the commands run that want them: directories, names, what the names point at."""
STEP_NS = 10**9
"""Steps back of the wall clock that are shorter are smoothed: what is written later does not seem older."""
NO_SESSION = 0
"""Who the committer's own commands come from."""


class Answer(NamedTuple):
    """What came of a job: a value, or the error that it was refused with."""

    job: Job
    value: Any
    error: EntrepotError | None


@dataclass
class Prepared:
    """A batch that ran and is not durable yet."""

    overlay: Overlay
    answers: list[Answer]
    batch: Batch
    jobs: Sequence[Job]
    records: int


@dataclass
class Loading:
    """A job whose command waits for rows."""

    job: Job
    wanted: list[LoadRequest]
    """Those that are not loaded yet."""
    rounds: int
    """How often it missed rows."""


class Times(NamedTuple):
    """The times of a batch. Each is its own clock's, nanoseconds."""

    wall_ns: int
    """What people see. Goes back with the wall clock, where that was set back by more than `STEP_NS`."""
    journal_ns: int
    """Of the batch itself: later than that of every batch before, also where the wall clock was ahead then."""
    site_ns: int
    """By the site's clock (`site_clock`): for what is deleted because it is old."""

    @classmethod
    def of(cls, now_ns: int, last_ns: int, site_ns: int) -> Times:
        """At *now_ns* by the wall clock, behind a batch of *last_ns*."""
        journal_ns = max(now_ns, last_ns + 1)
        return cls(journal_ns if journal_ns - now_ns < STEP_NS else now_ns, journal_ns, site_ns)


class Gathering:
    """A batch that still takes commands. Jobs that miss many rows are appended to *loading*."""

    def __init__(
        self,
        cache: RowCache,
        commands: CommandTable,
        overlay: Overlay,
        head: Head,
        times: Times,
        loading: deque[Loading],
    ) -> None:
        self._cache = cache
        self._loading = loading
        self._commands = commands
        self._before = head
        self.overlay = overlay
        self._times = times
        self.next_id = head.next_id
        self.records: list[Record] = []
        self.answers: list[Answer] = []
        self.size = 0
        """Bytes of its commands."""

    @property
    def jobs(self) -> list[Job]:
        """Those that have an answer in this batch."""
        return [answer.job for answer in self.answers]

    def run(self, jobs: Sequence[Job]) -> None:
        """Run *jobs*, loading what they miss."""
        self.size += sum(job.size for job in jobs)
        self._prefetch(jobs)
        self._run(jobs, 0)

    def resume(self, loaded: Loading) -> None:
        """Run a job again whose rows are in memory now."""
        self.size += loaded.job.size
        self._run([loaded.job], loaded.rounds)

    def _run(self, jobs: Sequence[Job], rounds: int) -> None:
        rows = 0
        while jobs:
            waiting = self._round(jobs)
            jobs = [job for job, _ in waiting]
            rounds += 1
            if rounds >= ROUNDS_MAX:
                refused = Unavailable("the command asks for more rows than it may")
                self.answers += [Answer(job, None, refused) for job in jobs]
                return
            missing = list(dict.fromkeys(each for _, these in waiting for each in these))
            rows += sum(map(rows_in, missing))
            if rows > ROWS_TURN:
                self._loading.extend(Loading(job, list(these), rounds) for job, these in waiting)
                self.size -= sum(job.size for job in jobs)
                return
            self._cache.load(missing)

    def _prefetch(self, jobs: Sequence[Job]) -> None:
        """Load what *jobs* are sure to miss."""
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
                    log.exception("%s failed", prefetcher.__name__)  # as the command that it stumbles over will, alone
                    break
                if not wanted:
                    break
                self._cache.load(list(wanted))

    def _round(self, jobs: Sequence[Job]) -> list[tuple[Job, tuple[LoadRequest, ...]]]:
        """Run each job once. Returns those that missed rows, and the rows."""
        waiting: list[tuple[Job, tuple[LoadRequest, ...]]] = []
        for job in jobs:
            try:
                self.answers.append(self._one(job))
            except RowsNotLoaded as these:
                waiting.append((job, these.wanted))
        return waiting

    def _one(self, job: Job) -> Answer:
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
                repeated = _repeated(overlay, job)
                if repeated is not None:
                    return Answer(job, unpack(repeated.answer), None)
            value = self._commands[type(job.command)](job.command, tx)
            answer = pack(value)
            _check_feature(tx)
        except EntrepotError as refused:
            return Answer(job, None, refused)
        except RowsNotLoaded:
            raise
        except Exception as bug:
            log.exception("the command %s failed", type(job.command).__name__)
            return Answer(job, None, Refused(f"{type(job.command).__name__} failed: {bug!r}"))
        if job.session != NO_SESSION and tx.records:
            overlay.put(SLOT, Slot(job.session, job.slot, job.number, answer))
        self.next_id = tx.next_id
        self.records += tx.records
        overlay.merge_into(self.overlay)
        return Answer(job, value, None)

    def batch(self) -> Batch:
        """What is to be written. The head moves without a record too: an id that was answered is never drawn again."""
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
    """Runs batches one after the other. A second one may be gathered while the first is being made durable."""

    def __init__(self, cache: RowCache, commands: CommandTable, head: Head) -> None:
        self._cache = cache
        self._cache.fresh_id = head.next_id
        self._commands = commands
        self.loading: deque[Loading] = deque()
        """Jobs that are in no batch, since they wait for rows."""
        self.head = head
        """Where the journal will stand once all that is prepared is durable."""

    def begin(self, now_ns: int, below: Prepared | None = None, *, site_ns: int | None = None) -> Gathering:
        """A batch above *below*, one that is on its way, if there is one. *now_ns*: by the wall clock. *site_ns*: by
        the site's clock; None: the same."""
        # Rows are forgotten only here: between this and `finish`, what stood before a change has to be at hand.
        self._cache.shrink()
        overlay = Overlay(below.overlay if below else self._cache)
        times = Times.of(now_ns, self.head.at_ns, now_ns if site_ns is None else site_ns)
        return Gathering(self._cache, self._commands, overlay, self.head, times, self.loading)

    def load(self) -> list[Loading]:
        """Load about `ROWS_TURN` rows for jobs that wait for them, which take turns. Returns the jobs that can run."""
        wanted: list[LoadRequest] = []
        ready: list[Loading] = []
        rows = 0
        while self.loading and rows < ROWS_TURN:
            first = self.loading.popleft()
            while first.wanted and rows < ROWS_TURN:
                wanted.append(first.wanted.pop())
                rows += rows_in(wanted[-1])
            if first.wanted:
                self.loading.append(first)
            else:
                ready.append(first)
        self._cache.load(list(dict.fromkeys(wanted)))
        return ready

    def finish(self, gathering: Gathering) -> Prepared:
        """The batch takes no more commands."""
        batch = gathering.batch()
        self.head = batch.head
        return Prepared(gathering.overlay, gathering.answers, batch, gathering.jobs, len(gathering.records))

    def prepare(self, jobs: Sequence[Job], now_ns: int, *, site_ns: int | None = None) -> Prepared:
        """Run *jobs* as one batch. The times are those of `begin`."""
        gathering = self.begin(now_ns, site_ns=site_ns)
        gathering.run(jobs)
        while self.loading:
            for loaded in self.load():
                gathering.resume(loaded)
        return self.finish(gathering)

    def done(self, prepared: Prepared, above: Gathering | None = None) -> None:
        """*prepared* is durable; the batch *above* it now stands on the cache."""
        self._cache.merge(prepared.overlay.changed)
        self._cache.fresh_id = prepared.batch.head.next_id
        if above is not None:
            above.overlay.rebase(self._cache)


def _repeated(overlay: Overlay, job: Job) -> Slot | None:
    """The answer that this very command had already. Raises `SessionExpired` for a session that may not commit."""
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
        raise Unavailable(f"slot {job.slot} of session {job.session} has gone on to number {slot.number}")
    return slot


def _check_feature(tx: Tx) -> None:
    """A record of a newer level may not be written before the journal says that level."""
    needed = max((record.FEATURE for record in tx.records), default=1)  # type: ignore[union-attr]
    if needed > 1:
        site = tx.get(SITE, (0,))
        if site is None or site.feature < needed:
            raise Refused(f"this journal's feature level does not allow what needs level {needed}")
