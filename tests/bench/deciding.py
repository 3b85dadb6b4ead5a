"""What reconcile does where no bytes are waited for: blocks a second that the planner holds against what should be,
that get their row of work, that are brought where they should be; and the keeper's memory by how long its backlog is.

The planner and the mover are the site's own, over its SQLite store, with a committer in a process of its own; the
backends of the mover's row are in memory. A figure a second of the planner's has its pauses in it, by which it leaves
the committer to others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import uvloop

from backends.base import Backend
from backends.local.backend import Local
from backends.testing.memory import Memory
from gateway.blocks.types import block_path
from gateway.crypto.sealing import Sealed
from gateway.reconcile.mover import Mover
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.reconcile.planner import Planner
from gateway.site.site import Site
from gateway.topology import Topology
from tests.bench.ceilings import scratch_folder
from tests.bench.cloud import Running, cloud
from tests.bench.places import Kept, make_site, stock, write_config
from tests.bench.plan import Plan
from tests.bench.server import gateway
from tests.bench.settling import Watch, keeper_of, own_memory_mib
from tests.bench.table import Row
from tests.endpoint import run_entrepot

SETTLED = "reconcile decides: settled blocks looked at"
NOTED = "reconcile decides: blocks given their row of work"
SETTLING = "reconcile decides: copies begun and settled, bytes aside"
MEMORY = "keeper's memory, a backlog of N beside one of 10 N"
PLACES = {"second": ""}
HERE = {"default": Kept(["disk"], ["disk"])}
BOTH = {"default": Kept(["disk"], ["disk", "second"])}


def rows(plan: Plan) -> list[Row]:
    made = []
    if any(plan.wants(name) for name in (SETTLED, NOTED, SETTLING)):
        with scratch_folder() as folder:
            made += _decisions(plan, Path(folder) / "site")
    if plan.wants(MEMORY):
        made.append(_memory(plan))
    return made


def _decisions(plan: Plan, site: Path) -> list[Row]:
    """The first blocks have bytes, in memory; the many behind them are names alone."""
    near = Memory("disk")
    make_site(site, PLACES, BOTH)
    stock(site, plan.keys, put=lambda sealed: _put(near, sealed))
    stock(site, 10 * plan.keys, per_object=4_000)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        made = runner.run(_measured(plan, site, near))
    return [row for row in made if plan.wants(row.name)]


async def _measured(plan: Plan, site_folder: Path, near: Memory) -> list[Row]:
    looked, noted, settled = (
        Row(name, "blocks/s", "", aim) for name, aim in ((SETTLED, 100_000), (NOTED, 5_000), (SETTLING, None))
    )
    async with await Site.open(site_folder, kind="cli") as site:
        both = site.storage.topology
        wanted = [_only_here(both)]
        targets = PlacementTargets(site.store, lambda: wanted[0])
        planner = Planner(site.store, site.journal, site.storage.lookup, targets, timing=site.timing)
        for nth in range(plan.runs):
            wanted[0] = _only_here(both, drained=bool(nth % 2))
            looked.measured.append(await _rate(planner.step, lambda: 0, 11 * plan.keys))
        wanted[0] = both
        for nth in range(1, plan.runs + 1):
            noted.measured.append(await _rate(planner.step, lambda: planner.noted, nth * plan.keys))
        backends: dict[int, Backend] = {site.store.query_one("SELECT id FROM backend WHERE name = 'disk'")[0]: near}
        backends[site.store.query_one("SELECT id FROM backend WHERE name = 'second'")[0]] = Memory("second")
        mover = Mover(
            site.store, site.journal, site.storage.lookup, backends, site.storage.keys, targets, timing=site.timing
        )
        few = plan.keys // (plan.runs + 1)  # so that it never comes to those without bytes
        for nth in range(1, plan.runs + 1):
            settled.measured.append(await _rate(mover.step, lambda: mover.copy_maker.new, nth * few))
        for task in mover._under_way.values():
            task.cancel()
        await asyncio.gather(*mover._under_way.values(), return_exceptions=True)
    return [looked, noted, settled]


async def _rate(step: Callable[[], Awaitable[bool]], done: Callable[[], int], until: int) -> float:
    """Blocks a second, in steps, until so many are *done*, or nothing is left to do."""
    before, started = done(), time.perf_counter()
    while await step() and done() < until:
        pass
    return ((done() or until) - before) / (time.perf_counter() - started)


def _only_here(both: Topology, *, drained: bool = False) -> Topology:
    """Nothing is kept on the second place, whether that drains or not: each is news to the planner."""
    policies = {name: replace(policy, keep=("disk",)) for name, policy in both.policies.items()}
    second = replace(both.backends["second"], drain=drained)
    return replace(both, policies=policies, backends={**both.backends, "second": second})


async def _put(backend: Backend, sealed: Sealed) -> None:
    await backend.put(block_path(sealed.block_id), sealed.buffers, sealed.crc32c)


def _memory(plan: Plan) -> Row:
    few = max(100, plan.keys // 4)
    row = Row(MEMORY, "MiB", "the same at ten times as long a backlog", 0.9)
    with cloud() as far:
        row.measured.append(_peak_mib(few, far))
        row.ceiling.append(_peak_mib(10 * few, far))
    row.note = f"N = {few:,} blocks that go to a bucket, more than caches hold; without pages of files"
    return row


def _peak_mib(blocks: int, far: Running) -> float:
    """The most that a keeper held while it worked off a backlog of so many blocks."""
    with scratch_folder() as folder:
        site = Path(folder) / "site"
        places = {f"far{blocks}": far.url}
        make_site(site, places, HERE)
        _stock_on_disk(site, blocks)
        with gateway(Path(folder)) as running, Watch(site) as watch:
            watch.wait(watch.settled)
            keeper, before = keeper_of(running), watch.plan()
            write_config(site, places, {"default": Kept(["disk"], ["disk", *places])})
            run_entrepot("reload", str(site))
            most = [0.0]

            def look() -> None:
                most[0] = max(most[0], own_memory_mib(keeper))

            watch.wait(lambda: watch.settled(before), look)
            look()
    return most[0]


def _stock_on_disk(site: Path, blocks: int) -> None:
    """All of them have their bytes in the site's folder."""
    with asyncio.Runner() as runner:
        disk = runner.run(Local.open(str(site / "blocks"), wal_bytes=0))

        async def put(sealed: Sealed) -> None:
            await _put(disk, sealed)

        stock(site, blocks, put=put, runner=runner)
        runner.run(disk.close())
