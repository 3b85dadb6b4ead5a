"""The block storage of one process: the backends of the site, and what chooses, writes and reads copies on them."""

from __future__ import annotations

import gc
from collections.abc import Iterable

from gateway.blocks.budget import Budget
from gateway.blocks.inline.values import InlineValues
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
from gateway.site.storage.backend_trouble import BackendTrouble
from gateway.site.storage.fencing import Fencing
from gateway.site.storage.keyring import JournalTables, Keyring
from gateway.site.storage.open_backends import OpenBackends
from gateway.site.storage.suspect_reporter import SuspectReporter
from gateway.site.storage.write_targets import WriteTargets
from gateway.timing import Timing
from gateway.topology import Topology

CACHED = counter("entrepot_cache_lookups_total", "Look-ups in caches, by outcome.", ("cache", "outcome"))
IN_FLIGHT = gauge("entrepot_bytes_in_flight", "Bytes that running requests hold.", ("direction",))

WRITING_SHARE = 0.6
"""Share of a process's bytes in flight that writes may use. Reads use the rest."""


class BlockStorage:
    """Writes and reads blocks for one process. Made by `open`."""

    def __init__(
        self,
        topology: Topology,
        pool: BackendPool,
        inline: InlineValues,
        rows: JournalTables,
        keyring: Keyring,
        journal: Journal,
        bytes_in_flight: int,
        wait_seconds: float | None,
        timing: Timing,
    ) -> None:
        """Use `open` instead."""
        self.topology = topology
        self.inline = inline
        self.backends: OpenBackends = pool.backends
        """Backends by the journal's ids. The mapping is never replaced; reloads add to it and remove from it."""
        self.write_targets = WriteTargets(rows, pool.backends, topology, timing)
        self.routes = Routes(
            _placed_backends(rows, topology).values(), topology.home, topology.lines, timing=timing.routes
        )
        self.lookup = Lookup(rows, pool.backends, self.routes)
        writing = int(bytes_in_flight * WRITING_SHARE)
        self.writer = Writer(
            lambda: journal.session,
            journal.reading,
            Budget(writing),
            wait_seconds=wait_seconds,
            inline=inline,
            timing=timing,
        )
        self._pool = pool
        self._rows = rows
        self._clock = timing.clock
        self._keys = BlockKeys(keyring.sealing)
        self._reading = Budget(bytes_in_flight - writing)
        self._suspect_reporter = SuspectReporter(journal, timing)
        lookup = self.lookup
        copies = CopyReader(
            lookup.facts, lookup.copies_of, self._keys, lookup.extent_at,
            routes=self.routes, report=self._suspect_reporter, timing=timing,
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
        journal_device: int | None = None,
        inline_bytes: int = 0,
        timing: Timing,
        wait_seconds: float | None = None,
        strict: bool = True,
        stamps: bool = False,
        read_only: bool = False,
    ) -> BlockStorage:
        """Open every backend and check that it is this site's.

        *writes_much*: see `open_backend`. *journal_device*: see `CheckedOpener`. *inline_bytes*: sealed blocks of at
        most this size may be attached to commands. *wait_seconds*: how long a write waits for memory (`Writer`).
        *stamps*: see `Fencing`. *read_only*: see `CheckedOpener`. *strict* and the errors raised: see
        `BackendPool.open`."""
        fencing = None if read_only else Fencing(rows, lambda: journal.session, timing.clock, stamps=stamps)
        inline = InlineValues(
            rows,
            journal,
            journal.attached,
            inline_bytes,
            accepts=lambda each: pool.accepts_inline_values(each),  # noqa: PLW0108 (the pool is made below)
        )
        pool = BackendPool(
            rows,
            timing=timing,
            writes_much=writes_much,
            journal_device=journal_device,
            inline=inline,
            fencing=fencing,
            read_only=read_only,
        )
        try:
            await pool.open(topology, strict=strict)
            return cls(topology, pool, inline, rows, keyring, journal, bytes_in_flight, wait_seconds, timing)
        except BaseException:
            await pool.close()
            raise

    @property
    def keys(self) -> BlockKeys:
        """The keys that open blocks."""
        return self._keys

    @property
    def targets(self) -> Targets:
        """The targets of writes under the policy `default`."""
        return self.write_targets.default

    async def check_openable(self, topology: Topology) -> None:
        """As `BackendPool.try_out`."""
        await self._pool.check_openable(topology)

    def backends_with_old_writes(self, names: Iterable[str]) -> list[str]:
        """Return those of the backends *names* to which writes still go that began under an older topology."""
        self.writer.drop_idle_packers()
        ids = dict(self._rows.query("SELECT name, id FROM backend"))
        if any(self.write_targets.has_writes_to(ids[name]) for name in names if name in ids):
            gc.collect()  # a failed write may be kept alive only by the traceback of its own error
        return [name for name in names if name in ids and self.write_targets.has_writes_to(ids[name])]

    async def open_new_backends(self, topology: Topology) -> None:
        """Open the backends that only the new *topology* names. They can be read from now on, and are not written
        to."""
        await self._pool.open(topology, strict=False)
        self._update_routes(topology)

    async def adopt(self, topology: Topology) -> None:
        """Switch to another topology, whose names the journal knows. Running writes keep the targets they began
        with."""
        await self._pool.open(topology, strict=False)
        await self._pool.renew(topology)
        self.topology = topology
        self.write_targets.set_topology(topology)
        self._update_routes(topology)
        await self._pool.close_removed(topology)

    def _update_routes(self, to: Topology) -> None:
        """Let the routes lead to the backends that *to* names, over the lines of the topology in force."""
        self.routes.set_topology(_placed_backends(self._rows, to).values(), self.topology.home, self.topology.lines)

    async def stamp(self) -> None:
        """See `BackendPool.stamp`."""
        await self._pool.stamp()

    def covers(self, backend_id: int, number: int) -> bool:
        """See `BackendPool.covers`."""
        return self._pool.covers(backend_id, number)

    def pending(self) -> dict[str, str]:
        """See `BackendPool.pending`."""
        return self._pool.pending()

    def troubles(self) -> dict[str, BackendTrouble]:
        """See `BackendPool.troubles`."""
        return self._pool.troubles()

    async def watch_markers(self) -> None:
        """See `BackendPool.watch`."""
        await self._pool.watch()

    def count(self) -> None:
        """Update the metrics from the counters of the parts."""
        info = self._keys.opener.cache_info()
        CACHED.reach(info.hits, "block keys", "hit")
        CACHED.reach(info.misses, "block keys", "miss")
        IN_FLIGHT.set(self.writer.budget.used, "writing")
        IN_FLIGHT.set(self._reading.used, "reading")
        self._pool.count()
        set_circuits(self.routes.health_by_name(self._clock.monotonic()))

    async def close(self) -> None:
        """Finish the writes that are under way, and close the backends even if that fails."""
        try:
            await self._suspect_reporter.close()
            await self.writer.close()
        finally:
            await self._pool.close()


def _placed_backends(rows: JournalTables, topology: Topology) -> dict[str, policy.PlacedBackend]:
    return policy.placed_backends(topology, dict(rows.query("SELECT name, id FROM backend")))
