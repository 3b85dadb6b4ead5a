"""A site in one process whose blocks lie on several backends, and a topology that a test changes at will."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from backends.base import Backend
from backends.testing.memory import Memory
from gateway import reconcile
from gateway.blocks.maintenance.compactor import Compactor
from gateway.blocks.types import Target, Targets, WriteContext
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.placement.commands import NameBackendSet
from gateway.reconcile.commands import Fail, FailWork
from gateway.reconcile.mover import Mover
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.reconcile.planner import Planner
from gateway.timing import Timing, parse_timing
from gateway.topology import BackendPlace, Policy, Topology
from tests.blocks.site import COMMANDS, TIMING, Site

NAMES = ("b0", "b1", "b2")
PATIENCE = "scale=0.01; backend_backoff.first_seconds=3600; backend_backoff.most_seconds=3600"
PATIENT = parse_timing(PATIENCE)
"""A backend that failed is left alone until a test says otherwise."""


class Shores(Site):
    """Backends `b0`, `b1`, …; what is written goes to the first of them, and is kept where `keep` says."""

    def __init__(self, folder: Path, *places: Backend, timing: Timing = TIMING) -> None:
        super().__init__(folder, *(places or [Memory(name) for name in NAMES]), timing=timing)
        self.committer = InlineCommitter(self._sqlite, {**COMMANDS, **reconcile.COMMANDS}, timing=timing)
        self.ids = [number for (number,) in self.store.query("SELECT id FROM backend ORDER BY name")]
        self.first = self.committer.run(NameBackendSet((self.ids[0],)))
        names = [f"b{n}" for n in range(len(self.places))]
        self.topology = Topology(
            home="here",
            clusters={},
            lines={},
            backends={name: BackendPlace(name, "local", "here", 8, 60.0, False, f"/{name}") for name in names},
            policies={"default": Policy("default", ("b0",), ("b0",)), "all": Policy("all", ("b0",), ("b0",))},
            recheck_seconds=0.0,
        )
        self.is_final = False
        """What is written is said to lie where it should."""
        self.targets = PlacementTargets(self.store, lambda: self.topology)
        self.planner = self.new_planner()
        self.mover = self.new_mover()

    def new_planner(self, timing: Timing | None = None) -> Planner:
        return Planner(self.store, self.worker_journal, self.lookup, self.targets, timing=timing or self.timing)

    def new_compactor(self) -> Compactor:
        """One that asks the policies of today where packs should be."""
        return Compactor(
            self.store,
            self.worker_journal,
            self.lookup,
            self.reader,
            self.new_writer(self.worker_journal),
            lambda _, policy, wanted: self.write_context(policy),
            self.targets,
            timing=self.timing,
        )

    def new_mover(self, **options: Any) -> Mover:
        given = {"timing": self.timing} | options
        return Mover(
            self.store, self.worker_journal, self.lookup, self.backends, self.block_keys, self.targets, **given
        )

    def keep(self, *names: str) -> None:
        """From now on."""
        policies = {name: replace(policy, keep=names) for name, policy in self.topology.policies.items()}
        self.topology = replace(self.topology, policies=policies)

    def drain(self, name: str, drain: bool = True) -> None:
        place = replace(self.topology.backends[name], drain=drain)
        self.topology = replace(self.topology, backends={**self.topology.backends, name: place})

    def forget(self, name: str) -> None:
        """The config does not name it any more."""
        rest = {each: place for each, place in self.topology.backends.items() if each != name}
        self.topology = replace(self.topology, backends=rest)

    def write_context(self, policy: int = 0) -> WriteContext:
        copies = (Target(self.backends[self.ids[0]], self.ids[0]),) if hasattr(self, "ids") else ()
        return WriteContext(self.keys[self.active], Targets(policy or self.policy, self.first, copies, self.is_final))

    async def plan(self) -> None:
        while await self.planner.step():
            pass

    async def move(self, mover: Mover | None = None) -> None:
        """Until nothing more can be done now."""
        await self.plan()
        mover = mover or self.mover
        mover._again = 0.0
        while await mover.step():
            mover._again = 0.0

    async def due_now(self) -> None:
        """All that was put off is due, as if time had passed."""
        rows = self.work_rows("block, state, attempts, word")
        await self.journal.send(FailWork(tuple(Fail(block, 0, *rest) for block, *rest in rows)))

    async def settle(self) -> None:
        await self.plan()
        await self.move()

    async def copies(self) -> list[set[str]]:
        """The keys on each backend."""
        return [set(await self.stored(n)) for n in range(len(self.places))]

    def held(self) -> list[tuple[int, ...]]:
        """For each live block, which backends hold it, by their number."""
        rows = self.store.query("SELECT backends FROM block WHERE died = 0 ORDER BY id")
        return [tuple(self.ids.index(each) for each in self.lookup.members(set_id)) for (set_id,) in rows]

    def work_rows(self, columns: str = "state, attempts, word") -> list[Any]:
        return self.store.query(f"SELECT {columns} FROM work ORDER BY block")
