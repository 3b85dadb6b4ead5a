"""What the config names anew is made known to the journal, and claimed, before anybody uses it.

Backends, policies and sets of backends have ids there. The order is: a backend's name, the claim of its place, the set
of that backend alone. That set says for good that the place was claimed; a backend that has a name and no such set was
cut off in between, and is claimed again, which changes nothing where it was done. So a place that lost its marker later
is never taken for a new one.
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
    """Name and claim all that is new. Answers the new backends that could not be claimed, by name, and why: they have
    names, and no set of theirs does, so nothing is written there yet. Done before, it costs a few look-ups."""
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
    """Claim what could not be claimed when the site was opened, once that can be; until cancelled. The keeper's."""
    told: dict[str, str] = {}
    while True:
        await timing.clock.sleep(timing.backends.claim_seconds)
        try:
            unclaimed = await register_backends(topology(), journal, rows)
        except Unavailable:
            continue  # nobody commits at the moment
        for name in told.keys() - unclaimed.keys():
            _log.warning("backend %r was claimed, and is in use from now on", name)
        told = unclaimed


async def _backend(name: str, journal: Journal, rows: JournalTables) -> int:
    found = rows.query("SELECT id FROM backend WHERE name = ?", (name,))
    return int(found[0][0]) if found else int(await journal.send(NameBackend(name)))


def _set_known(rows: JournalTables, members: list[int]) -> bool:
    return bool(rows.query("SELECT 1 FROM backend_set WHERE members = ?", (pack(sorted(members)),)))


async def _claim(place: BackendPlace, backend_id: int, rows: JournalTables, timing: Timing) -> None:
    site, incarnation = site_row(rows)
    backend = await open_backend(place, writes_much=False, make=True, timing=timing)
    try:
        await backend.claim(Marker(site, backend_id, incarnation))
    finally:
        await close_all([backend])
