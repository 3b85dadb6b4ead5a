"""Look-ups of runs, bodies, blocks and sets of backends in the journal's tables.

These are point queries on this process's read-only store, which take a few µs each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.base import Backend
from gateway.blocks.protocols import TableReader
from gateway.blocks.types import BlockFacts, Target
from gateway.errors import Corrupted
from gateway.journal.columns import Extent, unpack, unpack_extents
from gateway.placement.routes import Routes


class Lookup:
    """Runs, bodies, blocks and sets of backends by their ids. For one thread."""

    def __init__(self, store: TableReader, backends: Mapping[int, Backend], routes: Routes | None = None) -> None:
        """*backends*: those that this process has opened, by the journal's ids. The mapping may change later."""
        self._store = store
        self._backends = backends
        self._routes = routes or Routes()
        self._sets: dict[int, tuple[int, ...]] = {}  # an interned set never changes, and there are few
        self._copies: dict[int, tuple[Target, ...]] = {}  # by set; valid for `_copies_version`
        self._copies_version = (self._routes.version, len(backends))

    def facts(self, block_id: bytes) -> BlockFacts | None:
        """Return a block's facts; None if the journal does not name it."""
        rows = self._store.query("SELECT ring_key, size, backends FROM block WHERE id = ?", (block_id,))
        return BlockFacts._make(rows[0]) if rows else None

    def copies_of(self, facts: BlockFacts) -> tuple[Target, ...]:
        """Return the backends that hold a block and are open in this process, the best by the topology first."""
        version = (self._routes.version, len(self._backends))
        if version != self._copies_version:
            self._copies.clear()
            self._copies_version = version
        copies = self._copies.get(facts.backends)
        if copies is None:
            order = self._routes.static_order(self.members(facts.backends))
            copies = tuple(Target(self._backends[each], each) for each in order if each in self._backends)
            self._copies[facts.backends] = copies
        return copies

    def members(self, set_id: int) -> tuple[int, ...]:
        """Return the ids of the backends of an interned set. Raises `Corrupted` if there is no such set."""
        members = self._sets.get(set_id)
        if members is None:
            rows = self._store.query("SELECT members FROM backend_set WHERE id = ?", (set_id,))
            if not rows:
                raise Corrupted(f"the journal has no set of backends {set_id}")
            members = self._sets[set_id] = unpack(rows[0][0])
        return members

    def extents_of(self, run: int) -> list[Extent]:
        """Return a run's extents. Raises `Corrupted` if there is no such run."""
        rows = self._store.query("SELECT extents FROM run WHERE id = ?", (run,))
        if not rows:
            raise Corrupted(f"the journal has no run {run}")
        return unpack_extents(rows[0][0])

    def extent_at(self, run: int, nth: int) -> Extent | None:
        """Return the *nth* extent of a run as the journal has it now; None if the run is deleted."""
        rows = self._store.query("SELECT extents FROM run WHERE id = ?", (run,))
        run_extents = unpack_extents(rows[0][0]) if rows else []
        return run_extents[nth] if nth < len(run_extents) else None

    def pieces_of(self, body: int) -> Sequence[tuple[int, int, int]]:
        """Return a body's pieces: (run, offset, length). Raises `Corrupted` if there is no such body."""
        rows = self._store.query("SELECT pieces FROM body WHERE id = ?", (body,))
        if not rows:
            raise Corrupted(f"the journal has no body {body}")
        return unpack(rows[0][0]) or ()
