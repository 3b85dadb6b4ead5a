"""Watching a served site bring its blocks where they should be: from outside, through its tables and its processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from gateway.config import load
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.site.paths import journal_folder
from tests.bench.server import Gateway

WITHIN_SECONDS = 600.0
LOOK_SECONDS = 0.02


class Watch:
    """A site's tables, read. A context manager."""

    def __init__(self, site: Path) -> None:
        self._reads = ReadStore(JournalPaths(journal_folder(site, load(site))).database, cache_kib=1_024)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reads.close()

    def rows_of_work(self) -> int:
        return int(self._reads.query_one("SELECT count(*) FROM work")[0])

    def held(self) -> tuple[int, int, int]:
        """Objects, the blocks that they lie in, and the sealed bytes of those."""
        (objects,) = self._reads.query_one("SELECT coalesce(sum(objects), 0) FROM bucket")
        count, size = self._reads.query_one("SELECT count(*), coalesce(sum(size), 0) FROM block WHERE died = 0")
        return int(objects), int(count), int(size)

    def plan(self) -> bytes:
        """What names the policies under which blocks were last walked, or are."""
        found = self._reads.query("SELECT fingerprint FROM plan")
        return found[0][0] if found else b""

    def walked(self) -> bool:
        """All blocks were held against what should be."""
        return bool(self._reads.query("SELECT 1 FROM plan WHERE again_ns > 0"))

    def settled(self, since: bytes = b"") -> bool:
        """All blocks were walked, under other policies than those of *since*, and none has a row of work."""
        found = self._reads.query("SELECT fingerprint, again_ns FROM plan")
        walked = bool(found) and found[0][0] != since and found[0][1] > 0
        return walked and not self._reads.query("SELECT 1 FROM work LIMIT 1")

    def wait(self, ready: Callable[[], object], meanwhile: Callable[[], object] = lambda: None) -> float:
        """Until *ready*; answers when that was, by the monotonic clock. Raises `TimeoutError`."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while not ready():
            meanwhile()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.rows_of_work()} blocks are not where they should be yet")
            time.sleep(LOOK_SECONDS)
        return time.monotonic()


def keeper_of(running: Gateway) -> int:
    """The keeper's process."""
    for pid in running.pids():
        if b"gateway.site.processes.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise RuntimeError("no process of this gateway is its keeper")


def own_memory_mib(pid: int) -> float:
    """What a process holds now and could not drop: without pages of files, which the kernel takes back at will."""
    told = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in told if line.startswith("RssAnon:")) / 1024
