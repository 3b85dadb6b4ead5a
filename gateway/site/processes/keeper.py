"""The keeper's process: takes apart what was let go of, sweeps, compacts, lets uploads expire; and answers probes.

It follows the journal; nobody calls it. All that it does is idempotent, so it may be killed anywhere.
"""

from __future__ import annotations

import asyncio

from gateway.blocks.maintenance.compactor import Compactor
from gateway.blocks.maintenance.expiry import Expiry
from gateway.blocks.maintenance.sweeper import Sweeper
from gateway.blocks.maintenance.worker import Worker
from gateway.config import Config
from gateway.metrics import counter, gauge
from gateway.metrics.json_log import INFO
from gateway.reconcile.mover import Mover
from gateway.reconcile.planner import Planner
from gateway.site.admin.key_rotation import renew_if_the_mode_changed
from gateway.site.admin.maintenance import expire_seconds, workers_of
from gateway.site.processes.child import Child, run_child
from gateway.site.processes.control_channel import Message
from gateway.site.processes.priority import give_way
from gateway.site.processes.readiness import Probing
from gateway.site.processes.reload_checks import (
    answer_supervisor,
    see_that_none_is_missing,
    see_that_none_is_needed,
    see_that_none_was_lost,
)
from gateway.site.processes.replication_metrics import count_copies
from gateway.site.site import Site
from gateway.site.storage.refusals import TemporarilyRejected
from gateway.site.storage.registration import keep_registering, register_backends

NICENESS = 10
"""Of this process: where processors are scarce, those that answer requests come first, and this one still gets on."""
BACKLOG_MAX = 100_000
"""Counting stops there."""

BACKLOG = gauge("entrepot_backlog", "What waits for the keeper, counted up to 100,000.", ("kind",))
WAITING = gauge("entrepot_copies_waiting", "1 while copies wait, since a backend is in trouble.", ("backend",))
DONE = counter("entrepot_keeper_done_total", "What the keeper did.", ("kind",))
_COUNTS = {
    "freed": "SELECT count(*) FROM (SELECT 1 FROM freed LIMIT ?)",
    "uploads of gone buckets": "SELECT min((SELECT coalesce(sum(uploads), 0) FROM gone), ?)",
    "dead blocks": "SELECT count(*) FROM (SELECT 1 FROM block WHERE died > 0 LIMIT ?)",
    "ended sessions": "SELECT count(*) FROM (SELECT 1 FROM session WHERE state = 1 LIMIT ?)",
}


async def keep(child: Child) -> None:
    """Keep house until told to stop."""
    async with await Site.open(child.folder, kind="keeper", strict=not child.again, timing=child.timing) as site:
        if not child.again:
            await see_that_none_is_missing(site.storage.topology, site.journal_path)
        if await renew_if_the_mode_changed(site):
            child.log(INFO, "a new ring key, for the mode that the config asks for", mode=site.config.sealing.mode)
        workers = workers_of(site)
        answer_supervisor(child, site)
        child.adopt = lambda config: adopt(site, workers, config)
        storage = site.storage
        probing = Probing(site.journal, site.store, storage.backends, lambda: storage.topology, site.timing)
        child.answers["probe"] = lambda _: probing.probe()
        child.answers["prepare"] = lambda message: prepare(site, child, message)
        child.before_report = lambda: _count(site, workers)
        child.troubles = lambda: _copies_that_wait(workers) | storage.problems()
        child.ready()
        working = [asyncio.create_task(worker.run(), name=worker.name) for worker in workers]
        working.append(asyncio.create_task(_count_backlog(site), name="backlog"))
        working.append(asyncio.create_task(count_copies(site), name="copies"))
        working.append(asyncio.create_task(site.storage.watch_markers(), name="markers"))
        claiming = keep_registering(lambda: site.storage.topology, site.journal, site.store, site.timing)
        working.append(asyncio.create_task(claiming, name="claims"))
        stopping = asyncio.create_task(child.stopping.wait())
        done, _ = await asyncio.wait([stopping, *working], return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, *working):
            task.cancel()
        await asyncio.gather(stopping, *working, return_exceptions=True)
        await probing.close()
        for task in done - {stopping}:
            await task  # a worker ends only by a mistake of its own, or where the site was shut out: say which


async def adopt(site: Site, workers: list[Worker], config: Config) -> None:
    """Go on under another config. Those who settle copies ask the warehouse for its topology at each step."""
    await site.adopt(config)
    for worker in workers:
        if isinstance(worker, Expiry):
            worker.expire_seconds = expire_seconds(config)


async def prepare(site: Site, child: Child, message: Message) -> Message:
    """Make what the config in *message* names anew known to the journal, and claim it. Raises `Misconfigured` where
    that fails, and for a backend that would leave while it is needed; `TemporarilyRejected` where the reason may
    pass."""
    topology = (await child.config_in(message)).topology(site.folder)
    see_that_none_was_lost(site.storage.topology, topology, site.store)
    await see_that_none_is_needed(site.storage.topology, topology, site.journal_path)
    unclaimed = await register_backends(topology, site.journal, site.store)
    if unclaimed:
        told = (f"backends.{name}: " + why.removeprefix(f"backend {name!r}: ") for name, why in unclaimed.items())
        raise TemporarilyRejected("\n".join(told))
    await site.storage.check_openable(topology)
    return {}


def _copies_that_wait(workers: list[Worker]) -> dict[str, str]:
    """Backends by name on which copies wait, and for what."""
    return {name: why for each in workers if isinstance(each, Mover) for name, why in each.health.waiting().items()}


def _count(site: Site, workers: list[Worker]) -> None:
    """Bring what is counted elsewhere to the metrics."""
    site.count()
    waiting = _copies_that_wait(workers)
    WAITING.only({name: int(name in waiting) for name in site.storage.topology.backends})
    for worker in workers:
        match worker:
            case Sweeper():
                DONE.reach(worker.deleted, "blocks deleted")
            case Compactor():
                DONE.reach(worker.moved, "extents moved")
            case Planner():
                DONE.reach(worker.noted, "blocks planned")
            case Mover():
                DONE.reach(worker.made.new, "copies made")
                DONE.reach(worker.made.bytes, "bytes copied")
                DONE.reach(worker.made.already_present, "copies found")
                DONE.reach(worker.made.repaired, "copies mended")
                DONE.reach(worker.dropped, "copies dropped")
                DONE.reach(worker.vanished, "copies vanished")
                DONE.reach(worker.failed, "blocks failed")


async def _count_backlog(site: Site) -> None:
    while True:
        for kind, statement in _COUNTS.items():
            BACKLOG.set(site.store.query(statement, (BACKLOG_MAX,))[0][0], kind)
        await site.timing.clock.sleep(site.timing.probes.backlog_seconds)


if __name__ == "__main__":
    give_way(NICENESS)
    run_child(keep)
