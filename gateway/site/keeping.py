"""The keeper's process: takes apart what was let go of, sweeps, compacts, lets uploads expire; and answers probes.

It follows the journal; nobody calls it. All that it does is idempotent, so it may be killed anywhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from awscrt import checksums

from backends.base import Backend
from backends.errors import BackendError
from gateway.blocks.compactor import Compactor
from gateway.blocks.expiry import Expiry
from gateway.blocks.sweeper import Sweeper
from gateway.blocks.values import block_key
from gateway.blocks.working import Worker
from gateway.config import Config
from gateway.crypto.sealing import new_block_id
from gateway.errors import Unavailable
from gateway.identity.ring_keys import DrawRingKeyId
from gateway.metrics import counter, gauge
from gateway.metrics.lines import INFO
from gateway.reconcile.mover import Mover
from gateway.reconcile.planner import Planner
from gateway.site.adopting import (
    answer_supervisor,
    see_that_none_is_missing,
    see_that_none_is_needed,
    see_that_none_was_lost,
)
from gateway.site.child import Child, run_child
from gateway.site.control import Message
from gateway.site.gauging import count_copies
from gateway.site.introducing import introduce, keep_introducing
from gateway.site.keyring import renew_if_the_mode_changed
from gateway.site.refusals import NotNow
from gateway.site.site import Site
from gateway.site.upkeep import expire_seconds, workers_of
from gateway.topology import Topology

BACKLOG_SECONDS = 5.0
BACKLOG_MAX = 100_000
"""Counting stops there."""

BACKLOG = gauge("entrepot_backlog", "What waits for the keeper, counted up to 100,000.", ("kind",))
DONE = counter("entrepot_keeper_done_total", "What the keeper did.", ("kind",))
_COUNTS = {
    "freed": "SELECT count(*) FROM (SELECT 1 FROM freed LIMIT ?)",
    "dead blocks": "SELECT count(*) FROM (SELECT 1 FROM block WHERE died > 0 LIMIT ?)",
    "ended sessions": "SELECT count(*) FROM (SELECT 1 FROM session WHERE state = 1 LIMIT ?)",
}


async def keep(child: Child) -> None:
    """Keep house until told to stop."""
    async with await Site.open(child.folder, kind="keeper", strict=not child.again) as site:
        if not child.again:
            await see_that_none_is_missing(site.warehouse.topology, site.journal_path)
        if await renew_if_the_mode_changed(site):
            child.log(INFO, "a new ring key, for the mode that the config asks for", mode=site.config.sealing.mode)
        workers = workers_of(site)
        answer_supervisor(child, site)
        child.adopt = lambda config: adopt(site, workers, config)
        child.answers["probe"] = lambda _: probe(site)
        child.answers["prepare"] = lambda message: prepare(site, child, message)
        child.before_report = lambda: _count(site, workers)
        child.troubles = site.warehouse.troubles
        child.ready()
        working = [asyncio.create_task(worker.run(), name=worker.name) for worker in workers]
        working.append(asyncio.create_task(_count_backlog(site), name="backlog"))
        working.append(asyncio.create_task(count_copies(site), name="copies"))
        working.append(asyncio.create_task(site.warehouse.watch_markers(), name="markers"))
        claiming = keep_introducing(lambda: site.warehouse.topology, site.journal, site.store)
        working.append(asyncio.create_task(claiming, name="claims"))
        stopping = asyncio.create_task(child.stopping.wait())
        done, _ = await asyncio.wait([stopping, *working], return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, *working):
            task.cancel()
        await asyncio.gather(stopping, *working, return_exceptions=True)
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
    that fails, and for a backend that would leave while it is needed; `NotNow` where the reason may pass."""
    topology = (await child.config_in(message)).topology(site.folder)
    see_that_none_was_lost(site.warehouse.topology, topology, site.store)
    await see_that_none_is_needed(site.warehouse.topology, topology, site.journal_path)
    unclaimed = await introduce(topology, site.journal, site.store)
    if unclaimed:
        told = (f"backends.{name}: " + why.removeprefix(f"backend {name!r}: ") for name, why in unclaimed.items())
        raise NotNow("\n".join(told))
    await site.warehouse.try_out(topology)
    return {}


async def probe(site: Site) -> Message:
    """See that the committer answers, and that every backend takes a value and gives it back."""
    began = time.perf_counter()
    await site.journal.send(DrawRingKeyId())
    committed = time.perf_counter()
    # a block's key: killed before it is deleted, it goes with whatever else this session leaves unnamed
    key = block_key(new_block_id(site.journal.session))
    value = b"entrepot"
    tried = [_try(backend, key, value) for backend in site.warehouse.backends.values()]
    away = {name: why for name, why in await asyncio.gather(*tried) if why}
    away |= {name: "it was given up as lost" for (name,) in site.store.query("SELECT name FROM backend WHERE lost = 1")}
    see_that_writes_can_be_answered(site.warehouse.topology, away)
    seconds = {"committer_seconds": committed - began, "backends_seconds": time.perf_counter() - committed}
    return seconds | ({"backends_away": away} if away else {})


async def _try(backend: Backend, key: str, value: bytes) -> tuple[str, str]:
    """The backend's name, and why it does not do what it should; empty where it does."""
    try:
        await backend.put(key, [value], checksums.crc32c(value))
        whole = bytes(await backend.get(key)) == value
        await backend.delete(key)
    except BackendError as error:
        return backend.name, str(error)
    return backend.name, "" if whole else "it gave back something else than it was given"


def see_that_writes_can_be_answered(topology: Topology, away: Mapping[str, str]) -> None:
    """Whatever the policy, enough backends take what is written. Raises `Unavailable`."""
    for policy in topology.policies.values():
        there = [name for name in topology.acked_on(policy) if name not in away]
        if len(there) < topology.copies_before_answer(policy):
            reasons = "; ".join(away[name] for name in topology.acked_on(policy) if name in away)
            raise Unavailable(f"writes of policy {policy.name!r} cannot be answered: {reasons}")


def _count(site: Site, workers: list[Worker]) -> None:
    """Bring what is counted elsewhere to the metrics."""
    site.count()
    for worker in workers:
        match worker:
            case Sweeper():
                DONE.reach(worker.deleted, "blocks deleted")
            case Compactor():
                DONE.reach(worker.moved, "extents moved")
            case Planner():
                DONE.reach(worker.noted, "blocks planned")
            case Mover():
                DONE.reach(worker.copied, "copies made")
                DONE.reach(worker.copied_bytes, "bytes copied")
                DONE.reach(worker.found, "copies found")
                DONE.reach(worker.mended, "copies mended")
                DONE.reach(worker.dropped, "copies dropped")
                DONE.reach(worker.failed, "blocks failed")


async def _count_backlog(site: Site) -> None:
    while True:
        for kind, statement in _COUNTS.items():
            BACKLOG.set(site.store.query(statement, (BACKLOG_MAX,))[0][0], kind)
        await asyncio.sleep(BACKLOG_SECONDS)


if __name__ == "__main__":
    run_child(keep)
