"""Compaction, the mover, the planner and the sweeper at random, while policies change, places leave, and workers die.

No move may leave an extent with fewer copies that the policy of the moment wants. In the end every object is whole and
lies where the policy wants it, and nothing waits any more. `make soak` runs it: other tests cover each rule alone.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends import errors as backend_errors
from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from backends.testing.memory import Memory
from gateway import errors
from gateway.blocks.commands.rewrite import MoveRewritten
from gateway.blocks.maintenance import rewrites
from gateway.blocks.types import Target, Targets, WriteContext, block_path
from gateway.placement.commands import NameBackendSet
from gateway.reconcile import planner
from tests.clocks import manual_timing
from tests.reconcile.shores import Shores

WAIT_SECONDS = 3_600.0
POLICIES = (("b0",), ("b1",), ("b0", "b1"), ("b1", "b2"), ("b0", "b1", "b2"), ("b2", "b0"))


class World(Shores):
    """A site whose workers do a step at a time, and may be killed at any command. *random* decides all."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        timing, self.clock = manual_timing()
        self.rng = rng
        self.inner = [Memory(f"b{n}") for n in range(3)]
        self.plans = [FaultPlan() for _ in range(3)]
        self.kept = POLICIES[0]
        super().__init__(folder, *map(Faulty, self.inner, self.plans), timing=timing)
        self.topology = replace(self.topology, recheck_seconds=WAIT_SECONDS)
        self.objects: dict[bytes, bytes] = {}
        self.written = self.moved = 0
        self.lied_about: set[bytes] = set()
        self.fewer: list[tuple[set[int], set[int]]] = []
        """Wanted copies of extents before and after a move that left fewer of them."""
        self.kill_in = 0
        """So many commands from now on the workers are killed; 0: not at all."""
        self.killed = asyncio.Event()
        self.send = self.worker_journal.send
        self.worker_journal.send = self.sent  # type: ignore[method-assign]
        self.start_workers()

    def start_workers(self) -> None:
        self.mover, self.planner, self.compactor = self.new_mover(at_once=1), self.new_planner(), self.new_compactor()

    def write_context(self, policy: int = 0) -> WriteContext:
        """Writes wait for the first place of the policy."""
        place = list(self.backends)[int(self.kept[0][1:])]
        set_id = self.committer.run(NameBackendSet((place,)))
        targets = Targets(policy or self.policy, set_id, (Target(self.backends[place], place),), len(self.kept) == 1)
        return WriteContext(self.keys[self.active], targets)

    async def sent(self, command: Any) -> Any:
        if self.kill_in:
            self.kill_in -= 1
            if not self.kill_in:
                if self.rng.random() < 0.5:
                    await self.send(command)
                self.killed.set()
        if self.killed.is_set():
            await asyncio.Event().wait()
        if not isinstance(command, MoveRewritten):
            return await self.send(command)
        before = [self.wanted_copies(copy.before.block) for copy in command.copies]
        moved = await self.send(command)
        if moved:
            self.moved += moved
            after = self.wanted_copies(command.block)
            self.fewer += [(copies, after) for copies in before if not copies <= after]
        return moved

    def wanted_copies(self, block: bytes) -> set[int]:
        """The places that hold a block, by the journal and in fact, and should."""
        rows = self.store.query("SELECT backends, policy FROM block WHERE id = ?", (block,))
        if not rows or not self.targets.refresh():
            return set()
        held = self.lookup.members(rows[0][0])
        wanted = self.targets.desired(rows[0][1], held).intersection(held)
        return {each for each in wanted if block_path(block) in self.inner[self.ids.index(each)]._values}

    async def work(self, steps: int = 60) -> None:
        workers = ("releaser", "compactor", "compactor", "planner", "mover", "mover", "sweeper")
        for _ in range(steps):
            step = asyncio.create_task(getattr(self, self.rng.choice(workers)).step())
            killed = asyncio.create_task(self.killed.wait())
            await asyncio.wait([step, killed], return_when=asyncio.FIRST_COMPLETED)
            if self.killed.is_set():
                await self.die()
            else:
                killed.cancel()
                with suppress(errors.EntrepotError, backend_errors.BackendError):
                    step.result()
            self.mover._again = 0.0

    async def die(self) -> None:
        """All workers are gone, with their memory and session; others start."""
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        del rest
        gc.collect()  # generators that were under way end now, and not later
        self.worker_journal.held.clear()  # a session that ended holds nothing
        self.killed.clear()
        self.end(self.worker_journal)
        self.worker_journal.session = self.client().session
        self.clients[-1] = self.worker_journal
        self.start_workers()

    # ---- what happens to it -----------------------------------------------------------------------------------------

    async def write(self) -> None:
        await asyncio.gather(*(self.write_one() for _ in range(6)), return_exceptions=True)  # they share packs

    async def write_one(self) -> None:
        self.written += 1
        key, data = b"%d" % self.written, self.rng.randbytes(self.rng.randrange(100, 3_000))
        await self.put(key, data)
        self.objects[key] = data

    async def remove(self) -> None:
        for key in self.rng.sample(sorted(self.objects), min(len(self.objects), 4)):
            await self.delete(key)
            del self.objects[key]

    async def change_the_policy(self) -> None:
        self.kept = self.rng.choice(POLICIES)
        self.keep(*self.kept)

    async def leave(self) -> None:
        verb = self.rng.choice([None, "stat", "get", "put", "delete"])
        self.rng.choice(self.plans[1:]).add(Fault(FaultKind.ERROR, verb, error=backend_errors.Unavailable))

    async def come_back(self) -> None:
        for plan in self.plans:
            plan.clear()

    async def kill(self) -> None:
        self.kill_in = self.rng.randrange(1, 12)

    async def lie(self) -> None:
        """One of several copies of a settled block is lost; of each block once."""
        rows = self.store.query(
            "SELECT id, backends FROM block WHERE died = 0 AND id NOT IN (SELECT block FROM work) ORDER BY id"
        )
        held = [(block, self.lookup.members(set_id)) for block, set_id in rows if block not in self.lied_about]
        held = [(block, members) for block, members in held if len(members) > 1]
        if held:
            block, members = self.rng.choice(held)
            self.lied_about.add(block)
            self.inner[self.ids.index(self.rng.choice(members))]._values.pop(block_path(block), None)

    async def let_time_pass(self) -> None:
        self.clock.advance(self.rng.choice([30, 600, 1_900, WAIT_SECONDS + 100]))


