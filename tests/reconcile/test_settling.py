"""Blocks come to lie where they should, whatever changes, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends import errors as backend_errors
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.blocks.types import block_id_of
from gateway.journal.tables import WorkState
from gateway.reconcile import planner as planning
from gateway.reconcile.commands import LoseBackend, SuspectCopy
from gateway.timing import parse_timing
from tests.reconcile.shores import Shores

DATA = random.Random(3).randbytes(9 << 20)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Shores]:
    made = Shores(tmp_path)
    yield made
    made.close()


async def fill(site: Shores) -> None:
    await asyncio.gather(*(site.put(b"small/%d" % n, DATA[n : n + 3_000]) for n in range(20)))
    await site.put(b"large", DATA)


async def check(site: Shores) -> None:
    assert await site.get(b"large") == DATA
    for n in range(20):
        assert await site.get(b"small/%d" % n) == DATA[n : n + 3_000]


async def test_what_was_answered_on_one_backend_comes_to_lie_on_all_that_keep_it(site: Shores) -> None:
    site.keep("b0", "b1")
    await fill(site)
    assert len(site.work_rows()) == len(site.held())
    await site.move()
    first, second, third = await site.copies()
    assert first == second
    assert not third
    assert set(site.held()) == {(0, 1)}
    assert site.work_rows() == []
    site.backends.pop(site.ids[0])
    await check(site)


async def test_what_lies_where_it_should_makes_no_work(site: Shores) -> None:
    site.is_final = True
    await fill(site)
    assert site.work_rows() == []
    await site.settle()
    assert site.mover.copy_maker.new == 0


async def test_another_policy_moves_what_is_there_and_the_old_bytes_go_behind_the_last_reader(site: Shores) -> None:
    site.is_final = True
    await fill(site)
    site.keep("b1")
    with site.journal.reading():
        await site.settle()
        assert set(site.held()) == {(1,)}
        first, second, _ = await site.copies()
        assert first == second, "somebody may still read the old copies"
        assert site.mover.held_back
    await site.move()
    first, second, _ = await site.copies()
    assert not first
    assert second
    assert site.work_rows() == []
    await check(site)


async def test_a_backup_holds_the_old_bytes_too(site: Shores) -> None:
    site.is_final = True
    await fill(site)
    site.keep("b1")
    site.pins = [site.store.head()]
    await site.settle()
    await site.move()
    assert (await site.copies())[0]
    assert {row[2] for row in site.work_rows()} == {"it waits for a backup that names it"}
    site.pins = []
    await site.due_now()
    await site.move()
    assert not (await site.copies())[0]
    assert site.work_rows() == []


async def test_a_reader_who_ends_while_it_is_asked_who_reads_is_not_taken_for_a_backup(
    site: Shores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a backup the old bytes wait for ten minutes."""
    site.is_final = True
    await fill(site)
    site.keep("b1")
    reading = ExitStack()
    reading.enter_context(site.journal.reading())
    await site.settle()
    journal = site.mover._journal
    asked = journal.horizons

    async def horizons(*, pins: bool = True) -> int:
        found = await asked(pins=pins)
        reading.close()
        return found

    monkeypatch.setattr(journal, "horizons", horizons)
    await site.move()
    await site.move()
    assert not (await site.copies())[0]
    assert site.work_rows() == []


async def test_a_backend_that_drains_empties(site: Shores) -> None:
    site.keep("b0", "b1")
    await fill(site)
    await site.move()
    site.drain("b0")
    await site.settle()
    await site.move()
    first, second, third = await site.copies()
    assert not first
    assert second
    assert not third
    site.forget("b0")
    site.keep("b1")
    await site.settle()
    await check(site)


async def test_a_plan_that_changed_back_leaves_everything_where_it_was(site: Shores) -> None:
    site.is_final = True
    await fill(site)
    site.keep("b1")
    await site.plan()
    assert site.work_rows()
    site.keep("b0")
    await site.settle()
    assert site.work_rows() == []
    assert set(site.held()) == {(0,)}
    assert not (await site.copies())[1]


async def test_a_damaged_copy_that_somebody_met_is_mended_from_a_good_one(site: Shores) -> None:
    site.keep("b0", "b1")
    await fill(site)
    await site.move()
    memory = site.places[0]
    for key, value in list(memory._values.items()):
        memory._values[key] = value[:100] + bytes([value[100] ^ 1]) + value[101:]
        await site.journal.send(SuspectCopy(block_id_of(key), site.ids[0], "damaged"))
    await site.move()
    first, second = site.places[0]._values, site.places[1]._values
    assert first == second
    assert site.mover.copy_maker.repaired == len(first)
    assert site.work_rows() == []


