"""Registers new backends, policies and sets of backends with the journal, and claims new places, before they are used.

For a new backend the order is: its name gets an id, its place is claimed (its marker is written), and the set of this
backend alone gets an id. The existence of that set proves that the place was claimed. If a process is killed in
between, the backend has an id and no such set, and it is claimed again, which is harmless. So a place that loses its
marker later is never taken for a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from backends import errors as backend_errors
from backends.base import Marker
from gateway import failpoints
from gateway.errors import Misconfigured, Unavailable
from gateway.journal.client import Journal
from gateway.journal.columns import pack
from gateway.placement.commands import NameBackend, NameBackendSet, NamePolicy
from gateway.site.storage.backend_factory import open_backend
from gateway.site.storage.keyring import JournalTables
from gateway.site.storage.marker_guard import site_row
from gateway.site.storage.open_backends import close_all
from gateway.site.storage.write_targets import sets_of
from gateway.timing import Timing
from gateway.topology import BackendPlace, Topology

_log = logging.getLogger(__name__)


async def register_backends(topology: Topology, journal: Journal, rows: JournalTables) -> dict[str, str]:
    """Register and claim everything that *topology* names and the journal does not know. Returns, by name, why new
    backends could not be claimed. These have ids, but no set of backends contains them, so nothing is written there.
    If nothing is new, this costs a few queries."""
    ids = {name: await _backend(name, journal, rows) for name in topology.backends}
    unclaimed: dict[str, str] = {}
    for name, backend_id in ids.items():
        if not _set_known(rows, [backend_id]):
            failpoints.reach("init-named")
            try:
                await _claim(topology.backends[name], backend_id, rows, journal.timing)
            except (backend_errors.BackendError, Misconfigured) as error:
                unclaimed[name] = str(error)
            else:
                failpoints.reach("init-claimed")
                await journal.send(NameBackendSet((backend_id,)))
    for names in sets_of(topology):
        members = [ids[name] for name in names]
        if members and not unclaimed.keys() & set(names) and not _set_known(rows, members):
            await journal.send(NameBackendSet(tuple(members)))
    for name in topology.policies:
        if not rows.query("SELECT 1 FROM policy WHERE name = ?", (name,)):
            await journal.send(NamePolicy(name))
    return unclaimed


async def keep_registering(
    topology: Callable[[], Topology], journal: Journal, rows: JournalTables, timing: Timing
) -> None:
    """Retry periodically to claim what could not be claimed when the site was opened. Runs in the keeper until
    cancelled."""
    unclaimed_before: dict[str, str] = {}
    while True:
        await timing.clock.sleep(timing.backends.claim_seconds)
        try:
            unclaimed = await register_backends(topology(), journal, rows)
        except Unavailable:
            continue  # no committer runs at the moment
        for name in unclaimed_before.keys() - unclaimed.keys():
            _log.warning("backend %r was claimed, and is in use from now on", name)
        unclaimed_before = unclaimed


async def _backend(name: str, journal: Journal, rows: JournalTables) -> int:
    ids = rows.query("SELECT id FROM backend WHERE name = ?", (name,))
    return int(ids[0][0]) if ids else int(await journal.send(NameBackend(name)))


def _set_known(rows: JournalTables, members: list[int]) -> bool:
    return bool(rows.query("SELECT 1 FROM backend_set WHERE members = ?", (pack(sorted(members)),)))


async def _claim(place: BackendPlace, backend_id: int, rows: JournalTables, timing: Timing) -> None:
    site, incarnation = site_row(rows)
    backend = await open_backend(place, writes_much=False, make=True, timing=timing)
    try:
        await backend.claim(Marker(site, backend_id, incarnation))
    finally:
        await close_all([backend])
