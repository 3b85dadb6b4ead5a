"""What a restore that takes over would do: which backends it claims, who uses them now, and what is newer than the
backup. Changes nothing."""

from __future__ import annotations

import asyncio
import os.path
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from backends import errors as backend_errors
from backends.local.files import CONTROL
from gateway.blocks.maintenance.inventory import DEFAULT_LIMITS, BlockState, ListingLimits, take_inventory
from gateway.blocks.protocols import Progress, no_progress
from gateway.config import CONFIG_NAME
from gateway.journal.sqlite.read_store import ReadStore
from gateway.site.admin.backup_source import Backup, check_key, check_names, read_backup
from gateway.site.admin.claim_backend import reason_against_claim
from gateway.site.paths import UNFINISHED
from gateway.site.storage.open_backends import close_all
from gateway.site.storage.open_to_read import open_existing, read_marker, would_create_bucket
from gateway.timing import Timing, timing_from_environment
from gateway.topology import BackendPlace

PROGRESS_EVERY = 1_000
"""Blocks between two calls of the progress."""
_NEWER = frozenset({BlockState.ORPHAN, BlockState.UNNAMED, BlockState.IN_FLIGHT})


class BackendUse(NamedTuple):
    """Who uses a backend, by its marker."""

    backend: str
    incarnation: int = 0
    """The incarnation in its marker; 0 if there is none, or if it could not be read."""
    stamped_ns: int = 0
    """When a committer stamped it last, by the clock of that committer's machine; 0 if that is not known."""
    number: int = 0
    """The last record that the stamping committer's journal had; 0 if that is not known."""
    why: str = ""
    """Why the backend cannot be used for this; empty if it can."""
    other_site: bool = False
    """Whether it belongs to another site."""
    unmarked: bool = False
    """Whether it has no marker, or its folder or bucket does not exist yet: a restore may claim it."""


class NewerBlocks(NamedTuple):
    """Blocks on one backend that the backup does not name. Most of them were written after the backup was made."""

    backend: str
    blocks: int
    bytes: int
    """Sealed."""
    why: str = ""
    """Why the backend could not be listed to its end; empty if it was."""


class TakeoverPlan(NamedTuple):
    site: str
    """The site's id."""
    incarnation: int
    """The incarnation of the backup."""
    number: int
    """The number of the last record in the backup."""
    made_ns: int
    backends: tuple[BackendUse, ...]
    newer: tuple[NewerBlocks, ...]
    without: tuple[str, ...] = ()
    """The backends that would be given up for good."""
    refused: str = ""
    """Why the restore would be refused, as far as that is known before it is tried; empty if it is not."""

    @property
    def last_stamp(self) -> BackendUse | None:
        """The use of the backend that was stamped with the highest record of the backup's incarnation. Records of
        another incarnation have other numbers. None if there is none."""
        stamped = [use for use in self.backends if use.stamped_ns and use.incarnation == self.incarnation]
        return max(stamped, key=lambda use: use.number, default=None)

    @property
    def newer_records(self) -> int:
        """How many records the original has at least that the backup does not have. Later ones, after the last stamp
        of a backend, are not known."""
        last = self.last_stamp
        return 0 if last is None else max(0, last.number - self.number)


async def plan_takeover(
    target: Path,
    folder: Path,
    key_file: Path,
    *,
    anyway: Collection[str] = (),
    without: Collection[str] = (),
    limits: ListingLimits = DEFAULT_LIMITS,
    progress: Progress = no_progress,
) -> TakeoverPlan:
    """Return what `restore` of the backup in *target* in *folder* would do. *anyway* and *without*: as for `restore`.
    *limits*: of each backend's listing.

    Raises `Misconfigured`, `Corrupted`, and `OSError` if *key_file* cannot be read."""
    timing = timing_from_environment()
    backup = read_backup(target, folder)
    await asyncio.to_thread(check_key, key_file.read_bytes(), key_file, backup.database)
    check_names(anyway, without, backup.topology)
    uses = await read_backend_uses(backup, timing)
    newer = await _count_newer(
        backup, [use.backend for use in uses if not use.why and use.backend not in without], timing, limits, progress
    )
    manifest = backup.manifest
    refused = await _reason_for_refusal(backup, folder, uses, anyway, without, timing)
    return TakeoverPlan(
        manifest.site, manifest.incarnation, manifest.number, manifest.made_ns, uses, newer, tuple(without), refused
    )


