"""What a reload of a config would do, without doing it: for `entrepot config check --open` and `entrepot plan`.

Nothing is changed: backends are opened for reading only, and the journal is only read.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Marker, check_claim
from gateway.config import Config
from gateway.errors import EntrepotError, Misconfigured
from gateway.journal.columns import unpack
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.placement.desired import StoredBlock
from gateway.placement.movement import BlockGroup, Movement, movement
from gateway.site.active_config import settings_needing_restart
from gateway.site.admin.lost_objects import lost_backends
from gateway.site.reload_checks import check_not_lost, check_not_needed
from gateway.site.site_view import SiteView
from gateway.site.storage.open_to_read import read_marker, would_create_bucket
from gateway.timing import Timing
from gateway.topology import BackendPlace, Topology

_GROUPS = "SELECT policy, backends, count(*), sum(size) FROM block WHERE died = 0 GROUP BY policy, backends"


class BackendCheck(NamedTuple):
    """What was found where the config says that a backend is."""

    backend: str
    is_new: bool
    """Whether the journal does not know it yet, so that a reload would claim it."""
    problem: str
    """Why it cannot be used; empty if it can."""
    remark: str = ""
    """What a reload would do there, or what the operator should know."""


class ConfigPlan(NamedTuple):
    """What a reload would do."""

    version: str
    in_force: str
    """The version of the config in force."""
    restart: tuple[str, ...]
    """The settings that only a restart of `entrepot serve` adopts."""
    refused: tuple[str, ...]
    """Why a reload would be refused, one sentence for each reason."""
    backends: tuple[BackendCheck, ...]
    movement: Movement

    @property
    def ok(self) -> bool:
        """Whether a reload would succeed, as far as can be known before."""
        return not self.restart and not self.refused and not any(each.problem for each in self.backends)


async def plan_config(site: SiteView, config: Config) -> ConfigPlan:
    """Return what a reload of *config* would do to *site*."""
    topology = config.topology(site.folder)
    names = sorted(topology.backends)
    checks = await asyncio.gather(*(_check_backend(site, topology.backends[name], site.timing) for name in names))
    return ConfigPlan(
        config.version,
        site.config.version,
        tuple(settings_needing_restart(site.config, config)),
        tuple(await _reasons_for_refusal(site, topology)),
        tuple(checks),
        await asyncio.to_thread(plan_movement, site.journal_path, topology),
    )


def plan_movement(journal: Path, topology: Topology) -> Movement:
    """Return the copies that *topology* would have the keeper make and drop. Blocking: counts all blocks."""
    store = ReadStore(JournalPaths(journal).database, cache_kib=8_192)
    try:
        with store.snapshot():
            return movement(_groups(store), topology, lost_backends(store))
    finally:
        store.close()


def _groups(store: ReadStore) -> Iterable[BlockGroup]:
    names = dict(store.query("SELECT id, name FROM backend"))
    policies = dict(store.query("SELECT id, name FROM policy"))
    sets = {number: unpack(members) for members, number in store.query("SELECT members, id FROM backend_set")}
    for policy, set_id, blocks, size in store.query(_GROUPS):
        held = frozenset(names[member] for member in sets[set_id])
        yield BlockGroup(StoredBlock(policies.get(policy, ""), held), blocks, size)


async def _reasons_for_refusal(site: SiteView, topology: Topology) -> list[str]:
    """Return why the journal's contents do not allow *topology*."""
    before, reasons = site.config.topology(site.folder), list[str]()
    try:
        check_not_lost(before, topology, site.store)
    except Misconfigured as error:
        reasons += str(error).splitlines()
    try:
        await check_not_needed(before, topology, site.journal_path)
    except Misconfigured as error:
        reasons += str(error).splitlines()
    return reasons


async def _check_backend(site: SiteView, place: BackendPlace, timing: Timing) -> BackendCheck:
    """Open the backend at *place* for reading, and compare its marker with what it should be."""
    found = site.store.query("SELECT id, lost FROM backend WHERE name = ?", (place.name,))
    backend_id, lost = (int(found[0][0]), bool(found[0][1])) if found else (0, False)
    is_new = not found
    if lost:
        return BackendCheck(place.name, False, "", "it was given up as lost, and is not used")
    if is_new and place.s3 is None and not os.path.isdir(place.path):
        above = os.path.dirname(os.path.abspath(place.path))
        problem = "" if os.path.isdir(above) else f"{above} is not a folder"
        return BackendCheck(place.name, True, problem, "" if problem else f"a reload creates the folder {place.path}")
    try:
        held = await read_marker(place, timing)
    except (backend_errors.BackendError, EntrepotError) as error:
        return _unreadable(place, is_new, error)
    return BackendCheck(place.name, is_new, *_compare(site, held, backend_id, is_new))


def _unreadable(place: BackendPlace, is_new: bool, error: Exception) -> BackendCheck:
    message = error.message if isinstance(error, backend_errors.BackendError) else str(error)
    if is_new and isinstance(error, backend_errors.Misconfigured):
        if place.s3 is None:
            return BackendCheck(place.name, True, "", f"a reload claims the folder {place.path}")
        if would_create_bucket(place, error):
            return BackendCheck(place.name, True, "", f"a reload creates the bucket {place.s3.bucket}")
    return BackendCheck(place.name, is_new, message)


def _compare(site: SiteView, held: Marker | None, backend_id: int, is_new: bool) -> tuple[str, str]:
    """Return the problem with the marker *held*, and a remark."""
    if held is None:
        if is_new:
            return "", "a reload claims it"
        return "it does not have this site's marker: is its disk mounted, is it the right bucket?", ""
    if is_new:
        if held.site == site.id:
            return "", "it has a marker of this site already: was a backend renamed, or is a claim unfinished?"
        return check_claim(held, Marker(site.id, 0, site.incarnation)) or "", ""
    wanted = Marker(site.id, backend_id, site.incarnation)
    if held.without_fence == wanted:
        return "", ""
    return check_claim(held, wanted) or f"it has the marker of an older incarnation ({held.incarnation})", ""
