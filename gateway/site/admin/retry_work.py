"""Retry the background work on blocks that is otherwise retried once a day: for operators who removed its obstacle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.journal.tables import WorkState
from gateway.reconcile.commands import Fail, FailWork
from gateway.timing import Clock

if TYPE_CHECKING:
    from gateway.blocks.protocols import Tables, WorkerJournal

BATCH_BLOCKS = 128
"""Blocks that one command resets."""


async def retry_failed_work(store: Tables, journal: WorkerJournal, clock: Clock) -> int:
    """Reset the work on every block that was set aside or is lost, so that it is due now with no failed attempts.
    Returns the number of these blocks. If the work fails again, the block is set aside or lost again."""
    after, count = b"", 0
    while True:
        rows = store.query(
            "SELECT block, word FROM work WHERE state > 0 AND block > ? ORDER BY block LIMIT ?", (after, BATCH_BLOCKS)
        )
        if rows:
            now_ns = clock.wall_ns()
            resets = (Fail(block, now_ns, int(WorkState.WAITING), 0, word) for block, word in rows)
            count += await journal.send(FailWork(tuple(resets)))
        if len(rows) < BATCH_BLOCKS:
            return count
        after = rows[-1][0]
