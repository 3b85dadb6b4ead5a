"""The intake: small values become durable by one fdatasync of a log, and visible as files that are synced later.

A file of its own made durable takes three syncs in a row (its bytes, its name, its folder); appending to a filled log
takes one, and values that arrive while that one runs share the next (natural batching, no timer).

**The crash argument.** For each value, in this order: (1) its record is durable in the log; (2) its file appears under
its key by one rename, unsynced; (3) the put returns; later (4) file and folders are synced; (5) the log is reset.
- Killed before 1 ends: the put was not acknowledged, no file is visible.
- Killed, or the power cut, between 1 and 5: the record is in a log whose owner is gone. A power cut may leave the
  file missing, empty or torn; `desk.restore` compares it with the record and writes it anew before anything is read.
  As no file appears before its record is durable, there is no torn file without a record to mend it.
- Between 4 and 5 the file is durable, and the record says what is true.
- 5 happens only when every group of that log has come past 2 (`unfinished`), so no value can lose its record before
  its file was among those that 4 synced.
- Where 4 fails, the page cache may show bytes that the disk never got, and a second sync would say nothing: the
  files are written anew from the log (`suspect`), and the log stays in the meantime.

Two logs take turns, so that puts do not wait for 4 and 5 of the full one; if they outrun it, they are stored in the
plain way, each with its own syncs, until a log is free. A log with records is turned over at least each
`log_turn_seconds`, which bounds what a restoring has to do. Once nothing was put for that long, `idle` is called, and
the backend gives the logs' room back to the disk until the next small put. Deletions of keys whose record is in a log
are logged, too, in order (see `desk`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from backends import crash_points
from backends.local.file_pool import PreallocatedFiles
from backends.local.files import Root
from backends.local.wal_format import DELETED, PAGE, PUT, START, WalEntry, WalFile, bytes_needed
from backends.local.workdir import WorkDir, restore
from backends.timing import DriverTiming

GROUP_BYTES_MAX = 4 << 20
GROUP_ENTRIES_MAX = 256
LOG_BYTES_MIN = START + 2 * GROUP_BYTES_MAX

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Job:
    """One put or delete on its way."""

    entry: WalEntry
    done: asyncio.Future[None]
    error: Exception | None = None


@dataclass(eq=False, slots=True)
class _Segment:
    """A log and what was made out of it since its last reset."""

    log: WalFile
    keys: set[str] = field(default_factory=set)
    unfinished: int = 0  # groups whose files are still being made
    sealed: bool = False  # takes no more groups until it is reset
    busy: bool = False  # it is being synced and reset
    suspect: bool = False  # a sync failed: write the files anew


class WriteAheadLog:
    """The intake of one desk. `put` and `delete` are called on the event loop; two threads do the work."""

    def __init__(
        self,
        root: Root,
        desk: WorkDir,
        pool: ThreadPoolExecutor,
        store: Callable[[WalEntry], None],
        idle: Callable[[], None],
        timing: DriverTiming,
    ) -> None:
        """*desk*'s logs are prepared. *pool* runs what may take long; *store* puts a value in the plain way; *idle* is
        called on the event loop when nothing has been put for `log_turn_seconds` and the logs hold nothing."""
        self._root, self._workdir, self._pool, self._store = root, desk, pool, store
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="intake")
        self._files_ahead = PreallocatedFiles(root, desk, pool)
        self._pending: deque[_Job] = deque()
        self._unanswered = 0  # jobs that wait, or are in a thread; counted on the event loop alone
        self._append_lock = threading.Lock()  # who holds it appends: one group at a time on its way to the disk
        self._state = threading.Condition()  # guards the volumes' flags
        self._segments = [_Segment(log) for log in desk.logs]
        self._generation = max(log.generation for log in desk.logs)
        self._current = 0
        self._timer: asyncio.TimerHandle | None = None
        self._idle = idle
        self._turn_seconds = timing.log_turn_seconds

    def put(self, entry: WalEntry) -> asyncio.Future[None]:
        """Durable and visible when the future is done."""
        return self._submit(entry)

    def delete(self, key: str) -> asyncio.Future[None] | None:
        """Log the deletion and remove the file; None, and nothing done, if no record of *key* is in a log."""
        if not any(key in segment.keys for segment in self._segments):
            return None
        return self._submit(WalEntry(DELETED, key, (), 0, 0))

    async def close(self) -> None:
        """Sync what the logs hold and reset them. What cannot be synced stays in them for the next owner."""
        if self._timer is not None:
            self._timer.cancel()
        await self._loop.run_in_executor(self._pool, self._finish_all)

    @property
    def empty(self) -> bool:
        """After `close`: whether the logs hold nothing that the next owner needs."""
        return not any(segment.keys or segment.suspect for segment in self._segments)

    def release(self) -> None:
        """Let go of the files made ahead; after `close`."""
        self._files_ahead.close()

    def _submit(self, entry: WalEntry) -> asyncio.Future[None]:
        job = _Job(entry, self._loop.create_future())
        self._pending.append(job)
        self._unanswered += 1
        self._threads.submit(self._commit)
        if self._timer is None:
            self._timer = self._loop.call_later(self._turn_seconds, self._tick)
        return job.done

    def _settle(self, group: Sequence[_Job]) -> None:
        """Answer the callers; on the event loop."""
        self._unanswered -= len(group)
        for job in group:
            if not job.done.done():
                if job.error is None:
                    job.done.set_result(None)
                else:
                    job.done.set_exception(job.error)

    # ---- in the two threads -------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Take all that waits, log it with one sync, make the files, and say so. A job's own call may find that an
        earlier one has taken it along."""
        with self._append_lock:
            group, needed = self._take_group()
            if not group:
                return
            segment = self._segment_for(needed)
            if segment is not None:
                self._append(segment, group)
                crash_points.reach("log-durable")
        if segment is None:
            for job in group:
                self._pool.submit(self._store_plainly, job)
            return
        for job in group:
            self._make_visible(job, segment)
        crash_points.reach("files-made")
        self._leave(segment)
        self._loop.call_soon_threadsafe(self._settle, group)

    def _append(self, segment: _Segment, group: list[_Job]) -> None:
        try:
            segment.log.append([job.entry for job in group])
        except Exception as error:  # noqa: BLE001 (whatever it is, the callers must hear of it)
            for job in group:
                job.error = self._told(error, self._workdir.path)

    def _take_group(self) -> tuple[list[_Job], int]:
        group: list[_Job] = []
        needed = PAGE
        while self._pending and len(group) < GROUP_ENTRIES_MAX:
            entry = self._pending[0].entry
            wants = bytes_needed(entry.key, entry.size)
            if group and needed + wants > GROUP_BYTES_MAX:
                break  # each job brought a call of its own, so there is one left for the rest
            needed += wants
            group.append(self._pending.popleft())
        return group, needed

    def _segment_for(self, needed: int) -> _Segment | None:
        """The log that takes the next group, with its group counted; None while neither has room."""
        with self._state:
            segment = self._segments[self._current]
            if segment.sealed or segment.log.room() < needed:
                other = self._segments[1 - self._current]
                if other.sealed:
                    return None
                self._seal(segment)
                self._current = 1 - self._current
                segment = other
            segment.unfinished += 1
            return segment

    def _make_visible(self, job: _Job, segment: _Segment) -> None:
        entry = job.entry
        if job.error is not None:
            return
        try:
            if entry.kind == DELETED:
                self._root.remove(entry.key)
                return
            segment.keys.add(entry.key)
            fd, temporary = self._files_ahead.take()
            self._root.fill(fd, temporary, entry.value, sync=False)
            self._root.place(temporary, entry.key)
        except Exception as error:  # noqa: BLE001 (whatever it is, the caller must hear of it)
            job.error = self._told(error, entry.key, entry.key)

    def _store_plainly(self, job: _Job) -> None:
        try:
            if job.entry.kind == PUT:
                self._store(job.entry)
            else:
                self._root.remove(job.entry.key)
        except Exception as error:  # noqa: BLE001 (whatever it is, the caller must hear of it)
            job.error = self._told(error, job.entry.key, job.entry.key)
        self._loop.call_soon_threadsafe(self._settle, [job])

    def _told(self, error: Exception, path: str, key: str | None = None) -> Exception:
        """What the caller is to hear."""
        if not isinstance(error, OSError):
            return error
        word = self._root.to_backend_error(error, path, key)
        word.__cause__ = error
        return word

    # ---- turning over: in the pool ------------------------------------------------------------------------------

    def _leave(self, segment: _Segment) -> None:
        """A group's files are made."""
        with self._state:
            segment.unfinished -= 1
            if segment.sealed and not segment.unfinished:
                self._begin_checkpoint(segment)

    def _seal(self, segment: _Segment) -> None:
        """No more groups into this log; sync and reset it once the last one's files are made. Holds `_state`."""
        segment.sealed = True
        if not segment.unfinished:
            self._begin_checkpoint(segment)

    def _begin_checkpoint(self, segment: _Segment) -> None:
        """Holds `_state`."""
        segment.busy = True
        self._pool.submit(self._checkpoint, segment)

    def _checkpoint(self, segment: _Segment) -> None:
        """Make the files of a sealed log durable, reset it, and open it again."""
        try:
            if segment.suspect:
                restore(self._root, [segment.log], self._workdir.temporary, every=True)
            else:
                self._root.sync_values(list(segment.keys))
            crash_points.reach("log-superseded")
            with self._state:
                self._generation = max(self._generation, segment.log.generation) + 1
                generation = self._generation
            segment.log.reset(generation)
            crash_points.reach("log-reset")
        except Exception as error:  # noqa: BLE001 (whatever it is, who closes waits for this to end)
            _log.warning("%s: the intake log stays: %r", self._root.path, error)
            with self._state:
                segment.suspect, segment.busy = True, False
                self._state.notify_all()
            return
        with self._state:
            segment.keys.clear()
            segment.sealed = segment.suspect = segment.busy = False
            self._state.notify_all()

    def _tick(self) -> None:
        """Idle is only a log that holds nothing and is about to hold nothing: a group that a thread has taken waits
        no more and is not among the keys yet, and once the logs are put away deletions are logged no more."""
        self._timer = None
        if any(segment.keys or segment.sealed for segment in self._segments):
            self._timer = self._loop.call_later(self._turn_seconds, self._tick)
            self._pool.submit(self._rotate)
        elif self._unanswered:
            self._timer = self._loop.call_later(self._turn_seconds, self._tick)
        else:
            self._idle()

    def _rotate(self) -> None:
        """Reset logs that have held records for a while, and try those again whose sync failed."""
        with self._append_lock, self._state:
            for segment in self._segments:
                if segment.suspect and not segment.busy:
                    self._begin_checkpoint(segment)
            segment, other = self._segments[self._current], self._segments[1 - self._current]
            if segment.keys and not segment.sealed and not other.sealed:
                self._seal(segment)
                self._current = 1 - self._current

    def _finish_all(self) -> None:
        self._threads.shutdown(wait=True)
        with self._state:
            for segment in self._segments:
                if segment.keys and not segment.sealed:
                    self._seal(segment)
            self._state.wait_for(lambda: not any(v.busy or (v.sealed and not v.suspect) for v in self._segments))
