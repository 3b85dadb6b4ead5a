"""Claim backends that the journal knows already: one that lost its marker, or at a restore all of them.

The marker keeps two sites from using one folder or bucket, and keeps a site from writing to an empty mount point. So
two things are checked before a marker is written: the marker that is there must allow it, and some of the blocks that
the journal has on the backend must be there.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from backends import errors as backend_errors
from backends.base import Backend, Marker, check_claim
from gateway.blocks.maintenance.inventory import sets_containing
from gateway.blocks.types import block_path
from gateway.errors import InvalidArgument, Misconfigured
from gateway.site.storage.agreement import ActiveElsewhere, RestoredElsewhere, require_active_here
from gateway.site.storage.backend_factory import open_backend
from gateway.site.storage.keyring import JournalTables
from gateway.site.storage.marker_guard import site_row
from gateway.site.storage.open_backends import close_all
from gateway.timing import Timing
from gateway.topology import BackendPlace, Topology

if TYPE_CHECKING:
    from gateway.site.site import Site

SAMPLE_BLOCKS = 16
"""How many of a backend's blocks are looked for."""


class ClaimResult(NamedTuple):
    backend: str
    claimed: bool
    """False if the backend had this site's marker already, and nothing was done."""
    previous_incarnation: int
    """The incarnation in the marker of this site that was there before; 0 if there was none."""
    expected_blocks: int
    """Sampled blocks that should be on the backend, according to the journal."""
    present_blocks: int
    """Those of them that are there."""


class _Sample(NamedTuple):
    """Which of the sampled blocks are on a backend."""

    expected: int
    present: int
    other_key: str
    """A key that is there although no sampled block is; empty if there is none, or if a sampled block is there."""

    @property
    def is_unexpected(self) -> bool:
        """Whether this may be another folder or bucket: no block is there that should be, or something else is."""
        return bool(self.other_key) or (self.expected > 0 and not self.present)


async def reclaim_backend(site: Site, name: str, *, anyway: bool) -> ClaimResult:
    """Write this site's marker to the backend *name*, which lost it. *anyway*: even if none of its blocks are there.

    Raises `InvalidArgument` if the config names no such backend. Raises `Misconfigured`, and changes nothing, if the
    backend has a marker that must not be replaced, cannot be reached, or has none of its blocks."""
    site.require_writable()
    place = site.config.topology(site.folder).backends.get(name)
    if place is None:
        raise InvalidArgument(f"the config names no backend {name!r}")
    ids = _backend_ids(site.store)
    number, lost = ids.get(name, (0, True))
    if name not in ids or lost:
        reason = "counts as lost, for good" if name in ids else "is not known to the journal yet: reload the config"
        raise Misconfigured(f"backend {name!r} {reason}")
    try:
        backend = await _open_existing(place, site.timing)
        try:
            return await _claim(backend, number, site.store, anyway=anyway)
        finally:
            await close_all([backend])
    except backend_errors.BackendError as error:
        raise Misconfigured(str(error)) from error


async def claim_all(
    topology: Topology, store: JournalTables, timing: Timing, *, anyway: Collection[str] = ()
) -> dict[str, str]:
    """Check every backend, then write this site's marker to each of them. *anyway*: the names of backends that are
    claimed even if none of their blocks are there. Backends that count as lost are not opened.

    Returns the backends that were not claimed, with the reason: the marker of each names a later incarnation, and the
    others do not confirm it (`agreement`).

    Raises `Misconfigured`, and claims none, if a backend has a marker that must not be replaced, or has no marker and
    lacks its blocks or contains other values."""
    ids = _backend_ids(store)
    opened: dict[str, Backend] = {}
    restored_elsewhere: dict[str, ActiveElsewhere] = {}
    try:
        for name, place in topology.backends.items():
            number, lost = ids[name]
            if lost:
                continue
            has_blocks = bool(_sample_blocks(number, store))
            if has_blocks and name not in anyway and _is_empty_folder(place):  # opening it would create files
                why = await reason_against_claim(None, number, store)
                raise Misconfigured(f"backend {name!r}: {why} No backend was claimed")
            opened[name] = await (
                _open_existing(place, timing)
                if has_blocks
                else open_backend(place, writes_much=False, make=True, timing=timing)
            )
            held, wanted = await opened[name].marker(), _own_marker(store, number)
            if held is not None and held.site == wanted.site and held.incarnation > wanted.incarnation:
                restored_elsewhere[name] = RestoredElsewhere(check_claim(held, wanted) or "", backend=name)
                continue
            _require_claimable(opened[name], held, wanted, _other_backends(store, number))
            sample = _Sample(0, 0, "") if held is not None else await _look_for_blocks(opened[name], number, store)
            if sample.is_unexpected and name not in anyway:
                raise Misconfigured(f"backend {name!r}: {_describe_unexpected(sample)} No backend was claimed")
        require_active_here(topology.backends, restored_elsewhere)
        for name in opened.keys() - restored_elsewhere.keys():
            await opened[name].claim(_own_marker(store, ids[name][0]))
    except backend_errors.BackendError as error:
        raise Misconfigured(str(error)) from error
    finally:
        await close_all(opened.values())
    return {name: report.message for name, report in restored_elsewhere.items()}


