"""The lock of a journal. The process that holds the `flock` of the lock file is the only one that writes.

The kernel releases the lock when the process ends, however it ends. So no predecessor writes while a successor holds
the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from gateway.errors import Misconfigured
from gateway.journal.paths import JournalPaths


@contextlib.contextmanager
def hold_lock(paths: JournalPaths) -> Iterator[None]:
    """Hold the lock within the context. Raises `Misconfigured` if another process holds it, or if the journal's folder
    does not exist."""
    check_folder(paths)
    handle = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
            raise Misconfigured(f"process {holder} commits to {paths.folder} already") from None
        with contextlib.suppress(OSError):  # on a full disk the lock is held without the holder's pid
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def check_folder(paths: JournalPaths) -> None:
    """Raise `Misconfigured` if the journal's folder does not exist: waiting for a committer would not help."""
    if not paths.folder.is_dir():
        raise Misconfigured(
            f"there is no journal in {paths.folder}: was its disk not mounted, or the folder moved? (the config names "
            "it as `journal.path`; `entrepot init` makes a new site, `entrepot restore` one from a backup)"
        )