async def test_a_good_copy_that_was_suspected_is_left_alone(site: Shores) -> None:
    site.is_final = True
    await fill(site)
    block = block_id_of(next(iter(await site.stored(0))))
    assert await site.journal.send(SuspectCopy(block, site.ids[0], "damaged"))
    assert not await site.journal.send(SuspectCopy(block, site.ids[0], "damaged"))
    await site.move()
    assert site.work_rows() == []
    assert site.mover.copy_maker.repaired == 0


async def lose_only_copy(site: Shores) -> Callable[[], None]:
    """Remove the only copy of a block, and let the mover find that out. Returns what puts the copy back."""
    memory = site.places[0]
    key = next(iter(memory._values))
    kept = memory._values.pop(key)
    await site.journal.send(SuspectCopy(block_id_of(key), site.ids[0], "absent"))
    await site.move()
    return lambda: memory._values.update({key: kept})


async def test_a_block_without_a_good_copy_is_shown_as_lost_and_found_again_when_one_comes_back(site: Shores) -> None:
    site.is_final = True
    await fill(site)
    put_back = await lose_only_copy(site)
    ((state, attempts, word),) = site.work_rows()
    assert (state, attempts, word) == (WorkState.LOST, 1, "no good copy on b0")
    await site.due_now()
    await site.move()
    assert site.work_rows()[0][:2] == (WorkState.LOST, 2), "it is not believed before it is looked at"
    put_back()
    await site.due_now()
    await site.move()
    assert site.work_rows() == []
    await check(site)


async def test_a_damaged_source_is_never_copied_nor_the_good_one_dropped(site: Shores) -> None:
    site.keep("b0", "b1")
    await fill(site)
    await site.move()
    for key, value in list(site.places[1]._values.items()):
        site.places[1]._values[key] = value[:-1] + bytes([value[-1] ^ 1])
    good = dict(site.places[0]._values)
    site.keep("b1")
    await site.settle()
    await site.move()
    assert site.places[1]._values == good
    assert not site.places[0]._values
    await check(site)


async def test_a_lost_backend_s_copies_count_no_more_and_the_others_are_made_again(site: Shores) -> None:
    site.keep("b0", "b1")
    await fill(site)
    await site.move()
    site.keep("b0", "b1", "b2")
    await site.journal.send(LoseBackend("b0"))
    site.backends.pop(site.ids[0])
    await site.settle()
    assert set(site.held()) == {(1, 2)}
    assert site.work_rows() == []
    await check(site)


async def test_a_backend_in_trouble_holds_nobody_up_and_costs_no_records(tmp_path: Path) -> None:
    plan = FaultPlan([Fault(FaultKind.ERROR, verb="put")])
    site = Shores(tmp_path, Memory("b0"), Faulty(Memory("b1"), plan), Memory("b2"))
    site.keep("b0", "b1", "b2")
    await fill(site)
    await site.move()
    assert set(site.held()) == {(0, 2)}
    head = site.store.head()
    await site.move()
    await site.move()
    assert site.store.head() == head
    plan.clear()
    site.mover.health.call_backoff.record_success(site.ids)
    await site.move()
    assert set(site.held()) == {(0, 1, 2)}
    assert site.work_rows() == []
    site.close()


async def test_what_fails_by_itself_is_put_off_longer_each_time_and_set_aside_in_the_end(tmp_path: Path) -> None:
    plan = FaultPlan([Fault(FaultKind.ERROR, verb="put", error=backend_errors.Corrupted)])
    timing = parse_timing("scale=0.01; block_backoff.first_seconds=0")
    site = Shores(tmp_path, Memory("b0"), Faulty(Memory("b1"), plan), timing=timing)
    site.keep("b0", "b1")
    await site.put(b"k", b"x")
    await site.move()
    ((state, attempts, word),) = site.work_rows()
    assert (state, attempts) == (WorkState.ASIDE, 10)
    assert "b1" in word
    site.close()


async def test_what_died_meanwhile_is_the_sweeper_s_on_every_backend(site: Shores) -> None:
    site.keep("b0", "b1")
    await fill(site)
    await site.move()
    await site.put(b"large", b"")
    for n in range(20):
        await site.delete(b"small/%d" % n)
    await site.work()
    assert await site.copies() == [set(), set(), set()]
    assert site.rows("work") == 0