async def _reason_for_refusal(
    backup: Backup,
    folder: Path,
    uses: Collection[BackendUse],
    anyway: Collection[str],
    without: Collection[str],
    timing: Timing,
) -> str:
    """Return why a restore in *folder* would be refused; empty if no reason is known."""
    if (folder / CONFIG_NAME).exists() and not (folder / UNFINISHED).exists():
        return f"{folder} is a site already"
    for use in uses:
        if use.backend in without or (use.unmarked and use.backend in anyway):
            continue
        reason, hint = use.why, f". If it is gone for good, leave it out: --without {use.backend}"
        if use.unmarked:
            reason = await _reason_against_claim(backup, backup.topology.backends[use.backend], timing)
            hint = (
                f". Mount it; or if it is a new, empty one, claim it: --claim-anyway {use.backend}; or if it is gone "
                f"for good, leave it out, which cannot be undone: --without {use.backend}"
            )
        if reason:
            return f"backend {use.backend!r}: {reason}{'' if use.other_site else hint}"
    return ""


async def _reason_against_claim(backup: Backup, place: BackendPlace, timing: Timing) -> str:
    """Return why a restore would not claim the backend at *place*, which has no marker; empty if it would."""
    store = ReadStore(backup.database)
    try:
        ids = dict(store.query("SELECT name, id FROM backend"))
        backend = None if _is_absent(place) else await open_existing(place, timing)
        try:
            return await reason_against_claim(backend, ids.get(place.name, 0), store)
        finally:
            await close_all([] if backend is None else [backend])
    except backend_errors.BackendError as error:
        return error.message
    finally:
        store.close()


def _is_absent(place: BackendPlace) -> bool:
    """Whether *place* is a folder that does not exist, or was never a backend."""
    return place.s3 is None and not os.path.isdir(os.path.join(place.path, CONTROL))


async def read_backend_uses(backup: Backup, timing: Timing) -> tuple[BackendUse, ...]:
    """Read the markers of all backends of *backup*, all at once."""
    places = backup.topology.backends.values()
    return tuple(await asyncio.gather(*(_read_use(place, backup.manifest.site, timing) for place in places)))


async def _read_use(place: BackendPlace, site: str, timing: Timing) -> BackendUse:
    if _is_absent(place):
        return BackendUse(place.name, why=f"{place.path} has no marker", unmarked=True)
    try:
        marker = await read_marker(place, timing)
    except backend_errors.BackendError as error:
        return BackendUse(place.name, why=error.message, unmarked=would_create_bucket(place, error))
    if marker is None:
        return BackendUse(place.name, why="it has no marker", unmarked=True)
    if marker.site != site:
        why = f"it belongs to site {marker.site}, and the backup is of site {site}"
        return BackendUse(place.name, why=why, other_site=True)
    fence = marker.fence
    return BackendUse(place.name, marker.incarnation, fence.at_ns if fence else 0, fence.number if fence else 0)


async def _count_newer(
    backup: Backup, names: list[str], timing: Timing, limits: ListingLimits, progress: Progress
) -> tuple[NewerBlocks, ...]:
    """Count the blocks on the backends *names* that the backup does not name."""
    store = ReadStore(backup.database)
    try:
        ids = dict(store.query("SELECT name, id FROM backend"))
        return tuple(
            [
                await _count_on(store, ids[name], backup.topology.backends[name], timing, limits, progress)
                for name in names
                if name in ids
            ]
        )
    finally:
        store.close()


async def _count_on(
    store: ReadStore, backend_id: int, place: BackendPlace, timing: Timing, limits: ListingLimits, progress: Progress
) -> NewerBlocks:
    blocks = size = done = 0
    try:
        backend = await open_existing(place, timing)
        try:
            async for item in take_inventory(store, backend_id, backend, limits):
                done += 1
                if done % PROGRESS_EVERY == 0:
                    progress(f"blocks on {place.name}", done, 0)
                if item.state in _NEWER:
                    blocks, size = blocks + 1, size + item.size
        finally:
            await close_all([backend])
    except backend_errors.BackendError as error:
        return NewerBlocks(place.name, blocks, size, why=str(error))
    return NewerBlocks(place.name, blocks, size)
