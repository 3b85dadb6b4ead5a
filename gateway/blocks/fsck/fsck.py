"""The check of a site: its journal, its tables, and the blocks on every backend.

The quick check verifies that every record of the journal is what was written (`journal_check.py`), that every count in
the tables is right (`table_check.py`), and that every backend has the blocks that the journal names there, with their
sizes (`inventory_check.py`). On request, every copy of every block is read and verified (`frame_check.py`), all tables
are compared with a replay of the journal, and bad copies are reported for repair.

The site may be in use. What seems wrong is looked up once more before it is reported, since a block may have died
meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from backends.base import Backend
from gateway.blocks.fsck.findings import FsckReport
from gateway.blocks.fsck.frame_check import FrameChecker
from gateway.blocks.fsck.inventory_check import InventoryChecker, Mend
from gateway.blocks.fsck.journal_check import check_journal
from gateway.blocks.fsck.table_check import check_tables
from gateway.blocks.maintenance.inventory import DEFAULT_LIMITS, ListingLimits
from gateway.blocks.protocols import Progress, Tables, no_progress
from gateway.crypto.sealing import BlockKeys


async def check_site(
    path: Path,
    store: Tables,
    backends: Mapping[int, Backend],
    *,
    read: BlockKeys | None = None,
    replay: bool = False,
    mend: Mend | None = None,
    progress: Progress = no_progress,
    limits: ListingLimits = DEFAULT_LIMITS,
) -> FsckReport:
    """Check the site whose tables are in the file *path* and are read through *store*.

    *backends*: all of the site's, by id. *read*: the keys to open every frame with; None for the quick check. *replay*:
    compare the tables with a replay of the journal. *mend*: receives each bad copy. *limits*: of each backend's
    listing."""
    report = FsckReport()
    await _in_thread(lambda in_thread: check_journal(path, report, in_thread, replay=replay), progress)
    await _in_thread(lambda in_thread: check_tables(path, report, partial(in_thread, "tables")), progress)
    checker = InventoryChecker(store, backends, report, mend, limits, is_quick=read is None)
    unreachable = await checker.check(progress)
    if read is not None:
        await FrameChecker(store, backends, read, report, mend, unreachable).check(progress)
    checker.report_unreachable(unreachable)
    return report


async def _in_thread(check: Callable[[Progress], None], progress: Progress) -> None:
    """Run *check* in a thread, and pass its progress on to *progress* on the event loop.

    If this is cancelled, the check ends when it next reports progress."""
    loop = asyncio.get_running_loop()
    cancelled = threading.Event()

    def in_thread(what: str, done: int, total: int) -> None:
        if cancelled.is_set():
            raise asyncio.CancelledError
        loop.call_soon_threadsafe(progress, what, done, total)

    try:
        await asyncio.to_thread(check, in_thread)
    finally:
        cancelled.set()
