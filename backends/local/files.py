"""The system calls of the local driver: files and folders below one root. Blocking; called from its threads.

Everything goes through a descriptor of the root, so that a disk that was unmounted is never mistaken for an empty
one. What the operating system refuses becomes a word of `backends.errors` with the path and what to do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from backends import crash_points, errors
from backends.base import Buffer, size_of
from backends.local.direct_io import DirectWriter
from backends.local.syscalls import OpenCached, SyncFs

CONTROL = ".entrepot"  # the folder for what the driver keeps for itself; no key begins with a dot
IOV_MAX = os.sysconf("SC_IOV_MAX")
SYNC_ALL_FROM = 64  # from so many files on, one syncfs is cheaper than a sync of each
MKDIR_TRIES = 100
DIRECT_BYTES = 256 << 10  # what is synced at once and has so many bytes does not go through the page cache

_WORDS: dict[int, tuple[type[errors.BackendError], str]] = {
    errno.ENOSPC: (errors.Full, "the disk is full; free some space (deletes still work)"),
    errno.EDQUOT: (errors.Full, "the disk quota is used up; raise it or free some space"),
    errno.EFBIG: (errors.Full, "the file is larger than this process or file system may write"),
    errno.EROFS: (errors.ReadOnly, "the file system is read-only; remount it writable"),
    errno.EACCES: (errors.Denied, "permission denied; give this user read, write and search permission there"),
    errno.EPERM: (errors.Denied, "not permitted; check the owner, the mode and the attributes there"),
    errno.ENOENT: (errors.Misconfigured, "it is gone; was the folder removed while in use?"),
    errno.ENOTDIR: (errors.Misconfigured, "part of the path is a file where a folder should be"),
    errno.EISDIR: (errors.Misconfigured, "a folder stands where a value should be"),
    errno.ENAMETOOLONG: (errors.Misconfigured, "the name is too long for this file system"),
    errno.EMFILE: (errors.Unavailable, "too many open files; raise RLIMIT_NOFILE"),
}


GONE = "it is not there any more; was its disk unmounted, or the folder moved?"


class Root:
    """The folder that a local backend lies in. Every method blocks; every path is relative to the root."""

    def __init__(self, path: str, name: str, *, make: bool = True) -> None:
        """*make*: the folder, if only it is missing."""
        self.path = path
        self._stands_at = os.path.abspath(path)
        self.name = name
        self.fd = open_root(path, name, make=make)
        self._sync_all = SyncFs()
        self._open_cached = OpenCached()
        self._direct = DirectWriter()

    def close(self) -> None:
        os.close(self.fd)

    def check_still_at_path(self) -> None:
        """See that this folder is what stands at its path. Raises `Misconfigured` where it is not any more: its disk
        was unmounted, or something was mounted over it, and whoever opens the path next finds something else."""
        held = os.fstat(self.fd)
        try:
            found = os.stat(self._stands_at)
        except FileNotFoundError:
            what = "nothing stands"
        else:
            if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
                return
            what = "another folder stands"
        message = f"{self.path}: {what} there since it was opened: was its disk unmounted, or another one mounted?"
        raise errors.Misconfigured(message, backend=self.name)

    @contextmanager
    def translated(self, path: str, key: str | None = None) -> Iterator[None]:
        """Turn an `OSError` from the calls inside into a `BackendError` about *path*."""
        try:
            yield
        except OSError as error:
            raise self.to_backend_error(error, path, key) from error

    def to_backend_error(self, error: OSError, path: str, key: str | None = None) -> errors.BackendError:
        """The word for what the operating system said about *path*."""
        word, advice = _WORDS.get(error.errno or 0, (errors.Unavailable, error.strerror or str(error)))
        return word(f"{os.path.join(self.path, path)}: {advice}", backend=self.name, key=key)

    def create(self, path: str) -> int:
        """A descriptor of the new, empty file *path*."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.fd)

    def write(self, path: str, value: Sequence[Buffer], *, sync: bool) -> None:
        """Make the new file *path* with *value* in it; with *sync* its bytes are durable. On failure it is gone."""
        self.fill(self.create(path), path, value, sync=sync)

    def fill(self, fd: int, path: str, value: Sequence[Buffer], *, sync: bool) -> None:
        """Write *value* into the empty file *path* and close *fd*; else as `write`."""
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
        """Give the file *temporary* its name *key*, at once and whole, making the folders that lack.

        A delete may take away a folder that it found empty just before the rename: make it again. On failure
        *temporary* is gone.
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
        """Make durable the names in *folders* and in all folders above them, up to the root's own.

        All of them each time: a folder may have been removed and made again by another process, and whether that
        one has synced it is not known here. (Several that do so at once cost little more than one: the file system
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
        """Make durable the files *keys* and their names; one that is gone was deleted and is passed over.

        The caller must know that no writeback of them has failed before: the kernel says so only once.
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
        """(descriptor, size) of a file, for reading."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.fd)
        return fd, os.fstat(fd).st_size

    def open_now(self, path: str) -> int | None:
        """A descriptor as `open`'s, if the kernel has the path at hand, so that nothing is waited for; else None.
        Never raises."""
        return self._open_cached(self.fd, path)

    def names(self, folder: str) -> list[str]:
        """What stands in a folder, in no order."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def remove(self, key: str) -> None:
        """Remove a file and the folders that this leaves empty; what is gone already is fine."""
        with suppress(FileNotFoundError):
            os.unlink(key, dir_fd=self.fd)
        crash_points.reach("file-removed")
        self.remove_empty(key)

    def remove_empty(self, key: str) -> None:
        """Remove the folders above *key* as far as they are empty."""
        with suppress(OSError):
            for folder in reversed(list(folders_of(key))):
                os.rmdir(folder, dir_fd=self.fd)


def open_root(path: str, name: str, *, make: bool) -> int:
    """A descriptor of the folder *path*; *make*: which is made if only it is missing."""
    above = os.path.dirname(os.path.abspath(path))
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        missing = f"its parent {above} does not exist; make it, or mount the disk" if make else GONE
        message = f"{path}: {missing}"
        raise errors.Misconfigured(message, backend=name) from error
    except NotADirectoryError as error:
        message = f"{path}: is a file, or lies below one; a local backend needs a folder"
        raise errors.Misconfigured(message, backend=name) from error
    except OSError as error:
        word, advice = _WORDS.get(error.errno or 0, (errors.Unavailable, error.strerror or str(error)))
        raise word(f"{path}: {advice}", backend=name) from error
    with suppress(OSError):  # who made it may have died before it did this; who may not look there did not make it
        _sync_folder(above)
    return fd


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def folders_of(key: str) -> Iterator[str]:
    """The folders that *key* lies in, the highest first."""
    at = key.find("/")
    while at >= 0:
        yield key[:at]
        at = key.find("/", at + 1)


def write_all(fd: int, value: Sequence[Buffer], at: int) -> None:
    """Write the buffers one after the other from offset *at* on: any number of them, and past short writes."""
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
    """*length* bytes from *start* on, or fewer where the file ends. One system call and no copy as a rule."""
    first = os.pread(fd, length, start)
    if len(first) == length or not first:
        return first
    parts, have = [first], len(first)
    while have < length and (part := os.pread(fd, length - have, start + have)):
        parts.append(part)
        have += len(part)
    return b"".join(parts)
