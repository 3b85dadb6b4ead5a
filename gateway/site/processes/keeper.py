"""The keeper's process: the background workers of a site, and the readiness probe.

The workers release deleted content, sweep, compact, expire uploads, and plan and move copies. They follow the journal.
All that they do is idempotent, so the keeper may be killed at any point.
"""

from __future__ import annotations

import asyncio

from gateway.blocks.maintenance.compactor import Compactor
from gateway.blocks.maintenance.expiry import Expiry
from gateway.blocks.maintenance.inline_flusher import InlineFlusher
from gateway.blocks.maintenance.sweeper import Sweeper
from gateway.blocks.maintenance.worker import Worker
from gateway.config import Config
from gateway.errors import ReadOnlySite
from gateway.metrics import counter, gauge
from gateway.metrics.json_log import INFO
from gateway.reconcile.mover import Mover
from gateway.reconcile.planner import Planner
from gateway.site.admin.key_rotation import renew_ring_key_if_mode_changed
from gateway.site.admin.maintenance import background_workers, expire_seconds
from gateway.site.processes.child import Child, run_child
from gateway.site.processes.control_channel import Message, Question
from gateway.site.processes.priority import lower_priority
from gateway.site.processes.readiness import ReadinessProbe
from gateway.site.processes.replication_metrics import count_copies
from gateway.site.processes.resource_metrics import count_disks
from gateway.site.processes.site_role import SiteRole
from gateway.site.processes.usage_metrics import count_usage
from gateway.site.rehearsal import READ_ONLY
from gateway.site.reload_checks import (
    check_none_missing,
    check_not_lost,
    check_not_needed,
)
from gateway.site.site import Site
from gateway.site.storage.backend_trouble import BackendTrouble
from gateway.site.storage.refusals import TemporarilyRejected
from gateway.site.storage.registration import Registrar, register_backends

NICENESS = 10
"""The niceness of this process: if processors are scarce, processes that answer requests come first."""
BACKLOG_MAX = 100_000
"""Rows of a kind are counted up to this number."""

BACKLOG = gauge("entrepot_backlog", "What waits for the keeper, counted up to 100,000.", ("kind",))
UP = gauge("entrepot_backend_up", "1 while the keeper can use the backend, 0 while it is unavailable.", ("backend",))
WAITING = gauge("entrepot_copies_waiting", "1 while copies wait, since a backend is in trouble.", ("backend",))
DONE = counter("entrepot_keeper_done_total", "What the keeper did.", ("kind",))
_COUNTS = {
    "inline values": "SELECT count(*) FROM (SELECT 1 FROM inline_value LIMIT ?)",
    "freed": "SELECT count(*) FROM (SELECT 1 FROM freed LIMIT ?)",
    "uploads of gone buckets": "SELECT min((SELECT coalesce(sum(uploads), 0) FROM gone), ?)",
    "dead blocks": "SELECT count(*) FROM (SELECT 1 FROM block WHERE died > 0 LIMIT ?)",
    "ended sessions": "SELECT count(*) FROM (SELECT 1 FROM session WHERE state = 1 LIMIT ?)",
}


