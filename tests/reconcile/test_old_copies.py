"""Old copies of a block that was moved go only after a wait, and only if the new copies are still there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backends.base import Stat
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.blocks.commands.block_copies import NoteStrays
from gateway.blocks.types import block_id_of
from gateway.journal.site_clock import CommitterClock, clock_reader
from gateway.reconcile.commands import LoseBackend, SuspectCopy
from gateway.reconcile.mover import Mover
from gateway.timing import Timing, parse_timing
from gateway.timing.durations import OldCopiesTiming
from tests.clocks import AheadClock
from tests.reconcile.shores import PATIENCE, Shores

DATA = bytes(range(256)) * 400
YEAR_SECONDS = 365 * 24 * 3600.0
WAIT_SECONDS = 3_600.0
TIMING = parse_timing(f"{PATIENCE}; planner.second_walk_seconds=1e9")
"""The blocks are walked again only under other policies."""


class Telling(Memory):
    """Tells the MD5 of what it holds, or what it *claims* that to be."""

    claims = ""

    async def stat(self, key: str) -> Stat:
        found = hashlib.md5(await self.get(key), usedforsecurity=False).hexdigest()
        return Stat((await super().stat(key)).size, self.claims or found)


class Waiting(Shores):
    """Three backends that count what they are asked, a wait of an hour, and a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.plans = [FaultPlan() for _ in range(3)]
        self.inner = [Memory("b0"), Memory("b1"), Telling("b2")]
        self.clock = AheadClock()
        places = [Faulty(inner, plan) for inner, plan in zip(self.inner, self.plans, strict=True)]
        super().__init__(folder, *places, timing=replace(TIMING, clock=self.clock))
        self.topology = replace(self.topology, recheck_seconds=WAIT_SECONDS)
        self.is_final = True
        self.mover = self.restarted()

    def restarted(self, timing: Timing | None = None) -> Mover:
        """A mover of a keeper that has just started."""
        return self.new_mover(timing=timing or self.timing)

    async def later(self, seconds: float) -> None:
        """Let *seconds* pass, and the mover do what is due then."""
        self.clock.ahead_seconds += seconds
        await self.move()

    def values(self, place: int) -> dict[str, bytes]:
        return self.inner[place]._values

    def asked(self, place: int) -> list[str]:
        """What was asked of a backend, of what was to be counted."""
        return [verb for verb, *_ in self.plans[place].struck]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Waiting]:
    made = Waiting(tmp_path)
    yield made
    made.close()


async def moved(site: Waiting, *names: str) -> None:
    """A block of `b0` that should lie on *names* has been put there."""
    await site.put(b"k", DATA)
    site.keep(*names)
    await site.settle()


def lost(values: dict[str, bytes]) -> None:
    values.clear()


def damaged(values: dict[str, bytes]) -> None:
    ((key, value),) = values.items()
    values[key] = value[:-1] + bytes([value[-1] ^ 1])


def cut_short(values: dict[str, bytes]) -> None:
    ((key, value),) = values.items()
    values[key] = value[:-1]


async def test_an_old_copy_stays_and_is_read_until_the_wait_is_over(site: Waiting) -> None:
    await moved(site, "b1")
    await site.later(WAIT_SECONDS - 60)
    assert site.held() == [(0, 1)]
    assert site.values(0) == site.values(1) != {}
    await site.later(120)
    assert site.held() == [(1,)]
    assert not site.values(0)
    assert site.work_rows() == []
    assert await site.get(b"k") == DATA


async def test_a_wall_clock_that_is_put_ahead_does_not_end_the_wait(site: Waiting) -> None:
    CommitterClock(site._sqlite, clock_reader(site.clock))
    await moved(site, "b1")
    await site.later(10 * YEAR_SECONDS)
    assert site.held() == [(0, 1)]
    assert site.values(0) == site.values(1) != {}
    site.clock.slept_seconds += WAIT_SECONDS + 1
    await site.later(WAIT_SECONDS + 1)
    assert site.held() == [(1,)]
    assert not site.values(0)


async def test_a_backend_that_drains_keeps_its_copies_until_the_wait_is_over(site: Waiting) -> None:
    await moved(site, "b0", "b1")
    site.drain("b0")
    await site.settle()
    assert site.held() == [(0, 1)]
    assert site.values(0)
    await site.later(WAIT_SECONDS + 1)
    assert not site.values(0)
    assert site.held() == [(1,)]


