"""The walk over all blocks: when it begins, when it begins anew, and when it comes again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.journal.tables import WorkState
from gateway.reconcile import planner as planning
from gateway.reconcile.commands import (
    ClearCopies,
    Fail,
    FailWork,
    Finish,
    FinishWork,
    SetBlockHolders,
    SetHolders,
    SuspectCopy,
)
from gateway.timing import Timing
from gateway.topology import BackendPlace
from tests.clocks import AheadClock
from tests.reconcile.shores import Shores

DATA = b"x" * (5 << 20)


PLANNER = Timing().planner


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Shores]:
    made = Shores(tmp_path)
    made.is_final = True
    yield made
    made.close()


@pytest.fixture
def clock(site: Shores) -> AheadClock:
    made = AheadClock()
    site.planner = site.new_planner(Timing(clock=made))
    return made


def walks(site: Shores) -> int:
    ((found,),) = site.store.query("SELECT walks FROM plan")
    return int(found)


async def test_a_second_walk_comes_ten_minutes_later_for_who_did_not_know_and_then_one_a_day(
    site: Shores, clock: AheadClock
) -> None:
    await site.put(b"k", DATA)
    site.keep("b0", "b1")
    await site.plan()
    assert walks(site) == 1
    await site.move()
    await site.put(b"late", DATA)  # by a process under the old policy: all is well, it thinks
    clock.ahead_seconds = PLANNER.second_walk_seconds - 10
    await site.plan()
    assert (walks(site), site.work_rows()) == (1, [])
    clock.ahead_seconds = PLANNER.second_walk_seconds + 10
    await site.plan()
    assert walks(site) == 2
    assert len(site.work_rows()) == 1
    clock.ahead_seconds += PLANNER.daily_walk_seconds - 60
    await site.plan()
    assert walks(site) == 2
    clock.ahead_seconds += 120
    await site.plan()
    assert walks(site) == 3


async def test_what_waits_for_its_next_try_is_tried_at_once_under_other_policies_and_else_left(
    site: Shores, clock: AheadClock
) -> None:
    await site.put(b"k", DATA)
    site.keep("b1")
    await site.plan()
    ((block,),) = site.work_rows("block")
    later = Fail(block, time.time_ns() + 10**15, WorkState.ASIDE, 10, "why")
    await site.journal.send(FailWork((later,)))
    clock.ahead_seconds = PLANNER.second_walk_seconds + 10
    await site.plan()
    assert (walks(site), site.work_rows("due_ns")) == (2, [(later.due_ns,)])
    site.keep("b2")
    await site.plan()
    ((due_ns,),) = site.work_rows("due_ns")
    assert due_ns <= clock.wall_ns()


async def test_nothing_is_planned_or_moved_while_the_config_names_what_the_journal_has_not_met(site: Shores) -> None:
    await site.put(b"k", DATA)
    site.keep("b1")
    known = site.topology
    unknown = BackendPlace("b9", "local", "here", 8, 60.0, False, "/b9")
    site.topology = replace(known, backends={**known.backends, "b9": unknown})
    assert not await site.planner.step()
    assert not await site.mover.step()
    assert site.store.query("SELECT 1 FROM plan") == []
    site.topology = known
    await site.settle()
    assert site.held() == [(1,)]


async def test_a_config_that_changes_there_and_back_in_the_middle_of_a_walk_hides_no_block(
    site: Shores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SLICE_BLOCKS", 1)
    for n in range(3):
        await site.put(b"%d" % n, DATA)
    ((first, before), *_) = site.store.query("SELECT id, backends FROM block ORDER BY id")
    b0, b1, _ = site.ids
    # the first block is said to lie on b1, so the walk goes quietly over that one alone
    await site.journal.send(SuspectCopy(first, b0, "moved by hand"))
    await site.journal.send(SetBlockHolders((SetHolders(first, before, (b0,), (b1,), True),)))
    await site.journal.send(ClearCopies(first, (b0,)))
    ((now,),) = site.store.query("SELECT backends FROM block WHERE id = ?", (first,))
    assert await site.journal.send(FinishWork((Finish(first, now, (b0,)),))) == (True,)

    async def meddle() -> None:
        for name in ("b0", "b1"):
            site.keep(name)
            site.targets.refresh()  # as the mover does
            await asyncio.sleep(0)

    site.keep("b1")
    await asyncio.gather(site.planner.step(), meddle())
    await site.plan()
    assert len(site.work_rows()) == 2