async def test_a_block_that_dies_while_it_is_copied_leaves_no_copy_behind(site: Shores) -> None:
    site.keep("b0", "b1")
    await site.put(b"k", DATA[:1000])
    plan = FaultPlan([Fault(FaultKind.DELAY, verb="put", seconds=0.05)])
    site.backends[site.ids[1]] = Faulty(site.places[1], plan)
    await site.plan()
    moving = asyncio.create_task(site.mover.step())
    while not plan.struck:
        await asyncio.sleep(0)
    await site.delete(b"k")
    await site.work()
    assert (await site.copies())[0], "the sweeper waits for who copies"
    await moving
    await site.move()
    await site.work()
    assert await site.copies() == [set(), set(), set()]
    assert site.rows("work") == 0


async def test_a_walk_goes_on_where_it_was_cut_short(site: Shores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SLICE_BLOCKS", 2)
    monkeypatch.setattr(planning, "MAX_ROWS", 1)
    monkeypatch.setattr("gateway.blocks.write.writer.WHOLE_FROM", 1, raising=False)
    site.is_final = True
    for n in range(6):
        await site.put(b"%d" % n, DATA[: 5 << 20])
    site.keep("b1")
    await site.planner.step()
    await site.planner.step()
    assert 0 < len(site.work_rows()) < len(site.held())
    successor = site.new_planner()
    while await successor.step():
        pass
    assert len(site.work_rows()) == len(site.held())
    assert successor.noted < len(site.held())


changes = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), st.sets(st.sampled_from(["b0", "b1", "b2"]), min_size=1)),
        st.tuples(st.just("drain"), st.sampled_from(["b0", "b1", "b2"])),
        st.tuples(st.just("put"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("plan"), st.none()),
        st.tuples(st.just("move"), st.integers(1, 4)),
        st.tuples(st.just("fault"), st.tuples(st.integers(0, 2), st.sampled_from(["put", "get", "delete"]))),
        st.tuples(st.just("work"), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(changes)
async def test_whatever_changes_and_fails_nothing_is_lost_and_everything_settles(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]
) -> None:
    plans = [FaultPlan() for _ in range(3)]
    places = [Faulty(Memory(f"b{n}"), plan) for n, plan in enumerate(plans)]
    site = Shores(tmp_path_factory.mktemp("site"), *places)
    values: dict[bytes, bytes] = {}
    for number, (what, value) in enumerate(steps):
        match what:
            case "keep":
                site.keep(*sorted(value))
            case "drain":
                others = [each for each in site.topology.policies["all"].keep if each != value]
                site.drain(value, not site.topology.backends[value].drain and any(
                    not site.topology.backends[each].drain for each in others
                ))  # fmt: skip
            case "put" if not plans[0].faults:
                key, data = b"%d" % value, b"%d" % number * 50
                await site.put(key, data)
                values[key] = data
            case "delete":
                if values.pop(b"%d" % value, None) is not None:
                    await site.delete(b"%d" % value)
            case "plan":
                await site.planner.step()
            case "move":
                for _ in range(value):
                    await site.mover.step()
            case "fault":
                place, verb = value
                plans[place].add(Fault(FaultKind.ERROR, verb=verb, times=3))
            case "work":
                for plan in plans:
                    plan.clear()
                await site.work()
    for plan in plans:
        plan.clear()
    site.mover.health.call_backoff.record_success(site.ids)
    await site.settle()
    await site.work()
    await site.move()
    site.mover.health.call_backoff.record_success(site.ids)
    await site.move()
    for key, data in values.items():
        assert await site.get(key) == data
    rows = site.store.query("SELECT policy, backends FROM block WHERE died = 0")
    for policy, set_id in rows:
        members = site.lookup.members(set_id)
        assert site.targets.desired(policy, members) == set(members)
    assert site.work_rows() == []
    kept = {each for (members,) in {(site.lookup.members(set_id),) for _, set_id in rows} for each in members}
    for number, keys in enumerate(await site.copies()):
        assert bool(keys) == (site.ids[number] in kept)
    site.close()


async def test_what_lay_on_a_lost_backend_alone_is_taken_from_there_as_long_as_it_answers(tmp_path: Path) -> None:
    """Written there a moment after it was given up, or given up too early: its copies do not count, but they exist."""
    plan = FaultPlan()
    site = Shores(tmp_path, Faulty(Memory("b0"), plan), Memory("b1"))
    site.is_final = True
    await fill(site)
    await site.journal.send(LoseBackend("b0"))
    site.keep("b0", "b1")
    plan.add(Fault(FaultKind.ERROR, verb="get"))
    await site.settle()
    assert {row[0] for row in site.work_rows()} == {WorkState.LOST}, "who does not answer is not waited for"
    plan.clear()
    await site.due_now()
    site.mover.health.call_backoff.record_success(site.ids)
    await site.settle()
    await site.move()
    assert set(site.held()) == {(1,)}
    site.backends.pop(site.ids[0])
    await check(site)
    site.close()