@asynccontextmanager
async def world(folder: Path, seed: int) -> AsyncIterator[World]:
    made = World(folder, random.Random(seed))
    yield made
    made.close()


@pytest.mark.soak
@pytest.mark.parametrize("lies", [False, True])
@pytest.mark.parametrize("seed", range(8))
async def test_no_move_costs_a_wanted_copy_and_everything_settles(
    tmp_path: Path, seed: int, lies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrites, "MOVES", 1)
    for name, small in (
        ("SLICE_BLOCKS", 3),
        ("MAX_ROWS", 1),
        ("QUIET_SLICES", 1),
    ):  # so that the planner is long under way
        monkeypatch.setattr(planner, name, small)
    async with world(tmp_path, seed) as site:
        happens = [site.write] * 8 + [site.remove] * 5 + [site.change_the_policy] * 3 + [site.let_time_pass] * 3
        happens += [site.leave, site.come_back, site.come_back, site.kill, site.kill, *([site.lie] if lies else [])]
        for _ in range(120):
            with suppress(errors.EntrepotError, backend_errors.BackendError):
                await site.rng.choice(happens)()
            await site.work(site.rng.randrange(1, 25))
        site.kill_in = 0
        await site.come_back()
        for _ in range(80):
            site.clock.advance(WAIT_SECONDS + 100)
            await site.work()
        assert lies or site.fewer == []
        assert {key: await site.get(key) for key in site.objects} == site.objects
        assert (site.rows("rewrite"), site.work_rows()) == (0, [])
        assert {frozenset(f"b{place}" for place in held) for held in site.held()} <= {frozenset(site.kept)}
        assert site.moved
