"""Write-ahead log: a small value becomes durable by one fdatasync of a log, and visible as a file that is synced later.

To make one file durable takes several syncs in a row (the file, and each folder above it). To append to a preallocated
log takes one sync. The values that arrive while that sync runs are appended together and share the next one (natural
batching, no timer).

Theory of operation
-------------------
There are two logs. Each one has a `_Segment` that holds its state. One of the two is *current*: new groups of records
are appended to it. A segment goes through these states:

    open      accepts groups; `unfinished` counts the groups whose files are not made yet
    sealed    accepts no more groups: it is full (`_segment_for`), or it held records when the timer fired (`_rotate`)
    busy      sealed, no group unfinished: `_checkpoint` syncs its files and resets its log; then it is open again
    suspect   sealed, its checkpoint failed: the log is kept, and the next `_rotate` repeats the checkpoint

One PUT of a small value goes through these steps:

1. The backend verifies the value's CRC32C and calls `put`, on the event loop. `_submit` appends a `_Job` to the queue
   `_pending`, and submits a call of `_commit` to the two threads.
2. `_commit` acquires `_append_lock` and removes all queued jobs from the queue, up to the limits of a group
   (`_next_group`).
3. `_segment_for` returns the current segment. If that has no space for the group, it seals the segment and makes the
   other one current. If the other one is still sealed, the group is stored without a log in the backend's thread pool:
   each of its values with its own syncs.
4. `_append` writes the group's records to the log and syncs the log. The value is durable now. If this fails, the
   puts of the group raise the error, and no file is made. `_append_lock` is released, so the other thread can append
   the next group.
5. `_make_visible` writes the value to a preallocated file, without a sync, and renames that file to its key.
6. `_complete` completes the job's future on the event loop, and `put` returns to its caller.
7. Later the segment is sealed. When all its groups have passed step 5, `_checkpoint` syncs the files and their folders
   in the backend's thread pool, and then resets the log.

`_state` guards the flags of the segments.

**Why deletions are logged.** A recovery writes the value of a key's last record again if its file is missing. So it
would bring back a file that was deleted while a log held its record. A deletion of such a key is therefore logged
before the file is removed, and recovery skips a key whose last record is a deletion. Other deletions need no record.
`workdir` covers deletions by another process, and those while neither log has space.

**Why logs are rotated by time.** A log that fills slowly would hold its records without limit, and a recovery has to
compare all of them with their files. So a timer seals the current segment each `log_turn_seconds` if it holds records.
This bounds the work of a recovery, and the time in which a deletion by another process can be undone by one (see
`workdir`). Once nothing was put for that long, `on_idle` is called, and the backend returns the logs' space to the disk
until the next small put.

**The crash argument.** For each value, in this order: (1) its record is durable in the log; (2) its file appears under
its key by one rename, unsynced; (3) the put returns; later (4) the file and its folders are synced; (5) the log is
reset.

- Killed before 1 ends: the put was not acknowledged, and no file is visible.
- Killed, or the power cut, between 1 and 5: the record is in a log without an owner. A power cut may leave the file
  missing, empty or torn. `workdir.restore` compares the file with the record and writes it again before anything is
  read. As no file appears before its record is durable, each torn file has a record that repairs it.
- Between 4 and 5 the file is durable, and agrees with the record.
- 5 happens only when every group of that log has passed 2 (`unfinished` is 0). So no value loses its record before 4
  has synced its file.
- If 4 fails, the page cache may show bytes that never reached the disk, and a second sync would report success. So the
  files of a suspect segment are written again from its log, and the log is kept until that has succeeded.
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
    """One put or delete that has not returned yet."""

    entry: WalEntry
    done: asyncio.Future[None]
    error: Exception | None = None


@dataclass(eq=False, slots=True)
class _Segment:
    """One log, with its state since its last reset (see the head of this module)."""

    log: WalFile
    keys: set[str] = field(default_factory=set)
    """Keys whose records the log holds."""
    unfinished: int = 0
    """Number of groups in the log whose files are not made yet."""
    sealed: bool = False
    """Accepts no more groups until it is reset."""
    busy: bool = False
    """A checkpoint is queued or runs."""
    suspect: bool = False
    """A checkpoint failed: the next one writes the files anew."""


class WriteAheadLog:
    """The two logs of one `WorkDir`. `put` and `delete` are called on the event loop; two threads do the work."""

    def __init__(
        self,
        root: Root,
        workdir: WorkDir,
        pool: ThreadPoolExecutor,
        store: Callable[[WalEntry], None],
        on_idle: Callable[[], None],
        timing: DriverTiming,
    ) -> None:
        """*workdir* has its logs prepared. *pool* runs checkpoints, refills, and what is stored without a log. *store*
        stores a value without a log.
        *on_idle* is called on the event loop when nothing was put for `log_turn_seconds` and the logs are empty."""
        self._root, self._workdir, self._pool, self._store = root, workdir, pool, store
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="wal")
        self._preallocated = PreallocatedFiles(root, workdir, pool)
        self._pending: deque[_Job] = deque()
        self._unanswered = 0  # jobs that are queued or in a thread; counted on the event loop alone
        self._append_lock = threading.Lock()  # held by the thread that appends a group
        self._state = threading.Condition()  # guards the flags of the segments
        self._segments = [_Segment(log) for log in workdir.logs]
        self._generation = max(log.generation for log in workdir.logs)
        self._current = 0
        self._timer: asyncio.TimerHandle | None = None
        self._on_idle = on_idle
        self._rotate_seconds = timing.log_turn_seconds
        """A log with records is sealed and checkpointed at this interval, even if it has space left. This bounds the
        work of a recovery (see the head of this module)."""

    def put(self, entry: WalEntry) -> asyncio.Future[None]:
        """Log and store a value. It is durable and visible when the future is done."""
        return self._submit(entry)

    def delete(self, key: str) -> asyncio.Future[None] | None:
        """Log the deletion of *key*, then remove the file; the future completes after both. Return None, and do
        nothing, if no log has a record of *key*: then no recovery could write the file again."""
        if not any(key in segment.keys for segment in self._segments):
            return None
        return self._submit(WalEntry(DELETED, key, (), 0, 0))

    async def close(self) -> None:
        """Sync the files of both logs and reset the logs. A log whose files cannot be synced keeps its records for the
        next owner."""
        if self._timer is not None:
            self._timer.cancel()
        await self._loop.run_in_executor(self._pool, self._finish_all)

    @property
    def empty(self) -> bool:
        """After `close`: whether the logs hold nothing that the next owner needs."""
        return not any(segment.keys or segment.suspect for segment in self._segments)

    def release(self) -> None:
        """Close and remove the preallocated files; after `close`."""
        self._preallocated.close()

    def _submit(self, entry: WalEntry) -> asyncio.Future[None]:
        job = _Job(entry, self._loop.create_future())
        self._pending.append(job)
        self._unanswered += 1
        if self._timer is None:
            self._timer = self._loop.call_later(self._rotate_seconds, self._tick)
        self._threads.submit(self._commit)
        return job.done

    def _complete(self, group: Sequence[_Job]) -> None:
        """Complete the futures of *group*; on the event loop."""
        self._unanswered -= len(group)
        for job in group:
            if not job.done.done():
                if job.error is None:
                    job.done.set_result(None)
                else:
                    job.done.set_exception(job.error)

    # ---- in the two threads -------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Log all queued jobs with one sync, make their files, and complete them on the event loop.

        Each job submits one call of this. A call finds an empty queue if an earlier call has committed its job with
        others. If neither log has space, the pool stores the jobs without one."""
        with self._append_lock:
            group, needed = self._next_group()
            if not group:
                return
            segment = self._segment_for(needed)
            if segment is not None:
                self._append(segment, group)
                crash_points.reach("log-durable")
        if segment is None:
            for job in group:
                self._pool.submit(self._store_without_log, job)
            return
        for job in group:
            self._make_visible(job, segment)
        crash_points.reach("files-made")
        self._finish_group(segment)
        self._loop.call_soon_threadsafe(self._complete, group)

    def _append(self, segment: _Segment, group: list[_Job]) -> None:
        try:
            segment.log.append([job.entry for job in group])
        except Exception as error:  # noqa: BLE001 (any error goes to the callers)
            for job in group:
                job.error = self._to_caller_error(error, self._workdir.path)

    def _next_group(self) -> tuple[list[_Job], int]:
        """Remove the next group from the queue. Return it and the number of bytes that it needs in a log."""
        group: list[_Job] = []
        needed = PAGE
        while self._pending and len(group) < GROUP_ENTRIES_MAX:
            entry = self._pending[0].entry
            entry_bytes = bytes_needed(entry.key, entry.size)
            if group and needed + entry_bytes > GROUP_BYTES_MAX:
                break  # each job submitted a call of `_commit`, so one is left for the rest
            needed += entry_bytes
            group.append(self._pending.popleft())
        return group, needed

    def _segment_for(self, needed: int) -> _Segment | None:
        """Return the segment to append the next group to, and count the group there as unfinished. Return None if
        neither segment has space."""
        with self._state:
            segment = self._segments[self._current]
            if segment.sealed or segment.log.bytes_left() < needed:
                other = self._segments[1 - self._current]
                if other.sealed:
                    return None
                self._seal(segment)
                self._current = 1 - self._current
                segment = other
            segment.unfinished += 1
            return segment

    def _make_visible(self, job: _Job, segment: _Segment) -> None:
        """Make the file of a logged put, or remove that of a logged deletion."""
        entry = job.entry
        if job.error is not None:
            return
        try:
            if entry.kind == DELETED:
                self._root.remove(entry.key)
                return
            segment.keys.add(entry.key)
            file = self._preallocated.acquire()
            self._root.fill(file.fd, file.path, entry.value, sync=False)
            self._root.place(file.path, entry.key)
        except Exception as error:  # noqa: BLE001 (any error goes to the caller)
            job.error = self._to_caller_error(error, entry.key, entry.key)

    def _store_without_log(self, job: _Job) -> None:
        try:
            if job.entry.kind == PUT:
                self._store(job.entry)
            else:
                self._root.remove(job.entry.key)
        except Exception as error:  # noqa: BLE001 (any error goes to the caller)
            job.error = self._to_caller_error(error, job.entry.key, job.entry.key)
        self._loop.call_soon_threadsafe(self._complete, [job])

    def _to_caller_error(self, error: Exception, path: str, key: str | None = None) -> Exception:
        """Return the error that the caller gets: an `OSError` becomes a `BackendError`."""
        if not isinstance(error, OSError):
            return error
        backend_error = self._root.to_backend_error(error, path, key)
        backend_error.__cause__ = error
        return backend_error

    # ---- rotation: in the pool ----------------------------------------------------------------------------------

    def _finish_group(self, segment: _Segment) -> None:
        """Record that the files of a group are made. If that was the last unfinished group of a sealed segment, begin
        the segment's checkpoint."""
        with self._state:
            segment.unfinished -= 1
            if segment.sealed and not segment.unfinished:
                self._begin_checkpoint(segment)

    def _seal(self, segment: _Segment) -> None:
        """Accept no more groups in *segment*, and checkpoint it once its files are made. The caller holds `_state`."""
        segment.sealed = True
        if not segment.unfinished:
            self._begin_checkpoint(segment)

    def _begin_checkpoint(self, segment: _Segment) -> None:
        """Queue a checkpoint. The caller holds `_state`."""
        segment.busy = True
        self._pool.submit(self._checkpoint, segment)

    def _checkpoint(self, segment: _Segment) -> None:
        """Make the files of a sealed segment durable, reset its log, and open it again."""
        try:
            if segment.suspect:
                restore(self._root, [segment.log], self._workdir.temporary, rewrite=True)
            else:
                self._root.sync_values(list(segment.keys))
            crash_points.reach("log-superseded")
            with self._state:
                self._generation = max(self._generation, segment.log.generation) + 1
                generation = self._generation
            segment.log.reset(generation)
            crash_points.reach("log-reset")
        except Exception as error:  # noqa: BLE001 (`_finish_all` waits for this to end, whatever the error)
            _log.warning("%s: a write-ahead log cannot be reset and is kept: %r", self._root.path, error)
            with self._state:
                segment.suspect, segment.busy = True, False
                self._state.notify_all()
            return
        with self._state:
            segment.keys.clear()
            segment.sealed = segment.suspect = segment.busy = False
            self._state.notify_all()

    def _tick(self) -> None:
        """Rotate if a log holds records. Call `on_idle` if none does and no job is unanswered.

        The queue and the segments' keys do not show every job: a group that a thread has just removed from the queue is
        in neither. So `_unanswered` counts the jobs. If the logs were discarded while such a group is being committed,
        a later deletion of one of its keys would not be logged."""
        self._timer = None
        if any(segment.keys or segment.sealed for segment in self._segments):
            self._timer = self._loop.call_later(self._rotate_seconds, self._tick)
            self._pool.submit(self._rotate)
        elif self._unanswered:
            self._timer = self._loop.call_later(self._rotate_seconds, self._tick)
        else:
            self._on_idle()

    def _rotate(self) -> None:
        """Seal the current segment if it holds records, and repeat failed checkpoints."""
        with self._append_lock, self._state:
            for segment in self._segments:
                if segment.suspect and not segment.busy:
                    self._begin_checkpoint(segment)
            segment, other = self._segments[self._current], self._segments[1 - self._current]
            if segment.keys and not segment.sealed and not other.sealed:
                self._seal(segment)
                self._current = 1 - self._current

    def _finish_all(self) -> None:
        """Commit all queued jobs and checkpoint both segments; return when each is reset or suspect."""
        self._threads.shutdown(wait=True)
        with self._state:
            for segment in self._segments:
                if segment.keys and not segment.sealed:
                    self._seal(segment)
            self._state.wait_for(lambda: not any(s.busy or (s.sealed and not s.suspect) for s in self._segments))
