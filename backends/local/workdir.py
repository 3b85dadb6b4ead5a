"""What one process that writes into a local backend keeps there: a lock, its temporary files, its two intake logs.

A desk is a folder below the control folder. Whoever holds the flock on its `lock` file owns it; the kernel lets go of
that when the owner dies. (A forked child that lives on keeps it: that only puts off the restoring below, and what
was acknowledged is in the page cache then, for a restart of the machine ends the child too.) Desks are found, taken,
restored and removed only under the flock on the control folder's `lock`.

**Restoring.** A log of a desk without owner holds values that were acknowledged and whose files may not have been
synced. `recover` looks at the last word on each key, in the order of the logs' generations; where that is a value,
and the file is missing or has other bytes, it writes the file anew; then it syncs all of them, and only then resets
the logs. Being killed anywhere in this leaves the logs as they were, and doing it twice does no harm. It runs before
a backend answers its first call, and before each listing.

**A deleted value that comes back.** The process that put a value logs its own deletion of it, so its restoring
leaves it out. A deletion by another process (the sweeper) is not in that log, so a value which was put, acknowledged,
deleted by another process, and whose putter died before its log was reset, is written again. That is a leak, never a
wrong answer: keys are drawn at random and nobody names that one any more. It is bounded: at most what two logs hold,
and only values put within the last `log_turn_seconds` or so. And it is found: the putter's session ends by its death,
the sweep that follows lists that session's keys, and a listing first restores every desk without owner, under the
same lock as any other restorer, so it sees whatever a restoring could bring back.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from backends.base import crc32c_of
from backends.local.files import CONTROL, Root, read_all
from backends.local.wal_format import DELETED, StoredWalEntry, WalFile

LOG_NAMES = ("0.log", "1.log")
FREE_DESKS_KEPT = 2  # their filled logs spare the next processes the filling


class WorkDir:
    """A desk that this process owns. All methods block."""

    def __init__(self, root: Root, path: str, lock_fd: int) -> None:
        self._root = root
        self.path = path
        self._lock_fd = lock_fd
        self._count = 0
        self._log_fds: list[int] = []
        self.logs: list[WalFile] = []

    def temporary(self) -> str:
        """A path for a new file that nobody uses."""
        self._count += 1
        return f"{self.path}/new-{self._count}-{secrets.token_hex(4)}"

    def open_logs(self) -> list[WalFile]:
        """The valid ones of the desk's logs, in the order of their generations."""
        for name in LOG_NAMES:
            with suppress(FileNotFoundError):
                self._open_log(f"{self.path}/{name}")
        self.logs.sort(key=lambda log: log.generation)
        return self.logs

    def prepare_logs(self, size: int) -> None:
        """Have two empty logs of *size* bytes; makes them if the desk has none of that size. Raises `OSError`, for
        want of space as a rule, and takes no space then."""
        self._close_logs()
        logs = self.open_logs()
        if len(logs) == len(LOG_NAMES) and all(log.empty and log.size == size for log in logs):
            self._root.sync_folders([self.path])  # who made them may have died before it did
            return
        self._close_logs()
        try:
            for generation, name in enumerate(LOG_NAMES):
                self._make_log(f"{self.path}/{name}", size, generation)
            self._root.sync_folders([self.path])
        except OSError:
            self._close_logs()
            for name in LOG_NAMES:
                self._remove(name)
            raise

    def discard_logs(self) -> None:
        """Give the room of the logs, which must be empty, back to the disk. `prepare_logs` makes others."""
        self._close_logs()
        for name in LOG_NAMES:
            self._remove(name)

    def _make_log(self, path: str, size: int, generation: int) -> None:
        self._remove(os.path.basename(path))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._root.fd)
        self._log_fds.append(fd)
        self.logs.append(WalFile.make(fd, size, generation))

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(f"{self.path}/{name}", dir_fd=self._root.fd)

    def _open_log(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC, dir_fd=self._root.fd)
        self._log_fds.append(fd)
        log = WalFile(fd)
        if log.valid:
            self.logs.append(log)

    def restore(self) -> int:
        """Make durable what the open logs hold, then reset them. Answers how many files it wrote.

        Where the disk is full, the space of a log that holds nothing may be what is needed.
        """
        try:
            return restore(self._root, self.logs, self.temporary)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._give_up_empty_logs():
                raise
            return restore(self._root, self.logs, self.temporary)

    def _give_up_empty_logs(self) -> bool:
        empty = [log for log in self.logs if not log.holds_records()]
        for log in empty:
            log.discard()
            self.logs.remove(log)
        return bool(empty)

    def sweep(self) -> None:
        """Remove the temporary files that a dead owner left."""
        for name in self._root.names(self.path):
            if name.startswith("new-"):
                self._remove(name)

    def remove(self) -> None:
        """Remove the desk, whose logs must be empty; then `release` it."""
        for name in self._root.names(self.path):
            self._remove(name)
        os.rmdir(self.path, dir_fd=self._root.fd)

    def release(self) -> None:
        """Let go of the desk and of its descriptors."""
        self._close_logs()
        os.close(self._lock_fd)

    def _close_logs(self) -> None:
        for fd in self._log_fds:
            os.close(fd)
        self._log_fds.clear()
        self.logs.clear()