@pytest.mark.parametrize("harm", [lost, damaged, cut_short])
async def test_a_copy_that_was_confirmed_and_is_not_there_is_made_again_from_the_old_one(
    site: Waiting, harm: Callable[[dict[str, bytes]], None]
) -> None:
    """A store answers a put by 200 and does not keep the value: the old copy is the only good one."""
    await moved(site, "b1")
    good = dict(site.values(1))
    for _ in range(2):
        harm(site.values(1))
        await site.later(WAIT_SECONDS + 1)
        assert site.values(0) == good, "the only good copy"
        assert site.values(1) == good, "it was put there again"
        assert site.held() == [(0, 1)]
    assert site.mover.vanished == 2
    await site.later(WAIT_SECONDS / 2)
    assert site.values(0), "the wait began again"
    await site.later(WAIT_SECONDS / 2 + 1)
    assert site.held() == [(1,)]
    assert not site.values(0)
    assert await site.get(b"k") == DATA


def when_asked(backend: Memory, act: Callable[[], None]) -> None:
    """Run *act* once when *backend* is asked for the size of a value."""
    stat = backend.stat

    async def act_first(key: str) -> Stat:
        backend.stat = stat  # type: ignore[method-assign]
        act()
        return await stat(key)

    backend.stat = act_first  # type: ignore[method-assign]


async def test_a_policy_that_wants_an_old_copy_again_while_others_are_asked_keeps_it(site: Waiting) -> None:
    await moved(site, "b1")
    site.clock.ahead_seconds += WAIT_SECONDS + 1
    when_asked(site.inner[1], lambda: site.keep("b0", "b1"))
    for _ in range(3):
        await site.mover.step()
    assert site.held() == [(0, 1)], "it was not let go of under the old policy"
    site.plans[0].add(Fault(FaultKind.DELAY, "put", seconds=0.0))  # to be counted
    await site.settle()
    await site.settle()
    assert site.held() == [(0, 1)]
    assert (site.asked(0), site.work_rows()) == ([], [])


async def test_a_policy_that_wants_an_old_copy_again_keeps_its_bytes(site: Waiting) -> None:
    await moved(site, "b1")
    with site.journal.reading():
        await site.later(WAIT_SECONDS + 1)
        assert site.held() == [(1,)]
    bytes_there = dict(site.values(0))
    assert bytes_there
    site.mover = site.restarted()  # which has to ask again
    when_asked(site.inner[1], lambda: site.keep("b0", "b1"))
    for _ in range(3):
        await site.mover.step()
    assert site.values(0) == bytes_there
    await site.settle()
    await site.settle()
    assert site.held() == [(0, 1)]


@pytest.mark.parametrize("place", [1, 2])
async def test_each_backend_that_should_have_a_block_is_asked_again(site: Waiting, place: int) -> None:
    await moved(site, "b1", "b2")
    site.values(place).clear()
    await site.later(WAIT_SECONDS + 1)
    assert site.held() == [(0, 1, 2)]
    assert site.values(0) == site.values(1) == site.values(2) != {}


async def test_an_md5_that_is_told_spares_reading_and_another_one_costs_it(site: Waiting) -> None:
    await moved(site, "b1", "b2")
    site.plans[2].add(Fault(FaultKind.DELAY, seconds=0.0))  # to be counted
    await site.later(WAIT_SECONDS + 1)
    assert site.asked(2) == ["stat"]
    assert site.held() == [(1, 2)]


async def test_an_md5_of_something_else_is_held_against_the_bytes(site: Waiting) -> None:
    """Some servers tell something else in its stead, so a wrong one alone proves nothing."""
    site.inner[2].claims = "0" * 32  # type: ignore[attr-defined]
    await moved(site, "b1", "b2")
    site.plans[2].add(Fault(FaultKind.DELAY, seconds=0.0))
    await site.later(WAIT_SECONDS + 1)
    assert site.asked(2) == ["stat", "get"]
    assert site.held() == [(1, 2)]


async def test_a_damaged_copy_is_found_by_its_md5(site: Waiting) -> None:
    await moved(site, "b1", "b2")
    damaged(site.values(2))
    await site.later(WAIT_SECONDS + 1)
    assert site.held() == [(0, 1, 2)]
    assert site.values(2) == site.values(0)


async def test_a_restart_neither_skips_the_wait_nor_begins_it_again(site: Waiting) -> None:
    await moved(site, "b1")
    await site.later(WAIT_SECONDS / 2)
    site.mover = site.restarted()
    await site.later(WAIT_SECONDS / 4)
    assert site.held() == [(0, 1)]
    site.mover = site.restarted()
    await site.later(WAIT_SECONDS / 4 + 1)
    assert site.held() == [(1,)]
    assert not site.values(0)


async def test_a_block_that_waits_costs_neither_requests_nor_records(site: Waiting) -> None:
    await moved(site, "b1")
    head = site.store.head()
    for plan in site.plans:
        plan.add(Fault(FaultKind.DELAY, seconds=0.0))  # to be counted
    for _ in range(5):
        await site.later(60)
    assert site.store.head() == head
    assert not any(plan.struck for plan in site.plans)
    await site.later(WAIT_SECONDS)
    assert site.asked(1) == ["stat", "get"]
    assert site.asked(0) == ["delete"]