class KeeperRole(SiteRole):
    """Runs the background workers."""

    def __init__(self) -> None:
        super().__init__("keeper")
        self._workers: list[Worker] = []
        self._probe: ReadinessProbe | None = None
        self._registrar: Registrar | None = None

    async def work(self, child: Child, site: Site) -> None:
        if site.is_rehearsal:
            child.ready()
            await child.stopping.wait()
            return
        if not child.is_replacement:
            await check_none_missing(site.storage.topology, site.journal_path)
        if await renew_ring_key_if_mode_changed(site):
            child.log(INFO, "a new ring key, for the mode that the config asks for", mode=site.config.sealing.mode)
        self._workers = background_workers(site)
        storage = site.storage
        self._probe = ReadinessProbe(site.journal, site.store, storage.backends, lambda: storage.topology, site.timing)
        child.ready()
        try:
            await self._run_workers(child, site)
        finally:
            await self._probe.close()

    async def _run_workers(self, child: Child, site: Site) -> None:
        """Run everything until `child.stopping` is set. A worker ends before only by a defect of its own, or because
        the site goes on elsewhere; its error is raised."""
        tasks = [asyncio.create_task(worker.run(), name=worker.name) for worker in self._workers]
        tasks.append(asyncio.create_task(_count_backlog(site), name="backlog"))
        tasks.append(asyncio.create_task(count_copies(site), name="copies"))
        tasks.append(asyncio.create_task(count_disks(site), name="disks"))
        tasks.append(asyncio.create_task(count_usage(site), name="usage"))
        tasks.append(asyncio.create_task(site.storage.watch_markers(), name="markers"))
        self._registrar = Registrar(lambda: site.storage.topology, site.journal, site.store, site.timing)
        tasks.append(asyncio.create_task(self._registrar.run(), name="claims"))
        stopping = asyncio.create_task(child.stopping.wait())
        done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, *tasks):
            task.cancel()
        await asyncio.gather(stopping, *tasks, return_exceptions=True)
        for task in done - {stopping}:
            await task

    async def answer(self, question: Question, message: Message) -> Message | None:
        match question:
            case Question.PROBE if self._site is not None and self._site.is_rehearsal:
                raise ReadOnlySite(READ_ONLY)
            case Question.PROBE:
                return None if self._probe is None else await self._probe.probe()
            case Question.PREPARE:
                await self._prepare(message)
                return {}
        return await super().answer(question, message)

    async def adopt(self, config: Config) -> None:
        """The workers that place copies ask the block storage for its topology at each step."""
        await super().adopt(config)
        for worker in self._workers:
            if isinstance(worker, Expiry):
                worker.expire_seconds = expire_seconds(config)

    def report(self) -> dict[str, BackendTrouble]:
        troubles = super().report()
        if self._site is None or self._is_closing:
            return troubles
        names = self._site.storage.topology.backends
        if self._registrar is not None:
            for name, why in self._registrar.unclaimed.items():
                since_ns = troubles[name].since_ns if name in troubles else 0
                troubles[name] = BackendTrouble(f"it could not be claimed: {why}", unavailable=True, since_ns=since_ns)
        unavailable = {name for name, trouble in troubles.items() if trouble.unavailable}
        UP.only({name: int(name not in unavailable) for name in names})
        waiting = _copies_that_wait(self._workers)
        WAITING.only({name: int(name in waiting) for name in names})
        _count_work(self._workers)
        return {name: BackendTrouble(why, unavailable=False) for name, why in waiting.items()} | troubles

    async def _prepare(self, message: Message) -> None:
        """Register and claim the backends that the config in *message* adds.

        Raises `Misconfigured` if that fails, and for a backend that is removed while it is needed;
        `TemporarilyRejected` if the reason may pass."""
        site = self.site
        site.require_writable()
        topology = (await self.child.config_in(message)).topology(site.folder)
        check_not_lost(site.storage.topology, topology, site.store)
        await check_not_needed(site.storage.topology, topology, site.journal_path)
        unclaimed = await register_backends(topology, site.journal, site.store)
        if unclaimed:
            reasons = (
                f"backends.{name}: " + why.removeprefix(f"backend {name!r}: ") for name, why in unclaimed.items()
            )
            raise TemporarilyRejected("\n".join(reasons))
        await site.storage.check_openable(topology)


def _copies_that_wait(workers: list[Worker]) -> dict[str, str]:
    """Return the backends that copies wait for, by name, and why."""
    return {name: why for each in workers if isinstance(each, Mover) for name, why in each.health.waiting().items()}


def _count_work(workers: list[Worker]) -> None:
    """Set the counters of the work that was done."""
    for worker in workers:
        match worker:
            case Sweeper():
                DONE.reach(worker.deleted, "blocks deleted")
            case InlineFlusher():
                DONE.reach(worker.flushed, "inline values flushed")
            case Compactor():
                DONE.reach(worker.moved, "extents moved")
            case Planner():
                DONE.reach(worker.noted, "blocks planned")
            case Mover():
                DONE.reach(worker.copy_maker.new, "copies made")
                DONE.reach(worker.copy_maker.bytes, "bytes copied")
                DONE.reach(worker.copy_maker.already_present, "copies found")
                DONE.reach(worker.copy_maker.repaired, "copies mended")
                DONE.reach(worker.dropped, "copies dropped")
                DONE.reach(worker.vanished, "copies vanished")
                DONE.reach(worker.failed, "blocks failed")


async def _count_backlog(site: Site) -> None:
    while True:
        for kind, statement in _COUNTS.items():
            BACKLOG.set(site.store.query(statement, (BACKLOG_MAX,))[0][0], kind)
        await site.timing.clock.sleep(site.timing.probes.backlog_seconds)


if __name__ == "__main__":
    lower_priority(NICENESS)
    run_child(KeeperRole())
