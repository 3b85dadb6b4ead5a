"""The values of a local backend: one at a time, read, written and removed. Blocking; called from its threads."""

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
    """Make the control folder and restore what the dead left behind; on a read-only disk see that there is nothing.
    Without *make* a folder that has none is refused."""
    with root.translated(CONTROL):
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(CONTROL, 0o700, dir_fd=root.fd)
            elif CONTROL not in root.names("."):
                message = f"{root.path}: no backend lies there; is its disk mounted, is it the right folder?"
                raise errors.Misconfigured(message, backend=root.name)
            workdir.recover(root)
        except OSError as error:
            if not isinstance(root.to_backend_error(error, CONTROL), errors.ReadOnly):
                raise
            with suppress(FileNotFoundError):
                if keys := workdir.unrestored(root):
                    message = f"{root.path}: {len(keys)} values are to be restored from an intake log; "
                    raise errors.ReadOnly(message + "mount it writable once", backend=root.name) from error


def check_sum(root: Root, entry: WalEntry) -> None:
    """Raise `Corrupted` unless the value has the checksum that it was given with."""
    if crc32c_of(entry.value) != entry.crc32c:
        raise errors.Corrupted("the value differs from its crc32c", backend=root.name, key=entry.key)


def store(root: Root, own: workdir.WorkDir, entry: WalEntry) -> None:
    """Store a value the plain way: bytes, name, folders, each synced before the next."""
    temporary = own.temporary()
    with root.translated(entry.key, entry.key):
        root.write(temporary, entry.value, sync=True)
        crash_points.reach("file-written")
        root.place(temporary, entry.key)
        crash_points.reach("file-placed")
        root.sync_folders([entry.key.rpartition("/")[0]])


def store_checked(root: Root, own: workdir.WorkDir, entry: WalEntry) -> None:
    """`check_sum`, then `store`."""
    check_sum(root, entry)
    store(root, own, entry)


def open_value(root: Root, key: str) -> tuple[int, int]:
    """(descriptor, size) of a value, or `NotFound`."""
    with _absence(root, key), root.translated(key, key):
        return root.open(key)


def read_range(root: Root, key: str, fd: int, size: int, start: int, length: int | None) -> Buffer:
    """Exactly that range of an open value, or `Corrupted`."""
    end = size if length is None else start + length
    if not start <= end <= size:
        message = f"{root.path}/{key}: {size} bytes end before {max(start, end)}"
        raise errors.Corrupted(message, backend=root.name, key=key)
    with root.translated(key, key):
        data = read_all(fd, start, end - start)
    if len(data) != end - start:
        raise errors.Corrupted(f"{root.path}/{key}: cut short while it was read", backend=root.name, key=key)
    return data


def size_of_value(root: Root, key: str) -> int:
    """A value's size in bytes, or `NotFound`."""
    with _absence(root, key), root.translated(key, key):
        return os.stat(key, dir_fd=root.fd).st_size


def remove(root: Root, key: str) -> None:
    """Remove a value, if it is there."""
    with root.translated(key, key):
        root.remove(key)


def sync_names(root: Root, folders: Iterable[str]) -> None:
    """Make durable which names stand in *folders*."""
    with root.translated(""):
        root.sync_folders(folders)


@contextmanager
def _absence(root: Root, key: str) -> Iterator[None]:
    """Where a value is looked for, a missing file is no mistake of the configuration."""
    try:
        yield
    except errors.BackendError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise errors.NotFound("no such value", backend=root.name, key=key) from error.__cause__
        raise
