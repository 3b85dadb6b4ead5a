"""The working directory of one process that writes into a local backend: a lock, temporary files, and two logs.

A working directory is a folder below the control folder. The process that holds the flock on its `lock` file owns it;
the kernel releases the flock when the owner dies. (A forked child that lives on keeps it. That only delays a recovery,
and the acknowledged values are in the page cache then: a restart of the machine ends the child too.) Working
directories are looked up, acquired, restored and removed only under the flock on the control folder's `lock`.

**Recovery.** The logs of a directory without an owner hold values that were acknowledged and whose files may not have
been synced. `recover` takes the last record of each key, in the order of the logs' generations. Where that is a value,
and the file is missing or has other bytes, it writes the file anew. Then it syncs all these files, and only then resets
the logs. To be killed anywhere in this leaves the logs unchanged, and to do it twice is harmless. Recovery runs before
a backend answers its first call, and before each listing.

**A deleted value that comes back.** The process that put a value logs its own deletion of it, so its recovery skips the
value. A deletion by another process (the sweeper) is not in that log, nor is one while neither log has space. So a
value that was put and acknowledged, then deleted by another process, and whose putter died before its log was reset, is
written again. That is a leak, and never a wrong answer: keys are drawn at random, and nothing refers to that one any
more. It is bounded: at most what two logs hold, and only values put within about the last `log_turn_seconds`. And it is
found: the putter's session ends with its death, the sweep that follows lists that session's keys, and a listing first
restores every directory without an owner, under the same lock as any other recovery, so it sees whatever a recovery
could bring back.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress

from backends.base import crc32c_of
from backends.local.files import CONTROL, Root, read_all
from backends.local.wal_format import DELETED, StoredWalEntry, WalFile

LOG_NAMES = ("0.log", "1.log")
FREE_WORKDIRS_KEPT = 2  # kept with their preallocated logs, which the next processes then need not make


class WorkDir:
    """A working directory that this process owns. All methods block."""

    def __init__(self, root: Root, path: str, lock_fd: int) -> None:
        self._root = root
        self.path = path
        self._lock_fd = lock_fd
        self._count = 0
        self._log_fds: list[int] = []
        self.logs: list[WalFile] = []

    def temporary(self) -> str:
        """Return an unused path for a new file."""
        self._count += 1
        return f"{self.path}/new-{self._count}-{secrets.token_hex(4)}"

    def open_logs(self) -> list[WalFile]:
        """Open the valid logs; return them in the order of their generations."""
        for name in LOG_NAMES:
            with suppress(FileNotFoundError):
                self._open_log(f"{self.path}/{name}")
        self.logs.sort(key=lambda log: log.generation)
        return self.logs

    def prepare_logs(self, size: int) -> None:
        """Open two empty logs of *size* bytes; make them where the directory has none of that size.

        Raises `OSError`, usually for lack of space; no space is taken then."""
        self._close_logs()
        logs = self.open_logs()
        if len(logs) == len(LOG_NAMES) and all(log.empty and log.size == size for log in logs):
            self._root.sync_folders([self.path])  # the process that made them may have died before it did this
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
        """Remove the logs, which must be empty, to free their space. `prepare_logs` makes new ones."""
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
        """Make durable what the open logs hold, then reset them. Return the number of files written.

        On a full disk, discard the logs that hold no records, and try again with their space."""
        try:
            return restore(self._root, self.logs, self.temporary)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._discard_empty_logs():
                raise
            return restore(self._root, self.logs, self.temporary)

    def _discard_empty_logs(self) -> bool:
        empty = [log for log in self.logs if not log.holds_records()]
        for log in empty:
            log.discard()
            self.logs.remove(log)
        return bool(empty)

    def remove_temporaries(self) -> None:
        """Remove the temporary files that a dead owner left."""
        for name in self._root.list_names(self.path):
            if name.startswith("new-"):
                self._remove(name)

    def remove(self) -> None:
        """Remove the directory, whose logs must be empty. `release` must follow."""
        for name in self._root.list_names(self.path):
            self._remove(name)
        os.rmdir(self.path, dir_fd=self._root.fd)

    def release(self) -> None:
        """Give up ownership and close all descriptors."""
        self._close_logs()
        os.close(self._lock_fd)

    def _close_logs(self) -> None:
        for fd in self._log_fds:
            os.close(fd)
        self._log_fds.clear()
        self.logs.clear()


def recover(root: Root) -> int:
    """Restore every working directory without an owner; keep `FREE_WORKDIRS_KEPT` of them, and remove the others.

    Return the number of files that had to be written."""
    written = 0
    with _lock_on_all(root):
        kept = 0
        for path in _workdir_paths(root):
            workdir = _try_own(root, path)
            if workdir is None:
                continue
            try:
                workdir.open_logs()
                written += workdir.restore()
                workdir.remove_temporaries()
                if kept == FREE_WORKDIRS_KEPT:
                    workdir.remove()
                else:
                    kept += 1
            finally:
                workdir.release()
    return written


def acquire(root: Root) -> WorkDir:
    """Return a working directory for this process: a free one, restored, or a new one. Its logs are not prepared."""
    with _lock_on_all(root):
        for path in _workdir_paths(root):
            workdir = _try_own(root, path)
            if workdir is None:
                continue
            try:
                workdir.open_logs()
                workdir.restore()
                workdir.remove_temporaries()
            except BaseException:
                workdir.release()
                raise
            return workdir
        path = f"{CONTROL}/desk-{secrets.token_hex(8)}"
        os.mkdir(path, 0o700, dir_fd=root.fd)
        made = _try_own(root, path)
        assert made is not None, "no other process looks while this one holds the lock on all directories"
        return made


def unrestored_keys(root: Root) -> list[str]:
    """Return the keys that a recovery would write, where it cannot run because the file system is read-only."""
    missing: list[str] = []
    for path in _workdir_paths(root):
        with ExitStack() as stack:
            logs = []
            for name in LOG_NAMES:
                with suppress(FileNotFoundError):
                    fd, _ = root.open(f"{path}/{name}")
                    stack.callback(os.close, fd)
                    logs.append(WalFile(fd))
            missing += [key for key, (_, entry) in _last_values(logs).items() if not _file_matches(root, key, entry)]
    return missing


def restore(root: Root, logs: Sequence[WalFile], temporary: Callable[[], str], *, rewrite: bool = False) -> int:
    """Make durable what *logs* hold, then reset them. Return the number of files written.

    *rewrite* is for a living owner: an existing file is written anew even where its bytes look right, since after a
    failed sync the page cache may hold what the disk does not. A missing file was deleted, and is not written.
    """
    last = _last_values(logs)
    written = 0
    for key, (log, entry) in last.items():
        matches = _file_matches(root, key, entry)
        if (matches is not None) if rewrite else not matches:
            _restore_value(root, key, log, entry, temporary())
            written += 1
    root.sync_values(list(last))
    generation = max((log.generation for log in logs), default=0)
    for log in logs:
        if log.holds_records():
            generation += 1
            log.reset(generation)
    return written


def _restore_value(root: Root, key: str, log: WalFile, entry: StoredWalEntry, temporary: str) -> None:
    value = log.value(entry)
    assert value is not None, "_last_values returns only records whose value is whole"
    root.write(temporary, [value], sync=True)
    root.place(temporary, key)


def _last_values(logs: Sequence[WalFile]) -> dict[str, tuple[WalFile, StoredWalEntry]]:
    """Return, for each key whose last whole record is a value, that record and its log."""
    last: dict[str, tuple[WalFile, StoredWalEntry]] = {}
    for log in sorted(logs, key=lambda log: log.generation):  # a log that was not made completely has no records
        for entry in log.records():
            if entry.kind == DELETED:
                last.pop(entry.key, None)
            elif log.value(entry) is not None:
                last[entry.key] = (log, entry)
    return last


def _file_matches(root: Root, key: str, entry: StoredWalEntry) -> bool | None:
    """Return whether the file *key* has the bytes of the record; None if there is no file."""
    try:
        fd, size = root.open(key)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return size == entry.size and crc32c_of([read_all(fd, 0, size)]) == entry.crc32c
    finally:
        os.close(fd)


def _try_own(root: Root, path: str) -> WorkDir | None:
    """Take ownership of the directory *path*; return None if another process owns it. Only under `_lock_on_all`."""
    fd = os.open(f"{path}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=root.fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return WorkDir(root, path, fd)


def _lock_on_all(root: Root) -> AbstractContextManager[None]:
    """Hold the lock under which working directories are looked up, acquired and removed."""
    return root.locked(f"{CONTROL}/lock")


def _workdir_paths(root: Root) -> list[str]:
    return sorted(f"{CONTROL}/{name}" for name in root.list_names(CONTROL) if name.startswith("desk-"))
