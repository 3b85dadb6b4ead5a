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


class Registrar:
    """Retries to claim what could not be claimed when the site was opened. Used by the keeper."""

    def __init__(self, topology: Callable[[], Topology], journal: Journal, rows: JournalTables, timing: Timing) -> None:
        self._topology, self._journal, self._rows, self._timing = topology, journal, rows, timing
        self.unclaimed: dict[str, str] = {}
        """By name, why backends could not be claimed in the last attempt."""

    async def run(self) -> None:
        """Try periodically, until cancelled."""
        while True:
            try:
                unclaimed = await register_backends(self._topology(), self._journal, self._rows)
            except Unavailable:
                pass  # no committer runs at the moment
            else:
                for name in self.unclaimed.keys() - unclaimed.keys():
                    _log.warning("backend %r was claimed, and is in use from now on", name)
                for name, why in unclaimed.items():
                    if self.unclaimed.get(name) != why:
                        _log.error("backend %r could not be claimed: %s", name, why)
                self.unclaimed = unclaimed
            await self._timing.clock.sleep(self._timing.backends.claim_seconds)


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
