"""The part of a site where bytes lie: its backends, opened and checked, and what writes and reads blocks there."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress

from backends import errors as backend_errors
from backends.base import Backend, Marker
from backends.local import INTAKE_BYTES, Local
from backends.wrappers import Deadlined, Limited, Metered
from gateway.blocks.budget import Budget
from gateway.blocks.copies import Copies
from gateway.blocks.lookup import Lookup
from gateway.blocks.reader import Reader
from gateway.blocks.values import Target, Targets
from gateway.blocks.writer import Writer
from gateway.crypto.sealing import BlockKeys
from gateway.errors import EntrepotError, Misconfigured
from gateway.journal.client import Journal
from gateway.metrics import counter, gauge, histogram
from gateway.placement import policy
from gateway.placement.routes import Routes
from gateway.site.ring import Ring, Rows
from gateway.topology import BackendPlace, Topology

CALLS = counter("entrepot_backend_calls_total", "Calls of backends.", ("backend", "verb", "outcome"))
SECONDS = histogram("entrepot_backend_seconds", "How long calls of backends took.", ("backend", "verb"))
MOVED = counter("entrepot_backend_bytes_total", "Sealed bytes that calls of backends moved.", ("backend", "verb"))

CACHED = counter("entrepot_cache_lookups_total", "Look-ups in caches, and whether it was there.", ("cache", "outcome"))
IN_FLIGHT = gauge("entrepot_bytes_in_flight", "Bytes that requests under way hold.", ("direction",))

WRITING_SHARE = 0.6
"""Of a process's bytes in flight; reading has the rest."""


class Names:
    """The ids that the journal gave to what the config names."""

    def __init__(self, rows: Rows, topology: Topology) -> None:
        """Raises `Misconfigured` for a backend or policy that the journal has not met."""
        self.backends = {name: _named(rows, "backend", name) for name in topology.backends}
        self.policy = _named(rows, "policy", topology.default.name)


class Warehouse:
    """What a process writes and reads blocks with."""

    def __init__(
        self,
        backends: Mapping[int, Backend],
        targets: Targets,
        lookup: Lookup,
        writer: Writer,
        reader: Reader,
        keys: BlockKeys,
        reading: Budget,
        rows: Rows,
    ) -> None:
        self._rows = rows
        self.backends = backends
        self.targets = targets
        self.lookup = lookup
        self.writer = writer
        self.reader = reader
        self._keys = keys
        self._reading = reading

    @classmethod
    async def open(
        cls,
        topology: Topology,
        rows: Rows,
        ring: Ring,
        journal: Journal,
        bytes_in_flight: int,
        *,
        writes_much: bool,
        wait_seconds: float | None = None,
    ) -> Warehouse:
        """Open every backend and see that it is this site's. *wait_seconds*: the writer's. Raises `Misconfigured`."""
        names = Names(rows, topology)
        places = policy.places(topology, names.backends)
        backends: dict[int, Backend] = {}
        try:
            for name, place in topology.backends.items():
                backends[names.backends[name]] = await open_backend(place, writes_much=writes_much)
            await _check_markers(backends, rows)
        except backend_errors.BackendError as error:
            await _close(backends.values())
            raise Misconfigured(str(error)) from error
        except BaseException:
            await _close(backends.values())
            raise
        wanted = policy.targets(topology.default, topology, places)
        copies = tuple(Target(backends[place.id], place.id) for place in wanted)
        targets = Targets(names.policy, _set_id(rows, [place.id for place in wanted]), copies)
        routes = Routes(places.values(), topology.home, topology.lines)
        lookup = Lookup(rows, backends, routes)
        writing = int(bytes_in_flight * WRITING_SHARE)
        writer = Writer(lambda: journal.session, journal.reading, Budget(writing), wait_seconds=wait_seconds)
        keys = BlockKeys(ring.sealing)
        reading = Budget(bytes_in_flight - writing)
        reader = Reader(Copies(lookup.facts, lookup.copies_of, keys, lookup.extent_at, routes=routes), reading)
        return cls(backends, targets, lookup, writer, reader, keys, reading, rows)

    async def check_markers(self) -> None:
        """See that every backend still bears this site's marker. Raises `Misconfigured` if one does not, and
        `BackendError` where it cannot be seen now."""
        await _check_markers(self.backends, self._rows)

    def count(self) -> None:
        """Bring what its parts counted themselves to the metrics."""
        info = self._keys.opener.cache_info()
        CACHED.reach(info.hits, "block keys", "hit")
        CACHED.reach(info.misses, "block keys", "miss")
        IN_FLIGHT.set(self.writer.budget.used, "writing")
        IN_FLIGHT.set(self._reading.used, "reading")

    async def close(self) -> None:
        """Store what is on its way, and let go of the backends, whatever becomes of that."""
        try:
            await self.writer.close()
        finally:
            await _close(self.backends.values())


