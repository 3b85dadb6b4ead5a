"""A committer in a process of its own: `python -m tests.journal.process FOLDER LEASE_SECONDS RESERVE_BYTES`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gateway.journal.paths import JournalPaths
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.server.server import CommitterSettings, hold_lock, serve
from gateway.journal.session_commands import FoundSite
from gateway.journal.sqlite.store import SqliteStore
from tests.journal.histories import EVERY

LEASE_SECONDS = 30.0


def found(folder: Path) -> None:
    """A journal in *folder*, with nobody committing."""
    paths = JournalPaths(folder)
    with hold_lock(paths):
        store = SqliteStore(paths.database)
        InlineCommitter(store, EVERY).run(FoundSite("ab" * 16, "here"))
        store.close()


def start(
    folder: Path, lease_seconds: float = LEASE_SECONDS, reserve_bytes: int = 1 << 20, idle_exit: float = 0
) -> subprocess.Popen[bytes]:
    """A committer, listening already."""
    command = [sys.executable, "-m", "tests.journal.process", str(folder)]
    process = subprocess.Popen([*command, str(lease_seconds), str(reserve_bytes), str(idle_exit)])
    while process.poll() is None and not _listens(folder, process.pid):
        time.sleep(0.01)
    return process


def _listens(folder: Path, pid: int) -> bool:
    paths = JournalPaths(folder)
    return paths.lock.exists() and paths.lock.read_text().strip() == str(pid) and paths.socket().exists()


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(20)


def main(folder: str, lease_seconds: str, reserve_bytes: str, idle_exit: str) -> None:
    def stop_on(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        loop.add_signal_handler(signal.SIGTERM, stop.set)

    # A predecessor's socket file says nothing of us.
    settings = CommitterSettings(float(lease_seconds), float(idle_exit) or None, reserve_bytes=int(reserve_bytes))
    serve(Path(folder), EVERY, settings, stop_on)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