async def reason_against_claim(backend: Backend | None, number: int, rows: JournalTables) -> str:
    """Return why *backend*, which has no marker, would not be claimed as number *number*; empty if it would. None: its
    folder was never a backend. Nothing is changed."""
    if backend is None:
        sample = _Sample(len(_sample_blocks(number, rows)), 0, "")
    else:
        sample = await _look_for_blocks(backend, number, rows)
    return _describe_unexpected(sample) if sample.is_unexpected else ""


async def _claim(backend: Backend, number: int, rows: JournalTables, *, anyway: bool) -> ClaimResult:
    wanted, held = _own_marker(rows, number), await backend.marker()
    sample = await _look_for_blocks(backend, number, rows)
    if held is not None and held.without_fence == wanted:
        return ClaimResult(backend.name, False, held.incarnation, sample.expected, sample.present)
    _require_claimable(backend, held, wanted, _other_backends(rows, number))
    if sample.is_unexpected and not anyway:
        raise Misconfigured(
            f"backend {backend.name!r}: {_describe_unexpected(sample)} Nothing was done; --anyway claims it as it is"
        )
    await backend.claim(wanted)
    return ClaimResult(backend.name, True, held.incarnation if held else 0, sample.expected, sample.present)


async def _open_existing(place: BackendPlace, timing: Timing) -> Backend:
    """Open a backend without creating its folder or bucket: if that is absent, the right one is elsewhere. The files
    that the driver keeps in a folder may be absent, and are created."""
    if place.s3 is None and not os.path.isdir(place.path):
        message = f"{place.path}: there is no such folder; mount its disk, or create the folder if the disk is lost"
        raise backend_errors.Misconfigured(message, backend=place.name)
    return await open_backend(place, writes_much=False, make=place.s3 is None, timing=timing)


def _is_empty_folder(place: BackendPlace) -> bool:
    return place.s3 is None and os.path.isdir(place.path) and not set(os.listdir(place.path)) - {"lost+found"}


def _require_claimable(backend: Backend, held: Marker | None, wanted: Marker, others: Collection[int]) -> None:
    """Raise `OwnedByAnotherSite` unless the marker *held* may be replaced by *wanted*. *others*: the ids of this site's
    other backends, whose markers must not be replaced either; `check_claim` does not know them."""
    why = check_claim(held, wanted)
    if why is None and held is not None and held.backend in others:
        why = f"it is backend {held.backend} of this site; are two backends swapped in the config?"
    if why is not None:
        raise backend_errors.OwnedByAnotherSite(why, backend=backend.name)


async def _look_for_blocks(backend: Backend, number: int, rows: JournalTables) -> _Sample:
    """Look for some of the blocks that should be on *backend*. If none is there, find a key that is there instead."""
    sample = _sample_blocks(number, rows)
    present = 0
    for block in sample:
        try:
            await backend.stat(block_path(block))
        except (backend_errors.NotFound, backend_errors.Corrupted):
            continue
        present += 1
    return _Sample(len(sample), present, "" if present else await _first_key(backend))


def _sample_blocks(number: int, rows: JournalTables) -> list[bytes]:
    """Return some of the oldest and some of the newest blocks that the journal has on backend *number*."""
    sets = sets_containing(rows, number)
    marks = ", ".join("?" * len(sets))
    blocks: dict[bytes, None] = {}
    for order in ("ASC", "DESC"):
        statement = f"SELECT id FROM block WHERE backends IN ({marks}) AND died = 0 ORDER BY id {order} LIMIT ?"
        blocks |= dict.fromkeys(block for (block,) in rows.query(statement, (*sets, SAMPLE_BLOCKS // 2)))
    return list(blocks)


async def _first_key(backend: Backend) -> str:
    """Return the first key that *backend* lists; empty if it lists none."""
    async with aclosing(backend.list()) as listing:  # type: ignore[type-var] # every driver's is a generator
        async for listed in listing:
            return listed.key
    return ""


def _describe_unexpected(sample: _Sample) -> str:
    if sample.expected:
        problem = f"none of {sample.expected} blocks that should be there was found"
    else:
        problem = "it has no marker, and should have no blocks of this site"
    other = f", but {sample.other_key!r} was" if sample.expected else f", but contains {sample.other_key!r}"
    return f"{problem}{other if sample.other_key else ''}; is it the right folder or bucket?"


def _own_marker(rows: JournalTables, number: int) -> Marker:
    """Return the marker of this site for its backend *number*."""
    site, incarnation = site_row(rows)
    return Marker(site, number, incarnation)


def _backend_ids(rows: JournalTables) -> dict[str, tuple[int, bool]]:
    """Return, by name, each backend's id and whether it counts as lost."""
    return {name: (number, bool(lost)) for name, number, lost in rows.query("SELECT name, id, lost FROM backend")}


def _other_backends(rows: JournalTables, number: int) -> set[int]:
    """Return the ids of all backends but *number*."""
    return {each for each, _ in _backend_ids(rows).values()} - {number}
