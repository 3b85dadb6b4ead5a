"""Work on copies that nobody tries more than once a day any more, tried now: for who has mended what was in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.journal.tables import WorkState
from gateway.reconcile.commands import Fail, FailWork
from gateway.timing import Clock

if TYPE_CHECKING:
    from gateway.blocks.protocols import Tables, WorkerJournal

SLICE = 128


async def retry_failed_work(store: Tables, journal: WorkerJournal, clock: Clock) -> int:
    """Have every block that was set aside, or that is lost, looked at now, as if it had never failed. Answers how many
    there were. One that fails again is set aside again, and one without a good copy is lost again."""
    after, count = b"", 0
    while True:
        rows = store.query(
            "SELECT block, word FROM work WHERE state > 0 AND block > ? ORDER BY block LIMIT ?", (after, SLICE)
        )
        if rows:
            now_ns = clock.wall_ns()
            again = (Fail(block, now_ns, int(WorkState.WAITING), 0, word) for block, word in rows)
            count += await journal.send(FailWork(tuple(again)))
        if len(rows) < SLICE:
            return count
        after = rows[-1][0]
