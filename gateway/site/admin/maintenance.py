"""What is done about what a site holds: the background work, and checking and collecting when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.blocks.fsck.findings import FsckReport, Severity
from gateway.blocks.fsck.fsck import check_site
from gateway.blocks.maintenance import gc as collecting
from gateway.blocks.maintenance.compactor import Compactor
from gateway.blocks.maintenance.expiry import Expiry
from gateway.blocks.maintenance.gc import Waste
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
from gateway.reconcile.commands import SuspectCopy
from gateway.reconcile.mover import Mover
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.reconcile.planner import Planner
from gateway.reconcile.throttle import BackgroundThrottle, CpuContention
from gateway.site.paths import journal_folder

if TYPE_CHECKING:
    from gateway.site.site import Site

_WORDS = {
    Severity.NONE: "clean",
    Severity.WASTE: "sound; some space is wasted",
    Severity.UNCHECKED: "sound as far as it could be checked, which was NOT everywhere",
    Severity.WRONG: "NOT sound",
}
DAY_SECONDS = 86_400.0


def expire_seconds(config: Config) -> float:
    """After how long an upload that nobody came back to is aborted."""
    return config.uploads.expire_days * DAY_SECONDS


def background_workers(site: Site) -> list[Worker]:
    """Everything that is done in the background at a site."""
    store, journal, storage = site.store, site.journal, site.storage

    def restamp(ring_key: int, policy: int, wanted: frozenset[int]) -> WriteContext:
        (row,) = store.query("SELECT tenant FROM ring_key WHERE id = ?", (ring_key,))
        return WriteContext(site.keyring.active(row[0]), storage.write_targets.of(policy, wanted))

    targets = PlacementTargets(store, lambda: storage.topology)
    timing, lookup = site.timing, storage.lookup
    fork_grace_seconds = site.config.journal.fork_grace_hours * 3_600
    throttle = BackgroundThrottle(CpuContention(timing).is_contended, timing)
    return [
        ContentReleaser(store, journal, timing=timing, remember_seconds=timing.takedown.remember_seconds),
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
    """Check the journal, tables against each other and against the bytes; with *read*, open every frame; with *replay*,
    compare the tables with a replay of the journal; with *mend*, have the keeper mend what is absent or damaged.
    *unnamed_max*: keys of a backend that the journal does not name, before its listing is given up.

    Raises `Misconfigured` as `gc`, with *mend* also where another copy of this site's folder has gone on with a
    backend; and `DiskFull` where the scratch file of a replay has no room."""
    _require_own_schema(site)
    if mend:
        await site.storage.stamp()
    database = JournalPaths(journal_folder(site.folder, site.config)).database
    keys = BlockKeys(site.keyring.sealing) if read else None

    async def note(block: bytes, place: int, word: str) -> None:
        await site.journal.send(SuspectCopy(block, place, word))

    backends, mending = site.storage.backends, note if mend else None
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
    site: Site, *, dry_run: bool = False, unnamed_max: int = UNNAMED_MOST, progress: Progress = no_progress
) -> Waste:
    """What could go; unless *dry_run*, it goes, and this is what is left. *unnamed_max* as for `fsck`.

    Raises `Misconfigured` where another version has made the tables, or another copy of this site's folder has gone on
    with a backend."""
    _require_own_schema(site)
    backends, limits = site.storage.backends, ListingLimits(unnamed_max, site.timing)
    if dry_run:
        return await collecting.survey(site.store, backends, progress, limits)
    await site.storage.stamp()
    # copies are the keeper's alone: nobody else puts a block anywhere
    workers = [each for each in background_workers(site) if not isinstance(each, Planner | Mover)]
    return await collecting.collect(
        site.store, site.journal, backends, workers, site.timing, progress, refresh=site.storage.stamp, limits=limits
    )


def _require_own_schema(site: Site) -> None:
    """What looks at each of them asks for those of its own version; a site that is served goes on with those of the
    version that serves it, also once another one is installed."""
    ((schema,),) = site.store.query("PRAGMA user_version")
    if schema != len(STEPS):
        raise Misconfigured(
            f"the journal has schema {schema}, and this version of entrepot looks at schema {len(STEPS)}: another "
            "version serves the site, so restart that first"
        )


def plain(report: FsckReport) -> dict[str, Any]:
    """A report as plain values."""
    return {
        "status": {Severity.NONE: "clean"}.get(report.worst, report.worst.name.lower()),
        "kinds": dict(report.kinds),
        "looked_at": dict(report.counted),
        "unchecked": report.unchecked,
        "to_mend": len(report.to_mend),
        "findings": [{**each._asdict(), "severity": each.severity.name.lower()} for each in report.findings],
    }


def spell(report: FsckReport) -> list[str]:
    """A report for people."""
    looked = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in sorted(report.counted.items()))
    lines = [f"{each.severity.name.lower()}: {each.kind}: {each.where}: {each.what}" for each in report.findings]
    more = report.kinds.total() - len(report.findings)
    if more:
        lines.append(f"and {more} more")
    word = _WORDS[report.worst]
    if report.to_mend:
        lines.append(f"copies that the keeper mends while the site is served: {len(report.to_mend)}")
    return [*lines, f"looked at {looked}", word]


def plain_waste(waste: Waste) -> dict[str, Any]:
    """Waste as plain values."""
    return {
        "freed": waste.freed,
        "blocks": {state.value: count for state, count in waste.blocks.items()},
        "bytes": {state.value: size for state, size in waste.bytes.items()},
        "sparse_blocks": waste.sparse_blocks,
        "sparse_bytes": waste.sparse_bytes,
        "unchecked": dict(waste.unchecked),
    }


def spell_waste(waste: Waste, word: str) -> list[str]:
    """Waste for people; *word*: `would go` or `left`."""
    lines = [
        f"{word}: {count} {state.value} block(s), {waste.bytes[state]} bytes" for state, count in waste.blocks.items()
    ]
    lines += [f"not looked at to the end: {name}: {why}" for name, why in waste.unchecked.items()]
    lines.append(f"{word}: {waste.freed} freed file(s), part(s) or upload(s) to be taken apart")
    lines.append(f"{word}: {waste.sparse_bytes} dead bytes in {waste.sparse_blocks} pack(s) to be written anew")
    return lines
