"""The file operations of the local driver: files and folders below one root. Blocking; called from its threads.

All calls go through a descriptor of the root, so that an unmounted disk is never mistaken for an empty one. An error of
the operating system becomes one of `backends.errors`, with the path and with advice.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from backends import crash_points, errors
from backends.base import Buffer, size_of
from backends.local.direct_io import DirectWriter
from backends.local.syscalls import OpenCached, SyncFs

CONTROL = ".entrepot"  # the folder of the driver's own files; no key begins with a dot
IOV_MAX = os.sysconf("SC_IOV_MAX")
SYNC_ALL_FROM = 64  # number of files from which on one syncfs is cheaper than a sync of each
MKDIR_TRIES = 100
DIRECT_BYTES = 256 << 10  # values of at least this size that are synced at once bypass the page cache

_ERRORS: dict[int, tuple[type[errors.BackendError], str]] = {
    errno.ENOSPC: (errors.Full, "the disk is full; free some space (deletes still work)"),
    errno.EDQUOT: (errors.Full, "the disk quota is used up; raise it or free some space"),
    errno.EFBIG: (errors.Full, "the file is larger than this process or file system may write"),
    errno.EROFS: (errors.ReadOnly, "the file system is read-only; remount it writable"),
    errno.EACCES: (errors.Denied, "permission denied; give this user read, write and search permission there"),
    errno.EPERM: (errors.Denied, "not permitted; check the owner, the mode and the attributes there"),
    errno.ENOENT: (errors.Misconfigured, "it does not exist any more; was the folder removed while in use?"),
    errno.ENOTDIR: (errors.Misconfigured, "part of the path is a file where a folder should be"),
    errno.EISDIR: (errors.Misconfigured, "a folder is where a value should be"),
    errno.ENAMETOOLONG: (errors.Misconfigured, "the name is too long for this file system"),
    errno.EMFILE: (errors.Unavailable, "too many open files; raise RLIMIT_NOFILE"),
}

_MISSING = "it does not exist any more; was its disk unmounted, or the folder moved?"


class Root:
    """The folder of a local backend. Every method blocks; every path is relative to the root."""

    def __init__(self, path: str, name: str, *, make: bool = True) -> None:
        """Open the folder *path*. With *make*, create it where only its last part is missing."""
        self.path = path
        self._absolute_path = os.path.abspath(path)
        self.name = name
        self.fd = open_root(path, name, make=make)
        self._sync_all = SyncFs()
        self._open_cached = OpenCached()
        self._direct = DirectWriter()

    def close(self) -> None:
        os.close(self.fd)

    def check_still_at_path(self) -> None:
        """Check that this folder is still the one at its path. Raises `Misconfigured` where it is not: its disk was
        unmounted, or another one mounted over it, and whoever opens the path next finds something else."""
        opened = os.fstat(self.fd)
        try:
            present = os.stat(self._absolute_path)
        except FileNotFoundError:
            change = "it was removed"
        else:
            if (present.st_dev, present.st_ino) == (opened.st_dev, opened.st_ino):
                return
            change = "another folder replaced it"
        message = f"{self.path}: {change} since it was opened: was its disk unmounted, or another one mounted?"
        raise errors.Misconfigured(message, backend=self.name)

    @contextmanager
    def translated(self, path: str, key: str | None = None) -> Iterator[None]:
        """Turn an `OSError` that is raised inside into a `BackendError` about *path*."""
        try:
            yield
        except OSError as error:
            raise self.to_backend_error(error, path, key) from error

    def to_backend_error(self, error: OSError, path: str, key: str | None = None) -> errors.BackendError:
        """Return the `BackendError` for an error of the operating system about *path*."""
        kind, advice = _ERRORS.get(error.errno or 0, (errors.Unavailable, error.strerror or str(error)))
        return kind(f"{os.path.join(self.path, path)}: {advice}", backend=self.name, key=key)

    def create(self, path: str) -> int:
        """Create the empty file *path*; return a descriptor for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.fd)

    def write(self, path: str, value: Sequence[Buffer], *, sync: bool) -> None:
        """Create the file *path* with *value* in it; with *sync*, its bytes are durable. On failure, remove it."""
        self.fill(self.create(path), path, value, sync=sync)

    def fill(self, fd: int, path: str, value: Sequence[Buffer], *, sync: bool) -> None:
        """Write *value* into the empty file *path* and close *fd*, which writes it; otherwise as `write`."""
        try:
            try:
                if not (sync and size_of(value) >= DIRECT_BYTES and self._direct.write(fd, value)):
                    write_all(fd, value, 0)
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except OSError:
            with suppress(OSError):
                os.unlink(path, dir_fd=self.fd)
            raise

    def place(self, temporary: str, key: str) -> None:
        """Rename the file *temporary* to *key*, atomically; make the folders that are missing.

        A delete may remove a folder that it found empty just before the rename: then make the folder again. On
        failure, remove *temporary*.
        """
        try:
            self._rename(temporary, key)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self.fd)
            raise

    def _rename(self, temporary: str, key: str) -> None:
        for tries_left in reversed(range(MKDIR_TRIES)):
            try:
                os.rename(temporary, key, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            except FileNotFoundError:
                if not tries_left:
                    raise
                self._make_folders(key)
            else:
                return

    def _make_folders(self, key: str) -> None:
        for folder in folders_of(key):
            with suppress(FileExistsError, FileNotFoundError):
                os.mkdir(folder, 0o700, dir_fd=self.fd)

    def sync_folders(self, folders: Iterable[str]) -> None:
        """Make durable the names in *folders* and in all folders above them, up to the root.

        All of them each time: another process may have removed a folder and made it again, and this process does not
        know whether it was synced since. (Several concurrent calls cost little more than one, since the file system
        commits for all of them together. Sharing the syncs here as well was tried, and gained nothing.)
        """
        wanted = {""}
        for folder in folders:
            wanted.add(folder)
            wanted.update(folders_of(folder))
        for folder in sorted(wanted, reverse=True):
            if folder:
                with suppress(FileNotFoundError):
                    self._sync(folder, os.O_DIRECTORY)
            else:
                os.fsync(self.fd)

    def sync_values(self, keys: Sequence[str]) -> None:
        """Make durable the files *keys* and their names. Skip a missing file: it was deleted.

        The caller must know that no writeback of them has failed before: the kernel reports a failure only once.
        """
        if len(keys) >= SYNC_ALL_FROM and self._sync_all(self.fd):
            return
        for key in keys:
            with suppress(FileNotFoundError):
                self._sync(key, 0)
        self.sync_folders({key.rpartition("/")[0] for key in keys})

    def _sync(self, path: str, flags: int) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=self.fd)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def open(self, path: str) -> tuple[int, int]:
        """Open a file for reading; return its descriptor and its size in bytes."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.fd)
        return fd, os.fstat(fd).st_size

    def open_cached(self, path: str) -> int | None:
        """Open a file for reading if the kernel has its path in its caches, so that nothing is waited for; return the
        descriptor, or None. Never raises."""
        return self._open_cached(self.fd, path)

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Hold an exclusive lock (flock(2)) on the file *path*, which is created where it is missing. Wait for it.

        The lock is released by a call, and not by the close alone: a child that another thread forks meanwhile inherits
        the open file, and would keep the lock for as long as it lives."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            os.close(fd)

    def list_names(self, folder: str) -> list[str]:
        """Return the names in a folder, in no order."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def remove(self, key: str) -> None:
        """Remove a file and the folders that this leaves empty. A missing file is no error."""
        with suppress(FileNotFoundError):
            os.unlink(key, dir_fd=self.fd)
        crash_points.reach("file-removed")
        self.remove_empty(key)

    def remove_empty(self, key: str) -> None:
        """Remove the folders above *key*, as far as they are empty."""
        with suppress(OSError):
            for folder in reversed(list(folders_of(key))):
                os.rmdir(folder, dir_fd=self.fd)


