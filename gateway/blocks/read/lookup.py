"""What reading asks of the journal's tables: point queries on this process's read-only store, a few µs each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.base import Backend
from gateway.blocks.protocols import TableReader
from gateway.blocks.types import BlockFacts, Target
from gateway.errors import Corrupted
from gateway.journal.columns import Extent, extents, unpack
from gateway.placement.routes import Routes


class Lookup:
    """Runs, bodies, blocks and sets of backends by their ids. For one thread."""

    def __init__(self, store: TableReader, backends: Mapping[int, Backend], routes: Routes | None = None) -> None:
        """*backends*: those that this process has opened, by the journal's ids; there may come to be more."""
        self._store = store
        self._backends = backends
        self._routes = routes or Routes()
        self._sets: dict[int, tuple[int, ...]] = {}  # an interned set never changes, and there are few
        self._copies: dict[int, tuple[Target, ...]] = {}  # of those sets, as long as this stays as it is:
        self._known = (self._routes.version, len(backends))

    def facts(self, block: bytes) -> BlockFacts | None:
        """A block's facts; None if the journal does not name it."""
        rows = self._store.query("SELECT ring_key, size, backends FROM block WHERE id = ?", (block,))
        return BlockFacts._make(rows[0]) if rows else None

    def copies_of(self, facts: BlockFacts) -> tuple[Target, ...]:
        """The backends that hold a block, of those that are open here, best first as the topology has it."""
        known = (self._routes.version, len(self._backends))
        if known != self._known:
            self._copies.clear()
            self._known = known
        found = self._copies.get(facts.backends)
        if found is None:
            order = self._routes.standing(self.members(facts.backends))
            open_here = tuple(Target(self._backends[each], each) for each in order if each in self._backends)
            found = self._copies[facts.backends] = open_here
        return found

    def members(self, set_id: int) -> tuple[int, ...]:
        """The backends of an interned set, by id. Raises `Corrupted` for a set that nobody named."""
        found = self._sets.get(set_id)
        if found is None:
            rows = self._store.query("SELECT members FROM backend_set WHERE id = ?", (set_id,))
            if not rows:
                raise Corrupted(f"the journal names no set of backends {set_id}")
            found = self._sets[set_id] = unpack(rows[0][0])
        return found

    def extents_of(self, run: int) -> list[Extent]:
        """A run's extents. Raises `Corrupted` if there is no such run."""
        rows = self._store.query("SELECT extents FROM run WHERE id = ?", (run,))
        if not rows:
            raise Corrupted(f"the journal names no run {run}")
        return extents(rows[0][0])

    def extent_at(self, run: int, nth: int) -> Extent | None:
        """The *nth* extent of a run as it stands now; None if the run is gone."""
        rows = self._store.query("SELECT extents FROM run WHERE id = ?", (run,))
        found = extents(rows[0][0]) if rows else []
        return found[nth] if nth < len(found) else None

    def pieces_of(self, body: int) -> Sequence[tuple[int, int, int]]:
        """A body's pieces: (run, offset, length). Raises `Corrupted` if there is no such body."""
        rows = self._store.query("SELECT pieces FROM body WHERE id = ?", (body,))
        if not rows:
            raise Corrupted(f"the journal names no body {body}")
        return unpack(rows[0][0]) or ()
