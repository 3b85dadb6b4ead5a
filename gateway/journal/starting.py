"""For a process that is no gateway: see to it that somebody commits."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from gateway.errors import CommitterGone
from gateway.journal.paths import JournalPaths

START_SECONDS = 10.0


def is_held(folder: Path) -> bool:
    """Whether some process holds the lock of the journal in *folder*."""
    try:
        handle = os.open(JournalPaths(folder).lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


async def ensure_committer(folder: Path, spawn: Callable[[], None]) -> None:
    """If nobody commits to the journal in *folder*, *spawn* a process that does, and wait until it listens.

    Two processes may spawn at once: one of the spawned gets the lock, the other ends. Raises `CommitterGone` if
    nobody listens within some seconds."""
    deadline = time.monotonic() + START_SECONDS
    spawned = False
    while time.monotonic() < deadline:
        if not spawned and not is_held(folder):
            spawn()
            spawned = True
        try:
            _, writer = await asyncio.open_unix_connection(str(JournalPaths(folder).socket()))
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return
    raise CommitterGone(f"no process came to commit to {folder}")