DESCRIPTORS_MAX = 16_384
CONNECTIONS = 12_288


async def open_backend(place: BackendPlace, *, writes_much: bool) -> Backend:
    """The backend as every process uses it: limited, with a deadline, and metered. Who does not write much is spared
    the logs that make small writes fast. Raises `backends.errors`."""
    if place.s3 is not None:
        raise backend_errors.Misconfigured("there is no driver for S3 yet", backend=place.name)
    inner = await Local.open(
        place.path,
        name=place.name,
        descriptors=_descriptors(),
        intake_bytes=INTAKE_BYTES if writes_much else 0,
    )
    return Metered(Deadlined(Limited(inner, place.calls), place.deadline_seconds), _observer(place.name))


def _descriptors() -> int:
    """How many of a backend's files are kept open, so that a small read is one system call: what the process may open
    beyond its connections' share, which is twelve thousand, or three quarters where there are not so many."""
    may, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, min(DESCRIPTORS_MAX, max(may - CONNECTIONS, may // 4)))


def _observer(name: str) -> Callable[[str, str, float, int], None]:
    def observe(verb: str, outcome: str, seconds: float, moved: int) -> None:
        CALLS.add(1, name, verb, outcome)
        SECONDS.observe(seconds, name, verb)
        if moved:
            MOVED.add(moved, name, verb)

    return observe


async def _check_markers(backends: Mapping[int, Backend], rows: Rows) -> None:
    """A place that bears no marker, or another's, is not the one that was claimed: a disk that is not mounted, a
    site that was restored elsewhere. Nothing must be written there, and nothing can be read."""
    (site, incarnation) = site_row(rows)
    for backend_id, backend in backends.items():
        wanted = Marker(site, backend_id, incarnation)
        held = await backend.marker()
        if held is None:
            raise Misconfigured(f"backend {backend.name!r} does not bear this site's marker: is its disk mounted?")
        if held != wanted:
            raise Misconfigured(
                f"backend {backend.name!r} belongs to site {held.site}, incarnation {held.incarnation}, as backend "
                f"{held.backend}; this is site {site}, incarnation {incarnation}, backend {backend_id}"
            )


def site_row(rows: Rows) -> tuple[str, int]:
    """The site's id and incarnation. Raises `Misconfigured` if it was never founded."""
    found = rows.query("SELECT id, incarnation FROM site")
    if not found:
        raise Misconfigured("the journal is empty: the site was not founded")
    return found[0][0], found[0][1]


def _named(rows: Rows, table: str, name: str) -> int:
    found = rows.query(f"SELECT id FROM {table} WHERE name = ?", (name,))
    if not found:
        raise Misconfigured(f"the journal has not met the {table} {name!r} that the config names")
    return int(found[0][0])


def _set_id(rows: Rows, members: Sequence[int]) -> int:
    from gateway.journal.packed import pack

    found = rows.query("SELECT id FROM backend_set WHERE members = ?", (pack(sorted(members)),))
    if not found:
        raise Misconfigured("the journal has not met the set of backends that the policy names")
    return int(found[0][0])


async def _close(backends: Iterable[Backend]) -> None:
    """All of them, whatever one of them raises."""
    async with AsyncExitStack() as held:
        for backend in backends:
            held.push_async_callback(_close_one, backend)


async def _close_one(backend: Backend) -> None:
    with suppress(backend_errors.BackendError, EntrepotError):
        await backend.close()
