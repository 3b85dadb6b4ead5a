"""The lock of the one supervisor that serves a site. The lock's file tells other processes where it listens."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.errors import Misconfigured
from gateway.timing import Timing

LOCK_NAME = "serve.lock"
TRIES = 5  # a process that only reads (`read_serving`) holds the lock for a moment


class ServeLock:
    """The lock, held. The kernel releases it when its holder dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, folder: Path, timing: Timing) -> ServeLock:
        """Take the lock of the site in *folder*. Raises `Misconfigured`, which names the holder, if it is held."""
        path = _path(folder)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for _ in range(TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(descriptor, 0)
                return cls(descriptor)
            time.sleep(timing.processes.lock_try_seconds)
        os.close(descriptor)
        facts = read_serving(folder)
        where = f" at {facts['endpoint']} (process {facts['pid']})" if facts else ""
        raise Misconfigured(f"{folder} is being served already{where}")

    def publish(self, facts: dict[str, Any]) -> None:
        """Write *facts* about the holder into the lock's file, for `read_serving`."""
        os.pwrite(self._descriptor, json.dumps(facts).encode(), 0)

    def release(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def read_serving(folder: Path) -> dict[str, Any] | None:
    """Return what the supervisor that serves the site has published. None if no supervisor serves it, or it has not
    published anything yet."""
    try:
        descriptor = os.open(_path(folder), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # nobody holds the lock: the content is that of a supervisor that was killed
        raw = os.read(descriptor, 65_536)
        return json.loads(raw) if raw else None
    finally:
        os.close(descriptor)


def is_served(folder: Path) -> bool:
    """Whether a supervisor serves the site, or is starting to."""
    try:
        descriptor = os.open(_path(folder), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _path(folder: Path) -> Path:
    return folder / "run" / LOCK_NAME
