"""When the compactor moves extents from old packs to the new pack that it wrote, and when the old packs may die.

A backend may confirm a put and lose the value all the same. A policy may also let a write be acknowledged by fewer
backends than should hold the block in the end. So the compactor moves extents by the same rule by which old copies are
dropped (`gateway/reconcile/old_copies.py`).

**Theory of operation.** A *rewrite* is one new pack that was made from one or more old packs. It passes these steps, in
this order:

1. *Rewritten*: the new pack's bytes are durable on the backends that its policy's writes wait for. A record names the
   new pack and the extents that it holds copies of. The runs still name the old extents, so every read goes to the old
   packs.
2. *Placed*: the new pack is where it must be. A record says since when, by the site's clock.
3. *Confirmed*: `Topology.recheck_seconds` later these backends are asked for the pack again, and one copy is read back.
   If a backend has lost the pack, the rewrite is given up: the extents that have not moved stay in the old packs. If a
   backend cannot be asked now, it is left alone for a while, and the rewrites that need it wait.
4. *Moved*: records move the extents of each run that has not changed since the compactor read it. An old pack dies with
   its last extent, and is deleted when nobody reads it any more. A last record ends the rewrite.

At steps 2, 3 and 4 the current policies are asked, before each record, whether the new pack is where it must be
(`rewrite_placement.py`). A rewrite waits while it is not, and is given up if nobody is going to copy it there, or no
good copy of it is left.

**The crash argument.**

- A kill before step 1: no record names the new pack, so the sweeper deletes it with what its session left.
- From step 1 on: the new pack has a row in `rewrite`. It lives although no run names it, so nothing deletes it.
- A kill between steps 1 and 4: the row says which step the rewrite has reached, and since when. A restart neither skips
  the wait nor begins it again. Confirmations are remembered in memory alone, so they are made again.
- A kill within step 4: some runs have moved. The others move after another confirmation. Those that have moved are no
  longer as they were read, so they are skipped. If that confirmation finds that a backend has lost the pack, the
  command that ends the rewrite also suspects the copy, so the mover makes it again.

A suspected copy, or another set of backends that hold the new pack, makes the wait begin again. A new pack may die
before its rewrite ends, if everything that had moved there was deleted. It is not revived: its rewrite ends, and the
extents that have not moved stay in the old packs.

**Bounds.** Rewrites are looked at in slices, and a step asks about one new pack at most. All its backends are asked at
once, and one that does not answer is left alone for a while, longer each time. So a store that hangs costs the others
two deadlines each time (one to ask it, one to read a copy back), however many rewrites wait for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from gateway import failpoints
from gateway.blocks.budget import Budget
from gateway.blocks.commands.rewrite import EndRewrite, MoveRewritten, PlaceRewrite
from gateway.blocks.maintenance.confirmation import ExpectedBlock, confirm_copies
from gateway.blocks.maintenance.rewrite_placement import PlacementRule, RewriteRow
from gateway.blocks.protocols import Tables, WantedBackends, WorkerJournal
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.types import BlockFacts, Target
from gateway.journal.apply.work import unpack_ids
from gateway.journal.columns import Rewritten, unpack, unpack_rewritten
from gateway.journal.site_clock import SiteClock, clock_reader
from gateway.placement.backend_backoff import BackendBackoff
from gateway.timing import Timing

REWRITES_MAX = 4_096
"""How many rewrites may be pending, so that at most this many blocks are stored twice. Of one group, as many may be
pending as places are left for others: so groups that wait for a store that is away leave as many places to the rest."""
ROWS = 64
"""How many rewrites one step looks at."""
MOVES = 200
"""About how many extents one command moves. All extents of one run move in one command."""

_log = logging.getLogger(__name__)

Group: TypeAlias = tuple[int, int]
"""Packs of one policy that the same set of backends holds: the ids of the policy and of the set."""


class PendingRewrite(NamedTuple):
    """A rewrite that has not ended."""

    sources: tuple[bytes, ...]
    """The ids of the old packs."""
    group: Group
    """The group of the old packs, when the rewrite was first looked at."""


class Rewrites:
    """Advances the pending rewrites. Used by the compactor."""

    def __init__(
        self,
        store: Tables,
        journal: WorkerJournal,
        lookup: Lookup,
        budget: Budget,
        wanted: WantedBackends,
        *,
        timing: Timing,
    ) -> None:
        """*budget* bounds the memory for packs that are read back."""
        self._store = store
        self._journal = journal
        self._lookup = lookup
        self._budget = budget
        self._wanted = wanted
        self._rule = PlacementRule(store, lookup, wanted)
        self._clock = timing.clock
        pauses = timing.compactor
        self._look_seconds = pauses.look_seconds
        self._next_pass_at = 0.0
        self._cursor = b""  # how far this pass over the rewrites has come
        self._has_advanced = False  # a rewrite advanced in this pass
        self._site_clock = SiteClock(store.query, clock_reader(timing.clock))
        self._pending: dict[bytes, PendingRewrite] = {}  # those that were looked at
        rest_seconds = pauses.rest_seconds, pauses.rest_most_seconds
        self._away: BackendBackoff[int] = BackendBackoff(timing.clock, *rest_seconds)
        """Backends that could not be asked for a new pack."""
        self.group_backoff: BackendBackoff[Group] = BackendBackoff(timing.clock, *rest_seconds)
        """Groups whose packs could not be rewritten."""
        self.moved = 0
        """Extents that were moved so far."""

    def pending(self) -> list[PendingRewrite] | None:
        """Return the rewrites that have not ended; None while not all of them have been looked at."""
        block_ids = {block_id for (block_id,) in self._store.query("SELECT block FROM rewrite")}
        for block_id in self._pending.keys() - block_ids:
            del self._pending[block_id]
        if block_ids == self._pending.keys():
            return list(self._pending.values())
        self.look_soon()
        return None

    async def step(self) -> bool:
        """Look at a slice of the rewrites, and advance one at most. Returns whether there may be more to do now.

        The caller has just refreshed the policies."""
        now = self._clock.monotonic()
        if now < self._next_pass_at:
            return False
        rows = self._rule.rows_after(self._cursor, ROWS)
        for row in rows:
            self._cursor = row.block
            if row.block not in self._pending:
                self._pending[row.block] = self._as_pending(row)
            if await self._advance(row):
                self._has_advanced = True
                return True
        if len(rows) == ROWS:
            return True
        self._cursor = b""
        has_advanced, self._has_advanced = self._has_advanced, False
        if not has_advanced:
            self._next_pass_at = now + self._look_seconds
        return has_advanced

    def look_soon(self) -> None:
        """Have the next `step` begin a pass over all rewrites."""
        self._next_pass_at, self._cursor = 0.0, b""

    def _as_pending(self, row: RewriteRow) -> PendingRewrite:
        sources = self._rule.living_sources(row)
        group = (
            (sources[0].policy, sources[0].backends) if sources else (row.policy or 0, row.backends or row.placed_on)
        )
        return PendingRewrite(tuple(unpack(row.sources)), group)

    # ---- the steps of a rewrite ---------------------------------------------------------------------------------

    async def _advance(self, row: RewriteRow) -> bool:
        """Do the next step of one rewrite. Returns whether a record was made, or a backend was asked."""
        if row.died is None or row.died:
            return await self._end(row)
        now_ns = self._site_clock.now_ns()
        is_placed = 0 < row.placed_ns <= now_ns and row.placed_on == row.backends
        if is_placed and now_ns - row.placed_ns < self._wanted.recheck_seconds * 1e9:
            return False
        placement = self._rule.check(row)
        if not placement.sources:
            return await self._end(row)
        if placement.is_hopeless:
            _log.error("old packs stay: the new pack %s is not where they are wanted", row.block.hex())
            self._record_failure(row, "a new pack was not where the old ones are wanted")
            return await self._end(row)
        if not placement.is_met:
            return False
        if not is_placed:
            return await self._journal.send(PlaceRewrite(row.block, now_ns, row.backends, unpack_ids(row.suspects)))
        copies = self._lookup.copies_of(BlockFacts(row.ring_key, row.size, row.backends))
        targets = [each for each in copies if each.id in placement.to_confirm and each.id not in self._away]
        if len(targets) < len(placement.to_confirm):
            return False
        if await self._is_confirmed(row, targets) and await self._move(row, placement.to_confirm):
            self.group_backoff.record_success([self._pending[row.block].group])
            await self._end(row)
        return True

    def _record_failure(self, row: RewriteRow, reason: str) -> None:
        """Leave the group of the old packs alone for a while."""
        self.group_backoff.record_failure(self._pending[row.block].group, reason)

    async def _end(self, row: RewriteRow, absent: Collection[int] = ()) -> bool:
        return await self._journal.send(EndRewrite(row.block, tuple(sorted(absent))))

    async def _is_confirmed(self, row: RewriteRow, targets: Sequence[Target]) -> bool:
        """Return whether each of *targets* has the new pack. If one has lost it, the rewrite is ended."""
        began = self._clock.monotonic()
        async with self._budget.charged(row.size):
            confirmation = await confirm_copies(ExpectedBlock(row.block, row.size, row.crc32c), targets)
        self._away.record_success((each.id for each in targets if each.id not in confirmation.failed), began)
        for backend_id, error in confirmation.failed.items():
            if self._away.record_failure(backend_id, str(error), error.retry_after_s):
                _log.warning("new packs wait for a backend that cannot be asked for them now: %s", error)
        if not confirmation.absent:
            return not confirmation.failed
        names = ", ".join(repr(each.backend.name) for each in targets if each.id in confirmation.absent)
        _log.error("old packs stay: %s confirmed the new pack %s and lacks it", names, row.block.hex())
        self._record_failure(row, "a new pack was confirmed, and was not there")
        await self._end(row, confirmation.absent)
        return False

    async def _move(self, row: RewriteRow, confirmed: frozenset[int]) -> bool:
        """Move all extents that have not moved. Returns False if that is not allowed any more: the rewrite waits.

        *confirmed*: the backends that have just confirmed the new pack."""
        failpoints.reach("compaction-confirmed")
        ((packed,),) = self._store.query("SELECT copies FROM rewrite WHERE block = ?", (row.block,)) or ((b"",),)
        for copies in _slices(unpack_rewritten(packed)):
            placement = self._rule.check_now(row.block)
            if placement is None or not placement.is_met or not placement.to_confirm <= confirmed:
                return False
            sources = tuple((each.id, each.backends) for each in placement.sources)
            moved = await self._journal.send(MoveRewritten(row.block, row.placed_ns, copies, sources))
            if moved is None:
                return False
            failpoints.reach("compaction-moved")
            self.moved += moved
        return True


def full_groups(pending: Sequence[PendingRewrite]) -> set[Group]:
    """Return the groups of which no more rewrites may begin (see `REWRITES_MAX`)."""
    counts = Counter(each.group for each in pending)
    return {group for group, count in counts.items() if count >= REWRITES_MAX - len(pending)}


def _slices(copies: Sequence[Rewritten]) -> Iterator[tuple[Rewritten, ...]]:
    """Yield *copies* in slices of about `MOVES` extents. Those of one run are in one slice."""
    piece: list[Rewritten] = []
    for each in sorted(copies):
        if len(piece) >= MOVES and piece[-1].run != each.run:
            yield tuple(piece)
            piece = []
        piece.append(each)
    if piece:
        yield tuple(piece)
