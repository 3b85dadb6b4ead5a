"""The part of a site where bytes lie: its backends, what picks among them, and what writes and reads blocks there."""

from __future__ import annotations

import gc
from collections.abc import Iterable

from gateway.blocks.budget import Budget
from gateway.blocks.metrics import set_circuits
from gateway.blocks.read.copy_reader import CopyReader
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.read.reader import Reader
from gateway.blocks.types import Targets
from gateway.blocks.write.writer import Writer
from gateway.crypto.sealing import BlockKeys
from gateway.journal.client import Journal
from gateway.metrics import counter, gauge
from gateway.placement import policy
from gateway.placement.routes import Routes
from gateway.site.storage.backend_pool import BackendPool
from gateway.site.storage.fencing import Fencing
from gateway.site.storage.keyring import JournalTables, Keyring
from gateway.site.storage.open_backends import OpenBackends
from gateway.site.storage.suspect_reporter import SuspectReporter
from gateway.site.storage.write_targets import WriteTargets
from gateway.timing import Timing
from gateway.topology import Topology

CACHED = counter("entrepot_cache_lookups_total", "Look-ups in caches, and whether it was there.", ("cache", "outcome"))
IN_FLIGHT = gauge("entrepot_bytes_in_flight", "Bytes that requests under way hold.", ("direction",))

WRITING_SHARE = 0.6
"""Of a process's bytes in flight; reading has the rest."""


class BlockStorage:
    """What a process writes and reads blocks with."""

    def __init__(
        self,
        topology: Topology,
        pool: BackendPool,
        rows: JournalTables,
        keyring: Keyring,
        journal: Journal,
        bytes_in_flight: int,
        wait_seconds: float | None,
        timing: Timing,
    ) -> None:
        """Only `open` makes one."""
        self.topology = topology
        self.backends: OpenBackends = pool.backends
        """By the journal's ids; the same mapping for good, while a reload adds to it and takes from it."""
        self.write_targets = WriteTargets(rows, pool.backends, topology, timing)
        self.routes = Routes(
            _placed_backends(rows, topology).values(), topology.home, topology.lines, timing=timing.routes
        )
        self.lookup = Lookup(rows, pool.backends, self.routes)
        writing = int(bytes_in_flight * WRITING_SHARE)
        self.writer = Writer(
            lambda: journal.session, journal.reading, Budget(writing), wait_seconds=wait_seconds, timing=timing
        )
        self._pool = pool
        self._rows = rows
        self._clock = timing.clock
        self._keys = BlockKeys(keyring.sealing)
        self._reading = Budget(bytes_in_flight - writing)
        self._suspecting = SuspectReporter(journal, timing)
        lookup = self.lookup
        copies = CopyReader(
            lookup.facts, lookup.copies_of, self._keys, lookup.extent_at,
            routes=self.routes, report=self._suspecting, timing=timing,
        )  # fmt: skip
        self.reader = Reader(copies, self._reading)

    @classmethod
    async def open(
        cls,
        topology: Topology,
        rows: JournalTables,
        keyring: Keyring,
        journal: Journal,
        bytes_in_flight: int,
        *,
        writes_much: bool,
        timing: Timing,
        wait_seconds: float | None = None,
        strict: bool = True,
        stamps: bool = False,
    ) -> BlockStorage:
        """Open every backend and see that it is this site's. *wait_seconds*: the writer's. *stamps*: as of `Fencing`.
        *strict*, and what is raised: as `BackendPool.open`."""
        fencing = Fencing(rows, lambda: journal.session, timing.clock, stamps=stamps)
        pool = BackendPool(rows, timing=timing, writes_much=writes_much, fencing=fencing)
        try:
            await pool.open(topology, strict=strict)
            return cls(topology, pool, rows, keyring, journal, bytes_in_flight, wait_seconds, timing)
        except BaseException:
            await pool.close()
            raise

    @property
    def keys(self) -> BlockKeys:
        """What opens blocks."""
        return self._keys

    @property
    def targets(self) -> Targets:
        """Where the policy `default` puts blocks."""
        return self.write_targets.default

    async def check_openable(self, topology: Topology) -> None:
        """As `BackendPool.try_out`."""
        await self._pool.check_openable(topology)

    def backends_with_old_writes(self, names: Iterable[str]) -> list[str]:
        """Those of these backends to which a write goes that began under an older topology."""
        self.writer.drop_idle_packers()
        ids = dict(self._rows.query("SELECT name, id FROM backend"))
        if any(self.write_targets.has_writes_to(ids[name]) for name in names if name in ids):
            gc.collect()  # what failed may be held by its own error alone
        return [name for name in names if name in ids and self.write_targets.has_writes_to(ids[name])]

    async def open_new_backends(self, topology: Topology) -> None:
        """Open the backends that *topology* names anew: they can be read from here on."""
        await self._pool.open(topology, strict=False)
        self._update_routes(topology)

    async def adopt(self, topology: Topology) -> None:
        """Go on under another topology, whose names the journal knows. What is under way goes on as it began."""
        await self._pool.open(topology, strict=False)
        await self._pool.renew(topology)
        self.topology = topology
        self.write_targets.set_topology(topology)
        self._update_routes(topology)
        await self._pool.close_removed(topology)

    def _update_routes(self, to: Topology) -> None:
        """The ways to the backends that *to* names, over the lines of the topology in force."""
        self.routes.set_topology(_placed_backends(self._rows, to).values(), self.topology.home, self.topology.lines)

    async def stamp(self) -> None:
        """As `BackendPool.stamp`."""
        await self._pool.stamp()

    def covers(self, place: int, number: int) -> bool:
        """As `BackendPool.covers`."""
        return self._pool.covers(place, number)

    def pending(self) -> dict[str, str]:
        """Backends that could not be opened yet, by name, and why."""
        return self._pool.pending()

    def problems(self) -> dict[str, str]:
        """Backends that cannot be used, or not be written on, by name, and why."""
        return self._pool.unstamped() | self._pool.pending() | self._pool.refusing()

    async def watch_markers(self) -> None:
        """As `BackendPool.watch`."""
        await self._pool.watch()

    def count(self) -> None:
        """Bring what its parts counted themselves to the metrics."""
        info = self._keys.opener.cache_info()
        CACHED.reach(info.hits, "block keys", "hit")
        CACHED.reach(info.misses, "block keys", "miss")
        IN_FLIGHT.set(self.writer.budget.used, "writing")
        IN_FLIGHT.set(self._reading.used, "reading")
        self._pool.count()
        set_circuits(self.routes.health_by_name(self._clock.monotonic()))

    async def close(self) -> None:
        """Store what is on its way, and let go of the backends, whatever becomes of that."""
        try:
            await self._suspecting.close()
            await self.writer.close()
        finally:
            await self._pool.close()


def _placed_backends(rows: JournalTables, topology: Topology) -> dict[str, policy.PlacedBackend]:
    return policy.placed_backends(topology, dict(rows.query("SELECT name, id FROM backend")))
