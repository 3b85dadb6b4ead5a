"""What is tried daily is tried at once when somebody asks for it."""

from __future__ import annotations

from gateway.journal.tables import WorkState
from gateway.reconcile.commands import Fail, FailWork
from gateway.site.admin.retry_work import retry_failed_work
from tests.reconcile.shores import Shores
from tests.reconcile.test_settling import check, fill, lose_only_copy, site

__all__ = ["site"]


async def test_a_lost_block_whose_copy_came_back_is_found_when_somebody_asks(site: Shores) -> None:
    site.is_final = True
    await fill(site)
    put_back = await lose_only_copy(site)
    assert [state for state, _, _ in site.work_rows()] == [WorkState.LOST]
    assert await retry_failed_work(site.store, site.worker_journal, site.timing.clock) == 1
    await site.move()
    assert site.work_rows() == [(WorkState.LOST, 1, "no good copy on b0")], "it is as lost as it was"
    put_back()
    await site.move()
    assert [state for state, _, _ in site.work_rows()] == [WorkState.LOST], "nobody looks by himself before a day"
    assert await retry_failed_work(site.store, site.worker_journal, site.timing.clock) == 1
    await site.move()
    assert site.work_rows() == []
    await check(site)


async def test_what_was_set_aside_begins_with_its_first_try_and_the_rest_is_left_alone(site: Shores) -> None:
    site.keep("b0", "b1")
    await fill(site)
    blocks = [block for (block,) in site.work_rows("block")]
    later_ns = 1 << 62
    aside = tuple(Fail(block, later_ns, WorkState.ASIDE, 10, "what it was") for block in blocks[:2])
    await site.worker_journal.send(FailWork(aside))
    await site.worker_journal.send(FailWork((Fail(blocks[2], later_ns, WorkState.WAITING, 3, "it waits"),)))
    assert await retry_failed_work(site.store, site.worker_journal, site.timing.clock) == 2
    rows = {block: rest for block, *rest in site.work_rows("block, state, attempts")}
    assert [rows[block] for block in blocks[:3]] == [[0, 0], [0, 0], [0, 3]]
    assert await retry_failed_work(site.store, site.worker_journal, site.timing.clock) == 0
