"""When the compactor moves extents from old packs to the new pack that it wrote, and when it lets the old packs go.

A backend may confirm a put and lose the value all the same. A policy may also let a write be acknowledged by fewer
places than should hold the block in the end. So the compactor moves extents by the same rule by which old copies are
dropped (`gateway/reconcile/old_copies.py`). A rewrite (one new pack, made from one or more old packs) passes these
steps, in this order:

1. *Rewritten*: the new pack's bytes are durable on the places that its policy's writes wait for. A record names the new
   pack and the extents that it holds copies of. The runs still name the old extents, so every read goes to the old
   packs.
2. *Placed*: the new pack is where it must be (the rule below). A record says since when, by the site's clock.
3. *Confirmed*: `Topology.recheck_seconds` later these places are asked for the pack again, and one copy is read back.
   If a place has lost the pack, the rewrite is given up: the extents that have not moved stay in the old packs. A place
   that cannot be asked now is left alone for a while, and the rewrites that need it wait.
4. *Moved*: records move the extents of each run that has not changed since the compactor read it. An old pack dies with
   its last extent, and is deleted when nobody reads it any more. A last record ends the rewrite.

**Where a new pack must be.** Policies change, and the mover may have brought an old pack to further places before it
comes to the new one. So the current policies are asked at steps 2, 3 and 4, before each record:

- Every place that holds an old pack, and should hold it, has a copy of the new pack that nobody suspects. So no extent
  has fewer of the wanted copies after its move than before. The record that moves extents is conditional on the sets
  of backends that were read, of the old packs and of the new one.
- At least as many places have the new pack as hold each old pack, or as many as should hold it. The mover keeps a copy
  that is no longer wanted until all wanted copies exist, and so does the compactor.
- Every place that should hold the new pack has it, or a row of work says that it is to be brought there.

A rewrite that does not meet this rule waits. The planner makes the row of work, which needs no backend, and the mover
makes the copy. While a wanted place is away, only those old packs wait that have a copy there, or elsewhere in its
stead: their extents would lose it. The place comes back, or is given up as lost, or the policy no longer wants it, and
the rewrite goes on by itself. A new pack that nobody is going to bring where it must be, or of which no good copy is
left, is given up.

**The crash argument.**

- Killed before 1: no record names the new pack, so the sweeper deletes it with what its session left.
- From 1 on: the new pack has a row in `rewrite`. It lives although no run names it, so nothing deletes it.
- Killed between 1 and 4: the row says which step the rewrite has reached, and since when. A restart neither skips the
  wait nor begins it again. Confirmations are remembered in memory alone, so they are made again.
- Killed within 4: some runs have moved. The others move after another confirmation. Those that have moved are no longer
  as they were read, so they are passed over. If that confirmation finds that a place has lost the pack, the record that
  ends the rewrite comes with one that suspects the copy, so the mover makes it again.

A suspected copy, or another set of backends that hold the new pack, makes the wait begin again. A new pack may die
before its rewrite ends, if everything that had moved there was deleted. It is not revived: its rewrite ends, and the
extents that have not moved stay in the old packs.

**Bounds.** Rewrites are looked at in slices, and a step asks about one new pack at most. All its places are asked at
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
from gateway.blocks.commands import EndRewrite, MoveRewritten, PlaceRewrite
from gateway.blocks.maintenance.confirmation import ExpectedBlock, confirm_copies
from gateway.blocks.protocols import Tables, WantedBackends, WorkerJournal
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.types import BlockFacts, Target
from gateway.journal.apply.work import ids_in
from gateway.journal.columns import Rewritten, rewritten, unpack
from gateway.journal.site_clock import SiteClock, moments
from gateway.placement.backend_backoff import BackendBackoff
from gateway.timing import Timing

REWRITES_MAX = 4_096
"""How many new packs may wait at a time, so that at most so many blocks are stored twice. Of packs of one policy that
the same places hold, as many may wait as there is room left: so those that wait for a store that is away leave as much
room to the others."""
ROWS = 64
"""How many rewrites one step looks at."""
MOVES = 200
"""About how many extents one command moves. All extents of one run move in one command."""

_ROWS = (
    "SELECT r.block, r.placed_ns, r.backends, r.sources, b.backends, b.policy, b.died, b.ring_key, b.size, b.crc32c, "
    "w.block IS NOT NULL, coalesce(w.suspects, x'') "
    "FROM rewrite r LEFT JOIN block b ON b.id = r.block LEFT JOIN work w ON w.block = r.block "
)

_log = logging.getLogger(__name__)

Group: TypeAlias = tuple[int, int]
"""Packs of one policy that the same set of backends holds: the ids of both."""


class Begun(NamedTuple):
    """A rewrite that has not ended."""

    sources: tuple[bytes, ...]
    """The old packs."""
    group: Group
    """Of the old packs, when the rewrite was first seen."""


class _Row(NamedTuple):
    block: bytes
    placed_ns: int
    placed_on: int
    sources: bytes
    backends: int
    policy: int
    died: int | None
    """None: the block is gone."""
    ring_key: int
    size: int
    crc32c: int
    has_work: int
    suspects: bytes


class _Source(NamedTuple):
    """An old pack that lives."""

    id: bytes
    backends: int
    policy: int


class _Placement(NamedTuple):
    """Where a new pack is, compared with where it must be before extents may move there."""

    met: bool
    """It is where it must be."""
    hopeless: bool
    """It is not, and nobody is going to bring it there; or no good copy of it is left."""
    places: frozenset[int]
    """The backends that must have it, as far as they hold it."""
    sources: tuple[_Source, ...]


class Rewrites:
    """The rewrites that have not ended: new packs to which extents are still to be moved. Used by the compactor."""

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
        self._clock = timing.clock
        pauses = timing.compactor
        self._look_seconds = pauses.look_seconds
        self._looks_at = 0.0
        self._after = b""
        self._progress = False
        self._site_clock = SiteClock(store.query, moments(timing.clock))
        self._begun: dict[bytes, Begun] = {}
        self._places: BackendBackoff[int] = BackendBackoff(timing.clock, pauses.rest_seconds, pauses.rest_most_seconds)
        self.groups: BackendBackoff[Group] = BackendBackoff(timing.clock, pauses.rest_seconds, pauses.rest_most_seconds)
        """Packs that could not be rewritten: they are left alone for a while."""
        self.moved = 0
        """Extents moved so far."""

    def begun(self) -> list[Begun] | None:
        """The rewrites that have not ended; None while not all of them have been looked at."""
        waiting = {block for (block,) in self._store.query("SELECT block FROM rewrite")}
        for block in self._begun.keys() - waiting:
            del self._begun[block]
        if waiting == self._begun.keys():
            return list(self._begun.values())
        self.look_soon()
        return None

    async def step(self) -> bool:
        """Look at some rewrites, and advance one. Answers whether there is more to do now. The caller has just
        refreshed the policies."""
        now = self._clock.monotonic()
        if now < self._looks_at:
            return False
        rows = self._store.query(_ROWS + "WHERE r.block > ? ORDER BY r.block LIMIT ?", (self._after, ROWS))
        for row in map(_Row._make, rows):
            self._after = row.block
            if row.block not in self._begun:
                self._begun[row.block] = self._as_begun(row)
            if await self._advance(row):
                self._progress = True
                return True
        if len(rows) == ROWS:
            return True
        self._after = b""
        progress, self._progress = self._progress, False
        if not progress:
            self._looks_at = now + self._look_seconds
        return progress

    def look_soon(self) -> None:
        """Have the next `step` look at all rewrites."""
        self._looks_at, self._after = 0.0, b""

    def _as_begun(self, row: _Row) -> Begun:
        live = self._live(row)
        group = (live[0].policy, live[0].backends) if live else (row.policy or 0, row.backends or row.placed_on)
        return Begun(tuple(unpack(row.sources)), group)

    def _live(self, row: _Row) -> tuple[_Source, ...]:
        sources = unpack(row.sources)
        marks = ", ".join("?" * len(sources))
        found = self._store.query(
            f"SELECT id, backends, policy FROM block WHERE id IN ({marks}) AND died = 0", tuple(sources)
        )
        return tuple(map(_Source._make, found))

    def _placement(self, row: _Row) -> _Placement:
        """Compare where the new pack is with where the policies of today want it and the old packs."""
        sources = self._live(row)
        needed, copies = set[int](), 0
        for source in sources:
            held = self._lookup.members(source.backends)
            wanted = self._wanted.desired(source.policy, held)
            needed |= wanted.intersection(held)
            copies = max(copies, min(len(held), len(wanted)))
        members = self._lookup.members(row.backends)
        should = self._wanted.desired(row.policy, members)
        good = frozenset(members).difference(ids_in(row.suspects))
        is_coming = bool(row.has_work)
        places = good & (needed | should) or good
        met = bool(good) and needed <= good and len(places) >= copies and (is_coming or should <= good)
        hopeless = not good or (not met and not is_coming and should <= good)
        return _Placement(met, hopeless, places, sources)

    async def _advance(self, row: _Row) -> bool:
        """Take the next step of one rewrite. Answers whether something was recorded, or a backend was asked."""
        if row.died is None or row.died:
            return await self._end(row)
        now_ns = self._site_clock.now_ns()
        is_placed = 0 < row.placed_ns <= now_ns and row.placed_on == row.backends
        if is_placed and now_ns - row.placed_ns < self._wanted.recheck_seconds * 1e9:
            return False
        placement = self._placement(row)
        if not placement.sources:
            return await self._end(row)
        if placement.hopeless:
            _log.error("old packs stay: the new pack %s is not where they are wanted", row.block.hex())
            self.groups.record_failure(self._begun[row.block].group, "a new pack was not where the old ones are wanted")
            return await self._end(row)
        if not placement.met:
            return False
        if not is_placed:
            placed = PlaceRewrite(row.block, now_ns, row.backends, ids_in(row.suspects))
            return bool(await self._journal.send(placed))
        copies = self._lookup.copies_of(BlockFacts(row.ring_key, row.size, row.backends))
        asked = [each for each in copies if each.id in placement.places and each.id not in self._places]
        if len(asked) < len(placement.places):
            return False
        if await self._is_confirmed(row, asked) and await self._move(row, placement.places):
            self.groups.record_success([self._begun[row.block].group])
            await self._end(row)
        return True

    async def _end(self, row: _Row, absent: Collection[int] = ()) -> bool:
        return bool(await self._journal.send(EndRewrite(row.block, tuple(sorted(absent)))))

    async def _is_confirmed(self, row: _Row, targets: Sequence[Target]) -> bool:
        """Whether each of *targets* has the new pack. If one has lost it, the rewrite is ended."""
        began = self._clock.monotonic()
        async with self._budget.charged(row.size):
            answers = await confirm_copies(ExpectedBlock(row.block, row.size, row.crc32c), targets)
        self._places.record_success((each.id for each in targets if each.id not in answers.failed), began)
        for place, error in answers.failed.items():
            if self._places.record_failure(place, str(error), error.retry_after_s):
                _log.warning("new packs wait for a place that cannot be asked for them now: %s", error)
        if not answers.absent:
            return not answers.failed
        names = ", ".join(repr(each.backend.name) for each in targets if each.id in answers.absent)
        _log.error("old packs stay: %s confirmed the new pack %s and lacks it", names, row.block.hex())
        self.groups.record_failure(self._begun[row.block].group, "a new pack was confirmed, and was not there")
        await self._end(row, answers.absent)
        return False

    async def _move(self, row: _Row, confirmed: frozenset[int]) -> bool:
        """Move all that has not moved. False where that is not right, or not any more: the rewrite waits on."""
        failpoints.reach("compaction-confirmed")
        ((packed,),) = self._store.query("SELECT copies FROM rewrite WHERE block = ?", (row.block,)) or ((b"",),)
        for copies in _slices(rewritten(packed)):
            placement = self._placement_now(row.block)
            if placement is None or not placement.met or not placement.places <= confirmed:
                return False
            sources = tuple((each.id, each.backends) for each in placement.sources)
            moved = await self._journal.send(MoveRewritten(row.block, row.placed_ns, copies, sources))
            if moved is None:
                return False
            failpoints.reach("compaction-moved")
            self.moved += moved
        return True

    def _placement_now(self, block: bytes) -> _Placement | None:
        """Looked up anew: since the last look the policies may have changed, and the mover may have brought old packs
        elsewhere. None where nothing can be said."""
        rows = [_Row._make(row) for row in self._store.query(_ROWS + "WHERE r.block = ?", (block,))]
        if not rows or rows[0].died is None or rows[0].died or not self._wanted.refresh():
            return None
        return self._placement(rows[0])


def full(begun: Sequence[Begun]) -> set[Group]:
    """The groups of which no more rewrites may begin: as many wait as there is room left for."""
    return {
        group for group, count in Counter(each.group for each in begun).items() if count >= REWRITES_MAX - len(begun)
    }


def _slices(copies: Sequence[Rewritten]) -> Iterator[tuple[Rewritten, ...]]:
    """*copies* in slices of about `MOVES` extents; those of one run are in one slice."""
    found: list[Rewritten] = []
    for each in sorted(copies):
        if len(found) >= MOVES and found[-1].run != each.run:
            yield tuple(found)
            found = []
        found.append(each)
    if found:
        yield tuple(found)
