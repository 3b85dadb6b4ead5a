"""Where a new pack must be before extents may move to it.

Policies change, and the mover may have copied an old pack to further backends before it comes to the new one. So the
rule compares the current policies with the sets of backends that hold the packs now:

- Each backend that holds an old pack, and should hold it, has a copy of the new pack that nobody suspects. So no extent
  has fewer of the wanted copies after its move than before. The record that moves extents is conditional on the sets of
  backends that were read, of the old packs and of the new one.
- At least as many backends have the new pack as hold each old pack, or as many as should hold it. The mover keeps a
  copy that is no longer wanted until all wanted copies exist, and so does the compactor.
- Each backend that should hold the new pack has it, or a row of work says that it is to be copied there.

A rewrite that does not meet this rule waits. The planner makes the row of work, which needs no backend, and the mover
makes the copy. While a wanted backend is away, only those old packs wait that have a copy there, or elsewhere in its
stead: their extents would lose it. The backend comes back, or is given up as lost, or the policy no longer wants it,
and the rewrite goes on by itself. A new pack that nobody is going to copy to where it must be, or of which no good copy
is left, is given up.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.blocks.protocols import Tables, WantedBackends
from gateway.blocks.read.lookup import Lookup
from gateway.journal.apply.work import unpack_ids
from gateway.journal.columns import unpack

_ROWS = (
    "SELECT r.block, r.placed_ns, r.backends, r.sources, b.backends, b.policy, b.died, b.ring_key, b.size, b.crc32c, "
    "w.block IS NOT NULL, coalesce(w.suspects, x'') "
    "FROM rewrite r LEFT JOIN block b ON b.id = r.block LEFT JOIN work w ON w.block = r.block "
)


class RewriteRow(NamedTuple):
    """A row of `rewrite`, with those of `block` and `work` for the new pack."""

    block: bytes
    placed_ns: int
    placed_on: int
    """The set of backends that held the new pack at `placed_ns`."""
    sources: bytes
    """The ids of the old packs, packed."""
    backends: int
    policy: int
    died: int | None
    """None if the new pack has no row any more."""
    ring_key: int
    size: int
    crc32c: int
    has_work: int
    suspects: bytes
    """The ids of the backends whose copy of the new pack is suspected, packed."""


class SourcePack(NamedTuple):
    """An old pack that lives."""

    id: bytes
    backends: int
    policy: int


class RewritePlacement(NamedTuple):
    """Where a new pack is, compared with where it must be."""

    is_met: bool
    """It is where it must be."""
    is_hopeless: bool
    """It is not, and nobody is going to copy it there; or no good copy of it is left."""
    to_confirm: frozenset[int]
    """The backends to ask before extents move: the good holders that should hold the pack; if there are none, all good
    holders."""
    sources: tuple[SourcePack, ...]


class PlacementRule:
    """Applies the rule to pending rewrites."""

    def __init__(self, store: Tables, lookup: Lookup, wanted: WantedBackends) -> None:
        self._store = store
        self._lookup = lookup
        self._wanted = wanted

    def rows_after(self, block_id: bytes, limit: int) -> list[RewriteRow]:
        """Return the next *limit* rewrites, in the order of their new packs' ids."""
        rows = self._store.query(_ROWS + "WHERE r.block > ? ORDER BY r.block LIMIT ?", (block_id, limit))
        return list(map(RewriteRow._make, rows))

    def living_sources(self, row: RewriteRow) -> tuple[SourcePack, ...]:
        """Return the old packs of a rewrite that live."""
        sources = unpack(row.sources)
        marks = ", ".join("?" * len(sources))
        rows = self._store.query(
            f"SELECT id, backends, policy FROM block WHERE id IN ({marks}) AND died = 0", tuple(sources)
        )
        return tuple(map(SourcePack._make, rows))

    def check(self, row: RewriteRow) -> RewritePlacement:
        """Compare where the new pack is with where the current policies want it and the old packs."""
        sources = self.living_sources(row)
        needed, copies = set[int](), 0
        for source in sources:
            held = self._lookup.members(source.backends)
            wanted = self._wanted.desired(source.policy, held)
            needed |= wanted.intersection(held)
            copies = max(copies, min(len(held), len(wanted)))
        members = self._lookup.members(row.backends)
        wanted = self._wanted.desired(row.policy, members)
        good = frozenset(members).difference(unpack_ids(row.suspects))
        has_work = bool(row.has_work)
        to_confirm = good & (needed | wanted) or good
        is_met = bool(good) and needed <= good and len(to_confirm) >= copies and (has_work or wanted <= good)
        is_hopeless = not good or (not is_met and not has_work and wanted <= good)
        return RewritePlacement(is_met, is_hopeless, to_confirm, sources)

    def check_now(self, block_id: bytes) -> RewritePlacement | None:
        """Look the rewrite up and compare once more: policies may have changed, and the mover may have copied packs.

        Returns None if the new pack is dead or its rewrite has ended, or the policies are unknown."""
        rows = [RewriteRow._make(row) for row in self._store.query(_ROWS + "WHERE r.block = ?", (block_id,))]
        if not rows or rows[0].died is None or rows[0].died or not self._wanted.refresh():
            return None
        return self.check(rows[0])
