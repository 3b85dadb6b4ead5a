"""The site's lock. One process holds the `flock` of the lock file, and it alone writes.

The kernel drops the lock with the process, however it ends; so a successor never meets a predecessor that still
writes.
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
    """The site's lock, for as long as the block runs. Raises `Misconfigured` if another process holds it, or
    there is no journal's folder."""
    check_folder(paths)
    handle = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
            raise Misconfigured(f"process {holder} commits to {paths.folder} already") from None
        with contextlib.suppress(OSError):  # on a full disk the lock is held all the same, by nobody knows whom
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def check_folder(paths: JournalPaths) -> None:
    """Raise `Misconfigured` where there is no journal's folder: waiting for one would not help."""
    if not paths.folder.is_dir():
        raise Misconfigured(
            f"there is no journal in {paths.folder}: was its disk not mounted, or the folder moved? (the config names "
            "it as `journal.path`; `entrepot init` makes a new site, `entrepot restore` one from a backup)"
        )
