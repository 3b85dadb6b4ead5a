"""Compaction asks the policies of today: no extent loses a copy that its policy wants, and nothing waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backends import errors as backend_errors
from backends.base import Stat
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway.reconcile.commands import AdvancePlan, LoseBackend
from tests.clocks import manual_timing
from tests.reconcile.shores import Shores

WAIT_SECONDS = 3_600.0
DATA = bytes(range(256)) * 4


async def nothing() -> None:
    pass


class Asked(Memory):
    """Does something once when it is asked for the size of a value."""

    meanwhile: Callable[[], Awaitable[None]] = staticmethod(nothing)

    async def stat(self, key: str) -> Stat:
        meanwhile, self.meanwhile = self.meanwhile, nothing
        await meanwhile()
        return await super().stat(key)


class Compacting(Shores):
    """One pack, of whose ten objects two live; a wait of an hour, by a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        timing, self.clock = manual_timing("planner.second_walk_seconds=1e9")
        self.inner = [Asked("b0"), Asked("b1"), Asked("b2")]
        self.away = [FaultPlan(), FaultPlan(), FaultPlan()]
        super().__init__(folder, *map(Faulty, self.inner, self.away), timing=timing)
        self.topology = replace(self.topology, recheck_seconds=WAIT_SECONDS)
        self.is_final = True
        self.compactor = self.new_compactor()

    async def fill(self) -> None:
        await asyncio.gather(*(self.put(b"%d" % n, DATA * (n + 1)) for n in range(10)))
        ((self.old,),) = self.store.query("SELECT id FROM block")

    async def empty(self) -> None:
        """Delete most of it, and let the compactor write the pack anew."""
        for n in range(8):
            await self.delete(b"%d" % n)
        await self.settle()
        await self.compact()

    async def compact(self) -> None:
        while any([await worker.step() for worker in (self.releaser, self.compactor)]):
            pass
        await self.compactor._writer.close()

    async def settle(self) -> None:
        await self.plan()
        self.clock.advance(1)  # what was noted is due
        await self.move()

    async def later(self, seconds: float) -> None:
        """Let *seconds* pass, and the compactor do what is due then."""
        self.clock.advance(seconds)
        await self.compact()

    async def leave(self, place: int) -> None:
        """The place answers nothing any more."""
        self.away[place].add(Fault(FaultKind.ERROR, error=backend_errors.Unavailable))

    async def bring_the_old_pack(self) -> None:
        """The planner has come as far as the old pack, and the mover brings it where the policy wants it."""
        self.targets.refresh()
        plan = AdvancePlan(self.targets.fingerprint, b"", self.old, 0, 0, (self.old,), 0)
        assert await self.journal.send(plan)
        while await self.mover.step():
            pass
        assert self.held_by(self.old) == (0, 1)

    def held_by(self, block: bytes) -> tuple[int, ...]:
        ((set_id,),) = self.store.query("SELECT backends FROM block WHERE id = ?", (block,))
        return tuple(self.ids.index(each) for each in self.lookup.members(set_id))

    def places_of(self) -> list[tuple[int, ...]]:
        """Where the packs are that runs lie in."""
        rows = self.store.query("SELECT DISTINCT block FROM member")
        return [self.held_by(block) for (block,) in rows]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Compacting]:
    made = Compacting(tmp_path)
    await made.fill()
    yield made
    made.close()


async def all_is_read(site: Compacting) -> bool:
    return [await site.get(b"%d" % n) for n in (8, 9)] == [DATA * 9, DATA * 10]


async def test_extents_stay_in_an_old_pack_that_has_copies_which_the_new_one_still_lacks(site: Compacting) -> None:
    await site.empty()
    await site.later(WAIT_SECONDS - 60)
    site.keep("b0", "b1")
    await site.bring_the_old_pack()
    await site.later(120)
    await site.later(WAIT_SECONDS)
    assert site.compactor.moved == 0
    assert site.places_of() == [(0, 1)]
    await site.settle()  # the planner comes to the new pack, and the mover brings it
    await site.later(60)
    await site.later(WAIT_SECONDS - 60)
    assert site.compactor.moved == 0, "the wait began again with the new copy"
    await site.later(120)
    assert site.compactor.moved == 2
    assert site.places_of() == [(0, 1)]
    assert await all_is_read(site)


