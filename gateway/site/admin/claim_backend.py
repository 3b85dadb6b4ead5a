"""Claiming places of backends that the journal knows already: one that lost its marker, and at a restore all of them.

A marker is what keeps two sites out of one place, and a site out of an empty mount point; so who puts one where none
stands takes that upon himself, and everything that can be looked at is looked at first: the marker that is there, and
whether the blocks lie there that the journal says do.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

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

SAMPLE = 16
"""Blocks that are looked for."""


class ClaimResult(NamedTuple):
    """What was found, and done."""

    backend: str
    claimed: bool
    """False: it bore this site's marker already, and nothing was done."""
    before: int
    """The incarnation of this site whose marker stood there; 0 where none did."""
    looked_for: int
    """Blocks that should lie there and were looked for."""
    there: int
    """Those of them that do."""


class _Sample(NamedTuple):
    looked_for: int
    there: int
    strange: str
    """A value that lies there, where none was found that should; empty where there is none."""


async def reclaim_backend(site: Site, name: str, *, anyway: bool) -> ClaimResult:
    """Put this site's marker on the place of the backend *name*, which lost it. *anyway*: also where nothing that
    should lie there does.

    Raises `InvalidArgument` for one that is not in the config, and `Misconfigured`, with nothing done, where the place
    bears another marker, cannot be reached, or does not look like the one that was in use."""
    place = site.config.topology(site.folder).backends.get(name)
    if place is None:
        raise InvalidArgument(f"the config names no backend {name!r}")
    ids = _ids(site.store)
    number, lost = ids.get(name, (0, True))
    if name not in ids or lost:
        word = "was given up as lost, for good" if name in ids else "is not known to the journal yet: reload the config"
        raise Misconfigured(f"backend {name!r} {word}")
    try:
        backend = await _opened(place, site.timing)
        try:
            return await _claim(backend, number, site.store, anyway=anyway)
        finally:
            await close_all([backend])
    except backend_errors.BackendError as error:
        raise Misconfigured(str(error)) from error


async def claim_all(
    topology: Topology, store: JournalTables, timing: Timing, *, anyway: Collection[str] = ()
) -> dict[str, str]:
    """Mark every backend as this site's, once each of them was checked. *anyway*: names of those that are marked also
    where none of the blocks that should lie there does. Answers those that were left as they are, by name, and why:
    their markers are of a later incarnation, and the others do not agree (`agreement`). Backends that were given up as
    lost are not asked at all.

    Raises `Misconfigured`, and has claimed none, where one bears a marker that does not give way, or bears none and
    either lacks the blocks that should lie there or holds what is not this site's."""
    ids = _ids(store)
    opened: dict[str, Backend] = {}
    later: dict[str, ActiveElsewhere] = {}
    try:
        for name, place in topology.backends.items():
            number, lost = ids[name]
            if lost:
                continue
            awaited = bool(_sample(number, store))
            opened[name] = await (
                _opened(place, timing) if awaited else open_backend(place, writes_much=False, make=True, timing=timing)
            )
            held, wanted = await opened[name].marker(), _wanted(store, number)
            if held is not None and held.site == wanted.site and held.incarnation > wanted.incarnation:
                later[name] = RestoredElsewhere(check_claim(held, wanted) or "", backend=name)
                continue
            _see_that_it_gives_way(opened[name], held, wanted, _others(store, number))
            found = _Sample(0, 0, "") if held is not None else await _looked(opened[name], number, store)
            empty = awaited and found.looked_for > 0 and not found.there
            if (found.strange or empty) and name not in anyway:
                raise Misconfigured(f"backend {name!r}: {_told(found)} No backend was claimed")
        require_active_here(topology.backends, later)
        for name in opened.keys() - later.keys():
            await opened[name].claim(_wanted(store, ids[name][0]))
    except backend_errors.BackendError as error:
        raise Misconfigured(str(error)) from error
    finally:
        await close_all(opened.values())
    return {name: said.message for name, said in later.items()}


