"""Write-ahead log: a small value becomes durable by one fdatasync of a log, and visible as a file that is synced later.

To make one file durable takes several syncs in a row (the file, and each folder above it). To append to a preallocated
log takes one, and the values that arrive while that one runs share the next (natural batching, no timer).

**Theory of operation.** There are two logs, each with a `_Segment` that holds its state. One of the two is *current*
and takes all groups. A segment goes through these states:

    open      takes groups; `unfinished` counts the groups whose files are not made yet
    sealed    takes no more groups: it is full, or has held records for `log_turn_seconds` (`_rotate`)
    busy      sealed, no group unfinished: `_checkpoint` syncs its files and resets its log; then it is open again
    suspect   sealed, its checkpoint failed: the log stays, and the next `_rotate` repeats the checkpoint

- The event loop queues jobs and settles their futures. Two threads commit: each takes all queued jobs as one group,
  appends the group under `_append_lock`, then makes the files. So one thread appends while the other makes files. A
  lone small value is committed by the event loop itself while the disk is fast (`_is_quick`).
- `_state` guards the flags of the segments. Checkpoints run in the backend's thread pool.
- Where both segments are sealed, values are stored directly, each with its own syncs, until one is open again.
- Deletions of keys that have a record in a log are logged too, in order (see `workdir`).

**The crash argument.** For each value, in this order: (1) its record is durable in the log; (2) its file appears under
its key by one rename, unsynced; (3) the put returns; later (4) the file and its folders are synced; (5) the log is
reset.
- Killed before 1 ends: the put was not acknowledged, and no file is visible.
- Killed, or the power cut, between 1 and 5: the record is in a log without an owner. A power cut may leave the file
  missing, empty or torn; `workdir.restore` compares it with the record and writes it anew before anything is read. As
  no file appears before its record is durable, each torn file has a record that repairs it.
- Between 4 and 5 the file is durable, and agrees with the record.
- 5 happens only when every group of that log has passed 2 (`unfinished` is 0), so no value loses its record before its
  file was among those that 4 synced.
- Where 4 fails, the page cache may show bytes that never reached the disk, and a second sync would report success. So
  a suspect segment's files are written anew from its log, and the log stays until that has succeeded.

A log with records is rotated at least each `log_turn_seconds`, which bounds the work of a recovery. Once nothing was
put for that long, `on_idle` is called, and the backend returns the logs' space to the disk until the next small put.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
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
LOOP_BYTES_MAX = 64 << 10
"""A larger value is never stored on the event loop."""
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
    """Groups in the log whose files are not made yet."""
    sealed: bool = False
    """Takes no more groups until it is reset."""
    busy: bool = False
    """A checkpoint is queued or runs."""
    suspect: bool = False
    """A checkpoint failed: the next one writes the files anew."""


class WriteAheadLog:
    """The two logs of one `WorkDir`. `put` and `delete` are called on the event loop; two threads do most of the
    work."""

    def __init__(
        self,
        root: Root,
        workdir: WorkDir,
        pool: ThreadPoolExecutor,
        store: Callable[[WalEntry], None],
        on_idle: Callable[[], None],
        timing: DriverTiming,
        *,
        on_loop: bool,
    ) -> None:
        """*workdir* has its logs prepared. *pool* runs what may take long. *store* stores a value without a log.
        *on_idle* is called on the event loop when nothing was put for `log_turn_seconds` and the logs are empty.
        *on_loop*: a lone small value may be stored on the event loop (`_is_quick`)."""
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
        self._loop_commit_seconds = timing.loop_commit_seconds if on_loop else 0.0
        self._hiccup_seconds = timing.hiccup_seconds
        self._mean_commit_seconds = timing.hiccup_seconds
        """How long small groups took lately: a moving mean in which the last one has a weight of 1/8."""

    def put(self, entry: WalEntry) -> asyncio.Future[None]:
        """Log and store a value. It is durable and visible when the future is done."""
        return self._submit(entry)

    def delete(self, key: str) -> asyncio.Future[None] | None:
        """Log the deletion and remove the file. Return None, and do nothing, if no log has a record of *key*."""
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
        """Close and remove the preallocated files; after `close`."""
        self._preallocated.close()

    def _submit(self, entry: WalEntry) -> asyncio.Future[None]:
        job = _Job(entry, self._loop.create_future())
        self._pending.append(job)
        self._unanswered += 1
        if self._timer is None:
            self._timer = self._loop.call_later(self._rotate_seconds, self._tick)
        if self._unanswered == 1 and self._is_quick(entry):
            self._loop.call_soon(self._commit_lone)  # unless others come in this turn of the loop
        else:
            self._threads.submit(self._commit)
        return job.done

    def _is_quick(self, entry: WalEntry) -> bool:
        """Whether *entry* may be stored on the event loop: it is small, and the disk has been fast lately. To hand it
        to a thread and back would take longer than the sync."""
        return entry.size <= LOOP_BYTES_MAX and self._mean_commit_seconds <= self._loop_commit_seconds

    def _commit_lone(self) -> None:
        """Commit the only job on the event loop; in a thread if others have come."""
        if self._unanswered == 1:
            self._settle(self._commit_group())
        else:
            self._threads.submit(self._commit)

    def _settle(self, group: Sequence[_Job]) -> None:
        """Complete the futures of *group*; on the event loop."""
        self._unanswered -= len(group)
        for job in group:
            if not job.done.done():
                if job.error is None:
                    job.done.set_result(None)
                else:
                    job.done.set_exception(job.error)

    # ---- in the two threads, or on the event loop ---------------------------------------------------------------

    def _commit(self) -> None:
        """Commit a group, and settle it on the event loop. Each job submits one call of this; a call finds nothing to
        do where an earlier one took its job along."""
        if group := self._commit_group():
            self._loop.call_soon_threadsafe(self._settle, group)

    def _commit_group(self) -> list[_Job]:
        """Take all queued jobs, log them with one sync, and make their files. Return those that are to be settled: none
        where the queue was empty, or where neither log has space and the pool stores them without one."""
        started = time.perf_counter()
        with self._append_lock:
            group, needed = self._next_group()
            if not group:
                return []
            segment = self._segment_for(needed)
            if segment is not None:
                self._append(segment, group)
                crash_points.reach("log-durable")
        if segment is None:
            for job in group:
                self._pool.submit(self._store_without_log, job)
            return []
        for job in group:
            self._make_visible(job, segment)
        crash_points.reach("files-made")
        self._finish_group(segment)
        if needed <= LOOP_BYTES_MAX:
            seconds = min(time.perf_counter() - started, self._hiccup_seconds)
            self._mean_commit_seconds += (seconds - self._mean_commit_seconds) / 8
        return group

    def _append(self, segment: _Segment, group: list[_Job]) -> None:
        try:
            segment.log.append([job.entry for job in group])
        except Exception as error:  # noqa: BLE001 (any error goes to the callers)
            for job in group:
                job.error = self._to_caller_error(error, self._workdir.path)

    def _next_group(self) -> tuple[list[_Job], int]:
        """Take the next group from the queue; return it with the bytes of log that it needs."""
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
        """Return the segment that takes the next group, with that group counted; None while neither has space."""
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
        self._loop.call_soon_threadsafe(self._settle, [job])

    def _to_caller_error(self, error: Exception, path: str, key: str | None = None) -> Exception:
        """Return the error that the caller gets: an `OSError` becomes a `BackendError`."""
        if not isinstance(error, OSError):
            return error
        backend_error = self._root.to_backend_error(error, path, key)
        backend_error.__cause__ = error
        return backend_error

    # ---- rotation: in the pool ----------------------------------------------------------------------------------

    def _finish_group(self, segment: _Segment) -> None:
        """Count a group whose files are made; the last one of a sealed segment begins its checkpoint."""
        with self._state:
            segment.unfinished -= 1
            if segment.sealed and not segment.unfinished:
                self._begin_checkpoint(segment)

    def _seal(self, segment: _Segment) -> None:
        """Let no more groups into *segment*, and checkpoint it once its files are made. The caller holds `_state`."""
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
        """Rotate where a log holds records; call `on_idle` where none does and no job is under way.

        The jobs have to be counted: a group that a thread has taken is neither queued nor among the keys yet, and once
        the logs are discarded, deletions are not logged."""
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
