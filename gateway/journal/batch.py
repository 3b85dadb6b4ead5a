"""Group commit, without its I/O: many commands become one batch of records and changed rows. Synchronous.

Each command runs in an overlay of its own above the batch's: one that is refused takes nobody down with it. One that
misses rows is set aside; what all of them miss is loaded together, and they run again. So the commands of a batch
are in no order among themselves, as those of a frame are.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.errors import EntrepotError, Refused, SessionOver, Unavailable
from gateway.journal.cache import RowCache
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.commands import CommandTable, Foresee, Tx
from gateway.journal.packed import pack, unpack
from gateway.journal.records import Record
from gateway.journal.rows import Missing, Overlay, Wanted, want
from gateway.journal.store import Batch, Head, JournalRow, running_hash
from gateway.journal.tables import SESSION, SITE, SLOT, SessionState, Slot

log = logging.getLogger(__name__)

ROUNDS_MAX = 200
"""How often a command may miss rows: a deep path misses one a level."""
FORESIGHTS_MAX = 3
"""How often rows are loaded before the commands run that want them: directories, names, what the names point at."""
NO_SESSION = 0
"""Who the committer's own commands come from."""


class Job(NamedTuple):
    """A command to run, and who waits for it."""

    session: int
    slot: int
    number: int
    command: Any
    size: int
    """Bytes on the wire."""
    waiter: Any


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


class Gathering:
    """A batch that still takes commands."""

    def __init__(self, cache: RowCache, commands: CommandTable, overlay: Overlay, head: Head, at_ns: int) -> None:
        self._cache = cache
        self._commands = commands
        self._before = head
        self.overlay = overlay
        self.at_ns = at_ns
        self.next_id = head.next_id
        self.jobs: list[Job] = []
        self.records: list[Record] = []
        self.answers: list[Answer] = []
        self.size = 0
        """Bytes of its commands."""

    def run(self, jobs: Sequence[Job]) -> None:
        """Run *jobs*, loading what they miss."""
        self.jobs += jobs
        self.size += sum(job.size for job in jobs)
        self._foresee(jobs)
        for _ in range(ROUNDS_MAX):
            jobs, missing = self._round(jobs)
            if not jobs:
                return
            self._cache.load(list(missing))
        for job in jobs:
            self.answers.append(Answer(job, None, Unavailable("the command asks for more rows than it may")))

    def _foresee(self, jobs: Sequence[Job]) -> None:
        """Load what *jobs* are sure to miss."""
        foreseeing: dict[Foresee, list[Any]] = {}
        for job in jobs:
            foresee = type(job.command).FORESEE
            if foresee is not None:
                foreseeing.setdefault(foresee, []).append(job.command)
        for foresee, commands in foreseeing.items():
            for _ in range(FORESIGHTS_MAX):
                try:
                    wanted = set(foresee(commands, self.overlay))
                except Exception:
                    log.exception("%s failed", foresee.__name__)  # as the command that it stumbles over will, alone
                    break
                if not wanted:
                    break
                self._cache.load(list(wanted))

    def _round(self, jobs: Sequence[Job]) -> tuple[list[Job], set[Wanted]]:
        """Run each job once. Answers those that missed rows, and the rows."""
        waiting: list[Job] = []
        missing: set[Wanted] = set()
        for job in jobs:
            try:
                self.answers.append(self._one(job))
            except Missing as these:
                waiting.append(job)
                missing.update(these.wanted)
        return waiting, missing

    def _one(self, job: Job) -> Answer:
        overlay = Overlay(self.overlay)
        tx = Tx(
            overlay,
            number=self._before.number + 1 + len(self.records),
            next_id=self.next_id,
            at_ns=self.at_ns,
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
        except Missing:
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
            head = Head(before.number + len(self.records), hashed, self.at_ns, self.next_id)
            row = JournalRow(before.number + 1, len(self.records), self.at_ns, self.next_id, hashed, packed)
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
        self.head = head
        """Where the journal will stand once all that is prepared is durable."""

    def begin(self, now_ns: int, below: Prepared | None = None) -> Gathering:
        """A batch above *below*, one that is on its way, if there is one. Its time never goes back."""
        # Rows are forgotten only here: between this and `finish`, what stood before a change has to be at hand.
        self._cache.shrink()
        overlay = Overlay(below.overlay if below else self._cache)
        return Gathering(self._cache, self._commands, overlay, self.head, max(now_ns, self.head.at_ns + 1))

    def finish(self, gathering: Gathering) -> Prepared:
        """The batch takes no more commands."""
        batch = gathering.batch()
        self.head = batch.head
        return Prepared(gathering.overlay, gathering.answers, batch, gathering.jobs, len(gathering.records))

    def prepare(self, jobs: Sequence[Job], now_ns: int) -> Prepared:
        """Run *jobs* as one batch."""
        gathering = self.begin(now_ns)
        gathering.run(jobs)
        return self.finish(gathering)

    def done(self, prepared: Prepared, above: Gathering | None = None) -> None:
        """*prepared* is durable; the batch *above* it now stands on the cache."""
        self._cache.merge(prepared.overlay.changed)
        self._cache.fresh_id = prepared.batch.head.next_id
        if above is not None:
            above.overlay.rebase(self._cache)


def _repeated(overlay: Overlay, job: Job) -> Slot | None:
    """The answer that this very command had already. Raises `SessionOver` for a session that may not commit."""
    try:
        session = overlay.get(SESSION, (job.session,))
        slot = overlay.get(SLOT, (job.session, job.slot))
    except Missing:
        want(overlay, [(SESSION, (job.session,)), (SLOT, (job.session, job.slot))])
        raise
    if session is None or session.state != SessionState.LIVE:
        raise SessionOver(job.session)
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