async def test_a_wait_does_not_count_for_a_copy_that_was_made_after_it_began(site: Waiting) -> None:
    await moved(site, "b1")
    await site.later(WAIT_SECONDS / 2)
    site.keep("b2")
    await site.settle()
    await site.later(WAIT_SECONDS / 2 + 60)
    assert site.held() == [(0, 1, 2)]
    await site.later(WAIT_SECONDS / 2)
    assert site.held() == [(2,)]
    assert not site.values(0)
    assert not site.values(1)


async def test_policies_that_change_while_a_block_waits_do_not_shorten_or_restart_its_wait(site: Waiting) -> None:
    await moved(site, "b1")
    await site.later(WAIT_SECONDS / 2)
    site.drain("b2")  # all blocks are looked at again
    await site.settle()
    assert site.held() == [(0, 1)]
    await site.later(WAIT_SECONDS / 2 - 60)
    assert site.held() == [(0, 1)]
    await site.later(120)
    assert site.held() == [(1,)]


async def test_a_wait_that_the_config_shortens_is_over_sooner(site: Waiting) -> None:
    await moved(site, "b1")
    await site.later(60)
    site.topology = replace(site.topology, recheck_seconds=30.0)
    await site.settle()
    assert site.held() == [(1,)]
    assert not site.values(0)


async def test_a_policy_that_takes_the_old_copy_back_ends_the_wait(site: Waiting) -> None:
    await moved(site, "b1")
    site.keep("b0", "b1")
    await site.settle()
    await site.later(WAIT_SECONDS + 1)
    assert site.held() == [(0, 1)]
    assert site.values(0) == site.values(1)
    assert site.work_rows() == []


async def test_an_old_copy_stays_while_a_new_one_cannot_be_asked_for(site: Waiting) -> None:
    await moved(site, "b1")
    site.plans[1].add(Fault(FaultKind.ERROR, verb="stat"))
    await site.later(WAIT_SECONDS + 1)
    head = site.store.head()
    await site.later(60)
    assert site.values(0)
    assert site.held() == [(0, 1)]
    assert site.store.head() == head
    assert len(site.plans[1].struck) == 1, "a backend in trouble is left alone"
    site.plans[1].clear()
    site.mover.health.call_backoff.record_success(site.ids)
    await site.move()
    assert not site.values(0)
    assert site.held() == [(1,)]


async def test_bytes_that_waited_for_readers_are_deleted_only_if_the_new_copy_is_still_there(site: Waiting) -> None:
    site.mover = site.restarted(replace(site.timing, old_copies=OldCopiesTiming(confirmed_seconds=0.0)))
    await moved(site, "b1")
    with site.journal.reading():
        await site.later(WAIT_SECONDS + 1)
        assert site.held() == [(1,)]
        good = dict(site.values(0))
    site.values(1).clear()
    await site.move()
    assert site.values(0) == good, "the only good copy"
    assert site.values(1) == good, "it was put there again"
    await site.later(WAIT_SECONDS / 2)
    assert site.values(0) == good
    await site.later(WAIT_SECONDS / 2 + 1)
    assert not site.values(0)
    assert site.work_rows() == []


async def test_a_copy_that_no_row_named_is_deleted_after_a_wait(site: Waiting) -> None:
    await site.put(b"k", DATA)
    ((key, value),) = site.values(0).items()
    site.values(2)[key] = value
    block = block_id_of(key)
    assert block is not None
    await site.journal.send(NoteStrays(((block, site.ids[2]),)))
    await site.settle()
    assert site.values(2)
    await site.later(WAIT_SECONDS + 1)
    assert not site.values(2)
    assert site.values(0)
    assert site.work_rows() == []


async def test_an_old_copy_that_is_bad_is_not_kept_as_if_it_were_one(site: Waiting) -> None:
    await moved(site, "b0", "b1")
    site.values(0).clear()
    await site.journal.send(SuspectCopy(site.store.query("SELECT id FROM block")[0][0], site.ids[0], "absent"))
    site.keep("b1")
    await site.settle()
    assert site.held() == [(1,)]


async def test_what_lay_on_a_lost_backend_waits_for_nothing(site: Waiting) -> None:
    await moved(site, "b0", "b1")
    await site.journal.send(LoseBackend("b0"))
    await site.settle()
    assert site.held() == [(1,)]
    assert site.work_rows() == []


async def test_other_blocks_are_copied_while_some_wait(site: Waiting) -> None:
    await moved(site, "b1")
    site.is_final = False
    await site.put(b"other", DATA[1:])
    await site.settle()
    assert site.held() == [(0, 1), (0, 1)]
    assert len(site.values(1)) == 2


async def test_a_block_that_dies_while_it_waits_is_deleted_everywhere(site: Waiting) -> None:
    await moved(site, "b1")
    await site.delete(b"k")
    await site.work()
    assert not site.values(0)
    assert not site.values(1)
    assert site.rows("work") == 0