def recover(root: Root) -> int:
    """Restore every desk without owner; answers how many files had to be written. Keeps a few, removes the rest."""
    written = 0
    with _all_desks(root):
        kept = 0
        for path in _desk_paths(root):
            desk = _try_own(root, path)
            if desk is None:
                continue
            try:
                desk.open_logs()
                written += desk.restore()
                desk.sweep()
                if kept == FREE_DESKS_KEPT:
                    desk.remove()
                else:
                    kept += 1
            finally:
                desk.release()
    return written


def take(root: Root) -> WorkDir:
    """A desk for this process: a free one, restored, or a new one. Its logs are not open yet."""
    with _all_desks(root):
        for path in _desk_paths(root):
            desk = _try_own(root, path)
            if desk is None:
                continue
            try:
                desk.open_logs()
                desk.restore()
                desk.sweep()
            except BaseException:
                desk.release()
                raise
            return desk
        path = f"{CONTROL}/desk-{secrets.token_hex(8)}"
        os.mkdir(path, 0o700, dir_fd=root.fd)
        made = _try_own(root, path)
        assert made is not None, "nobody else may look while we hold the lock on all desks"
        return made


def unrestored(root: Root) -> list[str]:
    """The keys that a restoring would write, where it cannot run because the file system is read-only."""
    missing: list[str] = []
    for path in _desk_paths(root):
        with ExitStack() as stack:
            logs = []
            for name in LOG_NAMES:
                with suppress(FileNotFoundError):
                    fd, _ = root.open(f"{path}/{name}")
                    stack.callback(os.close, fd)
                    logs.append(WalFile(fd))
            missing += [key for key, (_, found) in _last_words(logs).items() if not _holds(root, key, found)]
    return missing


def restore(root: Root, logs: Sequence[WalFile], temporary: Callable[[], str], *, every: bool = False) -> int:
    """Make durable what *logs* hold, then reset them. Answers how many files it wrote.

    With *every*, which is for an owner who lives, a file that looks right is written anew (after a failed sync the
    page cache may hold what the disk does not), and a missing one was deleted and stays so.
    """
    last = _last_words(logs)
    written = 0
    for key, (log, found) in last.items():
        right = _holds(root, key, found)
        if (right is not None) if every else not right:
            _restore_value(root, key, log, found, temporary())
            written += 1
    root.sync_values(list(last))
    generation = max((log.generation for log in logs), default=0)
    for log in logs:
        if log.holds_records():
            generation += 1
            log.reset(generation)
    return written


def _restore_value(root: Root, key: str, log: WalFile, found: StoredWalEntry, temporary: str) -> None:
    value = log.value(found)
    assert value is not None, "the last words are whole ones"
    root.write(temporary, [value], sync=True)
    root.place(temporary, key)


def _last_words(logs: Sequence[WalFile]) -> dict[str, tuple[WalFile, StoredWalEntry]]:
    """For each key whose last whole record is a value: that record and its log."""
    last: dict[str, tuple[WalFile, StoredWalEntry]] = {}
    for log in sorted(logs, key=lambda log: log.generation):  # an unmade one has no valid record
        for found in log.records():
            if found.kind == DELETED:
                last.pop(found.key, None)
            elif log.value(found) is not None:
                last[found.key] = (log, found)
    return last


def _holds(root: Root, key: str, found: StoredWalEntry) -> bool | None:
    """Whether the file *key* has the bytes of the record; None if there is no file."""
    try:
        fd, size = root.open(key)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return size == found.size and crc32c_of([read_all(fd, 0, size)]) == found.crc32c
    finally:
        os.close(fd)


def _try_own(root: Root, path: str) -> WorkDir | None:
    """The desk at *path*, if nobody owns it. Only under `_all_desks`."""
    fd = os.open(f"{path}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=root.fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return WorkDir(root, path, fd)


@contextmanager
def _all_desks(root: Root) -> Iterator[None]:
    """Hold the lock under which desks are found, taken and removed."""
    fd = os.open(f"{CONTROL}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=root.fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _desk_paths(root: Root) -> list[str]:
    return sorted(f"{CONTROL}/{name}" for name in root.names(CONTROL) if name.startswith("desk-"))
