"""Read, write and remove single values of a local backend. Blocking; called from its threads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from backends import crash_points, errors
from backends.base import Buffer, crc32c_of
from backends.local import workdir
from backends.local.files import CONTROL, Root, read_all
from backends.local.wal_format import WalEntry


def prepare(root: Root, *, make: bool = True) -> None:
    """Make the control folder and restore what dead processes left in their logs.

    On a read-only file system, check that nothing is to be restored; raises `ReadOnly` otherwise. Without *make*,
    raises `Misconfigured` for a folder without a control folder."""
    with root.translated(CONTROL):
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(CONTROL, 0o700, dir_fd=root.fd)
            else:
                require_backend(root)
            workdir.recover(root)
        except OSError as error:
            if not isinstance(root.to_backend_error(error, CONTROL), errors.ReadOnly):
                raise
            with suppress(FileNotFoundError):
                if keys := workdir.unrestored_keys(root):
                    message = f"{root.path}: {len(keys)} values have to be restored from a write-ahead log; "
                    raise errors.ReadOnly(message + "mount it writable once", backend=root.name) from error


def require_backend(root: Root) -> None:
    """Raise `Misconfigured` if the folder was never a backend."""
    with root.translated(CONTROL):
        if CONTROL not in root.list_names("."):
            message = (
                f"{root.path}: there is no backend in this folder; is its disk mounted, and is it the right folder?"
            )
            raise errors.Misconfigured(message, backend=root.name)


def verify_checksum(root: Root, entry: WalEntry) -> None:
    """Raise `Corrupted` unless the value has the checksum that the caller gave."""
    if crc32c_of(entry.value) != entry.crc32c:
        raise errors.Corrupted("the value differs from its crc32c", backend=root.name, key=entry.key)


def store(root: Root, own_workdir: workdir.WorkDir, entry: WalEntry) -> None:
    """Store a value without a log: its bytes, its name and its folders, each synced before the next."""
    temporary = own_workdir.temporary()
    with root.translated(entry.key, entry.key):
        root.write(temporary, entry.value, sync=True)
        crash_points.reach("file-written")
        root.place(temporary, entry.key)
        crash_points.reach("file-placed")
        root.sync_folders([entry.key.rpartition("/")[0]])


def store_checked(root: Root, own_workdir: workdir.WorkDir, entry: WalEntry) -> None:
    """Verify the checksum, then `store`."""
    verify_checksum(root, entry)
    store(root, own_workdir, entry)


def open_value(root: Root, key: str) -> tuple[int, int]:
    """Open a value; return its descriptor and its size in bytes. Raises `NotFound`."""
    with _missing_is_not_found(root, key), root.translated(key, key):
        return root.open(key)


def read_range(root: Root, key: str, fd: int, size: int, start: int, length: int | None) -> Buffer:
    """Read exactly that range of an open value. Raises `Corrupted` where the file is shorter."""
    end = size if length is None else start + length
    if not start <= end <= size:
        message = f"{root.path}/{key}: the file has {size} bytes, and {max(start, end)} are needed"
        raise errors.Corrupted(message, backend=root.name, key=key)
    with root.translated(key, key):
        data = read_all(fd, start, end - start)
    if len(data) != end - start:
        raise errors.Corrupted(f"{root.path}/{key}: truncated while it was read", backend=root.name, key=key)
    return data


def size_of_value(root: Root, key: str) -> int:
    """Return a value's size in bytes. Raises `NotFound`."""
    with _missing_is_not_found(root, key), root.translated(key, key):
        return os.stat(key, dir_fd=root.fd).st_size


def remove(root: Root, key: str) -> None:
    """Remove a value, if it exists."""
    with root.translated(key, key):
        root.remove(key)


def sync_names(root: Root, folders: Iterable[str]) -> None:
    """Make the names in *folders* durable."""
    with root.translated(""):
        root.sync_folders(folders)


@contextmanager
def _missing_is_not_found(root: Root, key: str) -> Iterator[None]:
    """Turn `Misconfigured` into `NotFound` where the file of a value is missing."""
    try:
        yield
    except errors.BackendError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise errors.NotFound("no such value", backend=root.name, key=key) from error.__cause__
        raise
