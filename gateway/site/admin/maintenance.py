"""The background workers of a site, and the work of `entrepot fsck` and `entrepot gc`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.blocks.fsck.findings import FsckReport
from gateway.blocks.fsck.fsck import check_site
from gateway.blocks.maintenance import gc as block_gc
from gateway.blocks.maintenance.compactor import Compactor
from gateway.blocks.maintenance.expiry import Expiry
from gateway.blocks.maintenance.gc import Waste
from gateway.blocks.maintenance.inline_flusher import InlineFlusher
from gateway.blocks.maintenance.inventory import UNNAMED_MOST, ListingLimits
from gateway.blocks.maintenance.release import ContentReleaser
from gateway.blocks.maintenance.sweeper import Sweeper
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Progress, no_progress
from gateway.blocks.types import WriteContext
from gateway.config import Config
from gateway.crypto.sealing import BlockKeys
from gateway.errors import Misconfigured
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.schema import STEPS
from gateway.journal.whereabouts import RESTORE_PIN
from gateway.reconcile.commands import SuspectCopy
from gateway.reconcile.mover import Mover
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.reconcile.planner import Planner
from gateway.reconcile.throttle import BackgroundThrottle, CpuContention
from gateway.site.admin.newer_data import newer_kept_until_ns
from gateway.site.paths import journal_folder
from gateway.site.serve_lock import read_serving

if TYPE_CHECKING:
    from gateway.site.site import Site

DAY_SECONDS = 86_400.0


def expire_seconds(config: Config) -> float:
    """Return the age in seconds at which a multipart upload that was not completed is aborted."""
    return config.uploads.expire_days * DAY_SECONDS


def background_workers(site: Site, *, fork_grace_seconds: float | None = None) -> list[Worker]:
    """Return the workers that do the background work of *site*. *fork_grace_seconds*: see `Sweeper`; by default as the
    config says."""
    store, journal, storage = site.store, site.journal, site.storage

    def restamp(ring_key: int, policy: int, wanted: frozenset[int]) -> WriteContext:
        (row,) = store.query("SELECT tenant FROM ring_key WHERE id = ?", (ring_key,))
        return WriteContext(site.keyring.active(row[0]), storage.write_targets.of(policy, wanted))

    targets = PlacementTargets(store, lambda: storage.topology)
    timing, lookup = site.timing, storage.lookup
    if fork_grace_seconds is None:
        fork_grace_seconds = site.config.journal.fork_grace_hours * 3_600
    throttle = BackgroundThrottle(CpuContention(timing).is_contended, timing)
    return [
        ContentReleaser(store, journal, timing=timing, remember_seconds=timing.release.remember_seconds),
        Sweeper(
            store,
            journal,
            storage.backends,
            timing=timing,
            fork_grace_seconds=fork_grace_seconds,
            covers=storage.covers,
        ),
        Compactor(
            store,
            journal,
            lookup,
            storage.reader,
            storage.writer,
            restamp,
            targets,
            timing=timing,
        ),
        InlineFlusher(store, storage.inline, lookup, storage.backends, timing=timing),
        Expiry(store, journal, timing=timing, expire_seconds=expire_seconds(site.config)),
        Planner(store, journal, lookup, targets, timing=timing),
        Mover(
            store,
            journal,
            lookup,
            storage.backends,
            storage.keys,
            targets,
            throttle,
            timing=timing,
            covers=storage.covers,
        ),
    ]


async def fsck(
    site: Site,
    *,
    read: bool = False,
    replay: bool = False,
    mend: bool = False,
    unnamed_max: int = UNNAMED_MOST,
    progress: Progress = no_progress,
) -> FsckReport:
    """Check the journal, and its tables against each other and against the stored blocks.

    *read*: read and open every frame. *replay*: compare the tables with a replay of the journal. *mend*: record absent
    and damaged copies in the journal, so that the keeper repairs them. *unnamed_max*: the listing of a backend stops
    after this number of keys that the journal does not name.

    Raises `Misconfigured` if another version of Entrepot serves the site, and with *mend* also if another copy of this
    site's folder has taken over a backend. Raises `DiskFull` if there is no space for the scratch file of a replay."""
    _require_own_schema(site)
    if mend:
        site.require_writable()
        await site.storage.stamp()
    database = JournalPaths(journal_folder(site.folder, site.config)).database
    keys = BlockKeys(site.keyring.sealing) if read else None

    async def report_copy(block: bytes, backend: int, reason: str) -> None:
        await site.journal.send(SuspectCopy(block, backend, reason))

    backends, mending = site.storage.backends, report_copy if mend else None
    return await check_site(
        database,
        site.store,
        backends,
        read=keys,
        replay=replay,
        mend=mending,
        progress=progress,
        limits=ListingLimits(unnamed_max, site.timing),
    )


async def gc(
    site: Site,
    *,
    dry_run: bool = False,
    drop_newer: bool = False,
    unnamed_max: int = UNNAMED_MOST,
    progress: Progress = no_progress,
) -> Waste:
    """Delete what is not used any more, and return what is left. With *dry_run*, delete nothing, and return what would
    be deleted. *drop_newer*: end the grace period of a restore first (`restore.py`). *unnamed_max*: see `fsck`.

    Raises `Misconfigured` if another version of Entrepot serves the site, or if another copy of this site's folder has
    taken over a backend."""
    _require_own_schema(site)
    backends, limits = site.storage.backends, ListingLimits(unnamed_max, site.timing)
    if dry_run:
        return await block_gc.survey(site.store, backends, progress, limits)
    site.require_writable()
    if drop_newer:
        if newer_kept_until_ns(site.store, site.timing.clock) is None:
            raise Misconfigured("nothing to drop: this site keeps no newer data after a restore")
        await site.journal.pin(RESTORE_PIN, 0, site.timing.clock.wall_ns())
    await site.storage.stamp()
    # Without the workers that place copies: only the keeper makes copies of blocks.
    all_workers = background_workers(site, fork_grace_seconds=0.0 if drop_newer else None)
    workers = [each for each in all_workers if not isinstance(each, Planner | Mover)]
    for worker in list(workers):
        if isinstance(worker, InlineFlusher):
            if read_serving(site.folder) is None:
                worker.flush_all()  # a site that is only used by programs has no keeper
            else:
                workers.remove(worker)
    return await block_gc.collect(
        site.store,
        site.journal,
        backends,
        workers,
        site.timing,
        progress,
        stamp_fences=site.storage.stamp,
        limits=limits,
    )


def _require_own_schema(site: Site) -> None:
    """Check that the journal's tables have the schema of this version, whose statements read every table. If another
    version of Entrepot was installed while the site is served, the tables keep the schema of the version that serves.
    Raises `Misconfigured`."""
    if not site.has_current_schema:
        ((schema,),) = site.store.query("PRAGMA user_version")
        raise Misconfigured(
            f"the journal has schema {schema}, and this version of entrepot needs schema {len(STEPS)}: another "
            "version serves the site; restart that first"
        )