def open_root(path: str, name: str, *, make: bool) -> int:
    """Open the folder *path* and return a descriptor. With *make*, create it where only its last part is missing."""
    parent = os.path.dirname(os.path.abspath(path))
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        advice = f"its parent {parent} does not exist; make it, or mount the disk" if make else _MISSING
        message = f"{path}: {advice}"
        raise errors.Misconfigured(message, backend=name) from error
    except NotADirectoryError as error:
        message = f"{path}: it is a file, or is below one; a local backend needs a folder"
        raise errors.Misconfigured(message, backend=name) from error
    except OSError as error:
        kind, advice = _ERRORS.get(error.errno or 0, (errors.Unavailable, error.strerror or str(error)))
        raise kind(f"{path}: {advice}", backend=name) from error
    # The process that made the folder may have died before this. One that may not open the parent did not make it.
    with suppress(OSError):
        _sync_folder(parent)
    return fd


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def folders_of(key: str) -> Iterator[str]:
    """Yield the folders that contain *key*, the outermost first."""
    at = key.find("/")
    while at >= 0:
        yield key[:at]
        at = key.find("/", at + 1)


def write_all(fd: int, value: Sequence[Buffer], at: int) -> None:
    """Write the buffers one after the other from offset *at* on: any number of them, continuing after short writes."""
    left = [memoryview(buffer).cast("B") for buffer in value if len(buffer)]
    while left:
        done = os.pwritev(fd, left[:IOV_MAX], at)
        at += done
        skip = 0
        while skip < len(left) and done >= len(left[skip]):
            done -= len(left[skip])
            skip += 1
        del left[:skip]
        if done:
            left[0] = left[0][done:]


def read_all(fd: int, start: int, length: int) -> Buffer:
    """Read *length* bytes from *start* on, fewer where the file ends. Usually one system call and no copy."""
    first = os.pread(fd, length, start)
    if len(first) == length or not first:
        return first
    parts, have = [first], len(first)
    while have < length and (part := os.pread(fd, length - have, start + have)):
        parts.append(part)
        have += len(part)
    return b"".join(parts)