async def test_extents_stay_in_the_old_pack_while_the_planner_has_not_come_to_the_new_one(site: Compacting) -> None:
    await site.empty()
    site.keep("b0", "b1")
    await site.later(2 * WAIT_SECONDS)
    assert site.compactor.moved == 0
    await site.settle()
    for _ in range(2):
        await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 2
    assert site.places_of() == [(0, 1)]


async def test_a_policy_that_changes_while_a_new_pack_is_confirmed_stops_the_move(site: Compacting) -> None:
    await site.empty()

    async def change() -> None:
        site.keep("b0", "b1")
        await site.bring_the_old_pack()

    site.inner[0].meanwhile = change
    await site.later(WAIT_SECONDS + 60)
    assert site.held_by(site.old) == (0, 1)
    assert site.compactor.moved == 0
    assert site.places_of() == [(0, 1)]
    await site.settle()
    for _ in range(2):
        await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 2


async def test_a_place_that_is_away_holds_up_nothing_that_has_no_copy_there(site: Compacting) -> None:
    await site.leave(1)
    site.keep("b0", "b1")
    site.is_final = False
    await site.settle()
    await site.empty()
    await site.settle()
    assert site.rows("work") >= 1, "the copies on the other place are still to be made"
    await site.later(60)
    await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 2
    site.away[1].clear()
    site.clock.advance(WAIT_SECONDS)
    await site.move()
    assert site.places_of() == [(0, 1)]
    assert await all_is_read(site)


async def test_a_copy_on_a_place_that_is_away_is_given_up_only_once_the_place_is(site: Compacting) -> None:
    site.keep("b0", "b1")
    await site.settle()
    await site.leave(1)
    site.is_final = False
    await site.empty()
    for _ in range(3):
        await site.later(WAIT_SECONDS + 60)
        await site.move()
    assert site.compactor.moved == 0
    assert site.places_of() == [(0, 1)]
    await site.journal.send(LoseBackend("b1"))
    await site.settle()
    for _ in range(2):
        await site.later(WAIT_SECONDS + 60)
    assert site.compactor.moved == 2
    assert await all_is_read(site)


async def test_extents_stay_in_an_old_pack_of_which_more_copies_exist_than_of_the_new_one(site: Compacting) -> None:
    site.keep("b0", "b1")
    await site.settle()
    site.is_final = False
    await site.leave(2)
    site.keep("b0", "b2")  # the copy on b1 is kept until b2 has one
    await site.settle()
    assert site.held_by(site.old) == (0, 1)
    await site.empty()
    for _ in range(3):
        await site.later(WAIT_SECONDS + 60)
        await site.move()
    assert site.places_of() == [(0, 1)]
    assert site.compactor.moved == 0
    site.away[2].clear()
    for _ in range(4):
        await site.later(WAIT_SECONDS + 60)
        await site.move()
    assert site.compactor.moved == 2
    assert site.places_of() == [(0, 2)]
    assert await all_is_read(site)


async def test_a_new_pack_that_nobody_brings_where_the_old_one_is_wanted_is_given_up(site: Compacting) -> None:
    site.keep("b0", "b1")
    await site.settle()
    rest = {name: policy for name, policy in site.topology.policies.items() if name != "all"}
    site.topology = replace(site.topology, policies=rest)  # what was written under it stays where it is
    await site.empty()
    assert site.rows("rewrite") == 0
    await site.later(2 * WAIT_SECONDS)
    assert site.compactor.moved == 0
    assert site.places_of() == [(0, 1)]
    assert await all_is_read(site)
