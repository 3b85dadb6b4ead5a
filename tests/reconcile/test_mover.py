"""The mover does no more than it knows to be right, asks nobody in vain, and lets go of nothing too early."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.blocks.types import block_id_of
from gateway.journal.tables import WorkState
from gateway.reconcile.commands import Begin, BeginWork, LoseBackend, SuspectCopy
from tests.reconcile.shores import PATIENT, Shores

DATA = b"x" * 100_000


@pytest.fixture
def plans() -> list[FaultPlan]:
    """What goes wrong on each backend."""
    return [FaultPlan() for _ in range(3)]


@pytest.fixture
def site(tmp_path: Path, plans: list[FaultPlan]) -> Iterator[Shores]:
    made = Shores(tmp_path, *(Faulty(Memory(f"b{n}"), plan) for n, plan in enumerate(plans)), timing=PATIENT)
    made.is_final = True
    yield made
    made.close()


def values(site: Shores, place: int) -> dict[str, bytes]:
    """What lies on a backend."""
    inner = site.places[place]._inner  # type: ignore[attr-defined]
    found: dict[str, bytes] = inner._values
    return found


def recover(site: Shores, plans: list[FaultPlan]) -> None:
    """Nothing goes wrong any more, and the mover knows."""
    for plan in plans:
        plan.clear()
    site.mover.health.call_backoff.record_success(site.ids)


async def test_nothing_moves_before_the_planner_has_begun_under_what_should_be_now(site: Shores) -> None:
    site.keep("b0", "b1")
    site.is_final = False
    await site.put(b"k", DATA)
    assert not await site.mover.step()
    assert not values(site, 1)
    await site.move()
    site.keep("b0", "b2")
    site.mover._again = 0.0
    assert not await site.mover.step()
    assert site.held() == [(0, 1)]
    await site.settle()
    assert site.held() == [(0, 2)]


async def test_a_backend_that_does_not_delete_is_left_alone_until_it_rested(
    site: Shores, plans: list[FaultPlan]
) -> None:
    for n in range(3):
        await site.put(b"%d" % n, DATA)
    plans[0].add(Fault(FaultKind.ERROR, verb="delete"))
    site.keep("b1")
    for _ in range(4):
        await site.move()
    assert len(plans[0].struck) <= 3, "those that were under way together"
    assert values(site, 0)
    recover(site, plans)
    await site.move()
    assert not values(site, 0)
    assert site.work_rows() == []


async def test_a_block_whose_backends_rest_is_not_read_again_and_again(site: Shores, plans: list[FaultPlan]) -> None:
    await site.put(b"k", DATA)
    plans[0].add(Fault(FaultKind.DELAY, verb="get", seconds=0.0))  # to be counted
    plans[1].add(Fault(FaultKind.ERROR, verb="put"))
    site.keep("b0", "b1")
    for _ in range(4):
        await site.move()
    assert [verb for verb, *_ in plans[0].struck].count("get") == 1
    assert len(plans[1].struck) == 1


async def test_a_copy_that_a_kill_left_unnamed_is_taken_where_all_others_are_lost(
    site: Shores, plans: list[FaultPlan]
) -> None:
    await site.put(b"k", DATA)
    site.keep("b1")
    await site.plan()
    ((block, before),) = site.store.query("SELECT id, backends FROM block")
    await site.journal.send(BeginWork((Begin(block, before, (site.ids[1],)),)))
    values(site, 1).update(values(site, 0))  # and there it was killed
    await site.journal.send(LoseBackend("b0"))
    site.backends.pop(site.ids[0])
    site.keep("b2")
    plans[2].add(Fault(FaultKind.ERROR, verb="put"))
    await site.settle()
    assert site.held() == [(0,)], "nobody holds it who is known to"
    assert site.ids[2] in site.mover.health.call_backoff
    assert site.work_rows("state") == [(WorkState.WAITING,)]
    recover(site, plans)
    await site.move()
    await site.move()
    assert site.held() == [(2,)]
    assert await site.get(b"k") == DATA
    assert not values(site, 1)
    assert site.work_rows() == []


async def test_a_good_copy_is_kept_until_the_bad_one_that_should_stay_is_mended(
    site: Shores, plans: list[FaultPlan]
) -> None:
    site.keep("b0", "b1")
    site.is_final = False
    await site.put(b"k", DATA)
    await site.move()
    ((key, good),) = values(site, 1).items()
    values(site, 1)[key] = good[:-1] + bytes([good[-1] ^ 1])
    await site.journal.send(SuspectCopy(block_id_of(key), site.ids[1], "damaged"))
    plans[1].add(Fault(FaultKind.ERROR, verb="put"))
    site.keep("b1", "b2")
    await site.settle()
    await site.move()
    assert site.held() == [(0, 1, 2)]
    assert values(site, 0)[key] == values(site, 2)[key] == good
    recover(site, plans)
    await site.move()
    await site.move()
    assert site.held() == [(1, 2)]
    assert values(site, 1)[key] == good
    assert not values(site, 0)
    assert site.work_rows() == []


async def test_a_block_that_was_found_lost_is_not_taken_for_well_where_nothing_is_to_be_moved(site: Shores) -> None:
    await site.put(b"k", DATA)
    ((key, good),) = values(site, 0).items()
    values(site, 0)[key] = good[:-1]
    site.keep("b1")
    await site.settle()
    assert site.work_rows("state") == [(WorkState.LOST,)]
    site.keep("b0")
    await site.settle()
    await site.due_now()
    await site.move()
    assert site.work_rows("state") == [(WorkState.LOST,)]
    values(site, 0)[key] = good
    await site.due_now()
    await site.move()
    assert site.work_rows() == []


async def test_bytes_that_are_held_are_given_back_whatever_became_of_the_copy(
    site: Shores, plans: list[FaultPlan]
) -> None:
    for n in range(5):
        await site.put(b"%d" % n, DATA)
    plans[0].add(Fault(FaultKind.ERROR, verb="get", nth=2))
    plans[1].add(Fault(FaultKind.ERROR, verb="put", nth=2))
    site.keep("b0", "b1")
    mover = site.mover = site.new_mover(bytes_at_once=150_000)
    await site.settle()
    assert 0 < mover._budget.peak <= 150_000
    assert mover._budget.used == 0
    recover(site, plans)
    await site.move()
    assert set(site.held()) == {(0, 1)}
    assert mover._budget.used == 0