async def _claim(backend: Backend, number: int, rows: JournalTables, *, anyway: bool) -> ClaimResult:
    wanted, held = _wanted(rows, number), await backend.marker()
    found = await _looked(backend, number, rows)
    if held is not None and held.without_fence == wanted:
        return ClaimResult(backend.name, False, held.incarnation, found.looked_for, found.there)
    _see_that_it_gives_way(backend, held, wanted, _others(rows, number))
    if (found.strange or (found.looked_for and not found.there)) and not anyway:
        raise Misconfigured(f"backend {backend.name!r}: {_told(found)}. Nothing was done; --anyway claims it as it is")
    await backend.claim(wanted)
    return ClaimResult(backend.name, True, held.incarnation if held else 0, found.looked_for, found.there)


async def _opened(place: BackendPlace, timing: Timing) -> Backend:
    """A folder may have lost all that the driver keeps there; but neither it nor a bucket is made anew: the one that is
    wanted is elsewhere."""
    if place.s3 is None and not os.path.isdir(place.path):
        told = f"{place.path}: there is no such folder; mount its disk, or make it if that is gone for good"
        raise backend_errors.Misconfigured(told, backend=place.name)
    return await open_backend(place, writes_much=False, make=place.s3 is None, timing=timing)


def _see_that_it_gives_way(backend: Backend, held: Marker | None, wanted: Marker, others: Collection[int]) -> None:
    """Raises `OwnedByAnotherSite` unless *held* gives way to *wanted*: also where it says that this is the place of
    another backend of this site, which the rule for claims does not know."""
    why = check_claim(held, wanted)
    if why is None and held is not None and held.backend in others:
        why = f"it is the place of another backend of this site, {held.backend}; are two places swapped in the config?"
    if why is not None:
        raise backend_errors.OwnedByAnotherSite(why, backend=backend.name)


async def _looked(backend: Backend, number: int, rows: JournalTables) -> _Sample:
    """Whether some of the blocks that should lie there do; and, where not one does, what does instead."""
    sample = _sample(number, rows)
    there = 0
    for block in sample:
        try:
            await backend.stat(block_path(block))
        except (backend_errors.NotFound, backend_errors.Corrupted):
            continue
        there += 1
    return _Sample(len(sample), there, "" if there else await _first(backend))


def _sample(number: int, rows: JournalTables) -> list[bytes]:
    """Some of the oldest and of the youngest blocks that the journal has there."""
    sets = sets_containing(rows, number)
    marks = ", ".join("?" * len(sets))
    found: dict[bytes, None] = {}
    for order in ("ASC", "DESC"):
        statement = f"SELECT id FROM block WHERE backends IN ({marks}) AND died = 0 ORDER BY id {order} LIMIT ?"
        found |= dict.fromkeys(block for (block,) in rows.query(statement, (*sets, SAMPLE // 2)))
    return list(found)


async def _first(backend: Backend) -> str:
    async with aclosing(backend.list()) as listed:  # type: ignore[type-var] # every driver's is a generator
        async for line in listed:
            return line.key
    return ""


def _told(found: _Sample) -> str:
    if found.looked_for:
        first = f"none of {found.looked_for} blocks that should lie there does"
    else:
        first = "it bears no marker, and nothing of this site should lie there"
    return f"{first}{f', and {found.strange!r} does' if found.strange else ''}; is it the right folder or bucket?"


def _wanted(rows: JournalTables, number: int) -> Marker:
    site, incarnation = site_row(rows)
    return Marker(site, number, incarnation)


def _ids(rows: JournalTables) -> dict[str, tuple[int, bool]]:
    """Each backend's id, and whether it was given up."""
    return {name: (number, bool(lost)) for name, number, lost in rows.query("SELECT name, id, lost FROM backend")}


def _others(rows: JournalTables, number: int) -> set[int]:
    return {each for each, _ in _ids(rows).values()} - {number}


def plain(found: ClaimResult) -> dict[str, Any]:
    """Plain values."""
    return found._asdict()


def spell(found: ClaimResult) -> list[str]:
    """For people."""
    if not found.claimed:
        first = f"backend {found.backend} bears this site's marker already: nothing was done"
    else:
        before = f", and not that of incarnation {found.before}" if found.before else ""
        first = f"backend {found.backend} bears this site's marker again{before}: it is written on within seconds"
    if not found.looked_for:
        return [first, "no block should lie there"]
    more = "" if found.there == found.looked_for else "; `entrepot fsck --mend` finds all that are not, and mends them"
    return [first, f"{found.there} of {found.looked_for} blocks that were looked for are there{more}"]
