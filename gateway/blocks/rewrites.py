"""When the compactor moves extents from old packs to the new pack that it wrote, and when it lets the old packs go.

A backend may confirm a put and lose the value all the same. A policy may also let a write be acknowledged by fewer
places than should hold the block in the end. So the compactor moves extents by the same rule by which old copies are
dropped (`gateway/reconcile/old_copies.py`). A rewrite (one new pack, made from one or more old packs) passes these
steps, in this order:

1. *Rewritten*: the new pack's bytes are durable on the places that its policy's writes wait for. A record names the new
   pack and the extents that it holds copies of. The runs still name the old extents, so every read goes to the old
   packs.
2. *Placed*: the new pack has no row of work left, so every place that should hold it has confirmed it. A record says
   since when, by the site's clock.
3. *Confirmed*: `Topology.recheck_seconds` later each of these places is asked for the pack again, and one copy is read
   back. If a place has lost the pack, the rewrite is given up: no extent has moved, and the old packs are as good as
   they were. A place that cannot be asked now is asked later.
4. *Moved*: records move the extents of each run that has not changed since the compactor read it. An old pack dies with
   its last extent, and is deleted when nobody reads it any more. A last record ends the rewrite.

**The crash argument.**

- Killed before 1: no record names the new pack, so the sweeper deletes it with what its session left.
- From 1 on: the new pack has a row in `rewrite`. It lives although no run names it, so nothing deletes it.
- Killed between 1 and 4: the row says which step the rewrite has reached, and since when. A restart neither skips the
  wait nor begins it again. Confirmations are remembered in memory alone, so they are made again.
- Killed within 4: some runs have moved. The others move after another confirmation. Those that have moved are no longer
  as they were read, so they are passed over.

Whatever adds work on the new pack's copies (a suspect, another policy) makes the conditions of 3 and 4 fail, and the
wait begins again. A new pack may die before its rewrite ends, if everything that had moved there was deleted. It is not
revived: its rewrite ends, and the extents that have not moved stay in the old packs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gateway import failpoints
from gateway.blocks.budget import Budget
from gateway.blocks.commands import EndRewrite, MoveRewritten, PlaceRewrite
from gateway.blocks.confirming import Awaited, is_there
from gateway.blocks.lookup import Lookup
from gateway.blocks.values import BlockFacts
from gateway.blocks.working import Journal, Tables
from gateway.journal.packed import Rewritten, rewritten, unpack
from gateway.journal.site_clock import SiteClock, moments
from gateway.timing import Timing

REWRITES_MAX = 4_096
"""How many new packs may wait at a time, so that at most so many blocks are stored twice."""
MOVES = 200
"""About how many extents one command moves. All extents of one run move in one command."""

_ROWS = (
    "SELECT r.block, r.placed_ns, r.backends, b.backends, b.died, b.ring_key, b.size, b.crc32c, w.block IS NOT NULL "
    "FROM rewrite r LEFT JOIN block b ON b.id = r.block LEFT JOIN work w ON w.block = r.block"
)

_log = logging.getLogger(__name__)


class _Row(NamedTuple):
    block: bytes
    placed_ns: int
    placed_on: int
    backends: int
    died: int | None
    """None: the block is gone."""
    ring_key: int
    size: int
    crc32c: int
    has_work: int


class Rewrites:
    """The rewrites that have not ended: new packs to which extents are still to be moved. Used by the compactor."""

    def __init__(
        self,
        store: Tables,
        journal: Journal,
        lookup: Lookup,
        budget: Budget,
        recheck_seconds: Callable[[], float],
        *,
        timing: Timing,
    ) -> None:
        """*budget* bounds the memory for packs that are read back."""
        self._store = store
        self._journal = journal
        self._lookup = lookup
        self._budget = budget
        self._recheck_seconds = recheck_seconds
        self._clock = timing.clock
        self._retry_seconds = timing.compactor.rest_seconds
        self._look_seconds = timing.compactor.look_seconds
        self._looks_at = 0.0
        self._site_clock = SiteClock(store.query, moments(timing.clock))
        self._put_off: dict[bytes, float] = {}
        """New packs about which a place could not be asked, and when that is tried again."""
        self.moved = 0
        """Extents moved so far."""
        self.absent = 0
        """How many new packs a place had confirmed but did not have when it was asked again."""

    def sources(self) -> set[bytes] | None:
        """The old packs whose extents were copied to a waiting new pack; None while no more rewrites may begin."""
        rows = self._store.query("SELECT sources FROM rewrite LIMIT ?", (REWRITES_MAX,))
        return {block for (packed,) in rows for block in unpack(packed)} if len(rows) < REWRITES_MAX else None

    async def step(self) -> bool:
        """Advance one rewrite. Answers whether there was one that could be advanced now."""
        now = self._clock.monotonic()
        if now < self._looks_at:
            return False
        self._put_off = {block: at for block, at in self._put_off.items() if at > now}
        for row in map(_Row._make, self._store.query(_ROWS)):
            if row.block not in self._put_off and await self._bring_on(row):
                return True
        self._looks_at = now + self._look_seconds
        return False

    def look_soon(self) -> None:
        """Have the next `step` look at all rewrites. The caller has just recorded a new pack."""
        self._looks_at = 0.0

    async def _bring_on(self, row: _Row) -> bool:
        """Take the next step of one rewrite. Answers whether that changed the journal."""
        if row.died is None or row.died:
            return bool(await self._journal.send(EndRewrite(row.block)))
        if row.has_work:
            return False
        now_ns = self._site_clock.now_ns()
        if not 0 < row.placed_ns <= now_ns or row.placed_on != row.backends:
            return bool(await self._journal.send(PlaceRewrite(row.block, now_ns, row.backends)))
        if now_ns - row.placed_ns < self._recheck_seconds() * 1e9:
            return False
        there = await self._is_there(row)
        if there is None:
            self._put_off[row.block] = self._clock.monotonic() + self._retry_seconds
            return False
        if there:
            failpoints.reach("compaction-confirmed")
            await self._move(row)
        else:
            self.absent += 1
            _log.error("packs stay as they are: the new pack %s was confirmed and is not there", row.block.hex())
        return bool(await self._journal.send(EndRewrite(row.block)))

    async def _is_there(self, row: _Row) -> bool | None:
        """As `is_there`, for all places that hold the pack according to the journal."""
        targets = self._lookup.copies_of(BlockFacts(row.ring_key, row.size, row.backends))
        if len(targets) < len(self._lookup.members(row.backends)):
            return None
        async with self._budget.charged(row.size):
            return await is_there(Awaited(row.block, row.size, row.crc32c), targets)

    async def _move(self, row: _Row) -> None:
        ((packed,),) = self._store.query("SELECT copies FROM rewrite WHERE block = ?", (row.block,)) or ((b"",),)
        for copies in _slices(rewritten(packed)):
            moved = await self._journal.send(MoveRewritten(row.block, row.placed_ns, copies))
            if moved is None:
                return
            failpoints.reach("compaction-moved")
            self.moved += moved


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
