"""New packs of the compactor: when extents move there, and the old packs go.

A backend that confirms a put may lose the value all the same, and a policy's writes may be confirmed by fewer places
than should hold a block in the end. So extents move to a new pack by the rule by which copies are dropped elsewhere
(`gateway/reconcile/old_copies.py`), in this order:

1. *Rewritten*: the new pack's bytes are durable where its policy's writes have to be. A record names the pack and which
   extents it holds copies of. The runs still name the old extents, so every read goes to the old packs.
2. *Placed*: no work is left on the new pack's copies, so every place that should hold it has confirmed it. A record
   says since when, by the site's clock.
3. *Confirmed*: `Topology.recheck_seconds` later each of these places is asked for the pack again, and one copy is read
   back. Where one has lost it, the rewrite is given up: nothing has moved, and the old packs are as good as they were.
   A place that cannot be asked is asked later.
4. *Moved*: records move the extents of each run that is still as it was read. An old pack dies with its last extent,
   and goes when nobody reads it any more. A last record ends the rewrite.

**The crash argument.** Killed before 1, the new pack is unnamed, and swept with its session. From then on its row
stands, and it lives without members, so that nothing deletes it. Killed between 1 and 4, the row says how far things
have come, and since when: a restart neither skips the wait nor begins it again. What was confirmed is remembered in
memory alone, and confirmed again. Killed within 4, some runs have moved: the others do so behind another confirmation,
and those that have are not as they were read any more, and are passed over. Whatever adds work on the new pack's copies
(a suspect, another policy) makes the conditions of 3 and 4 fail, and the wait begins again. A new pack that died since,
because all that had moved there was deleted, is not brought back to life: its rewrite ends, and the rest stays.
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
"""New packs that wait at a time; at most so many blocks are written twice."""
MOVES = 200
"""Extents that one command moves, but for those of one run, which move together."""

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
    """The new packs whose extents have not moved there yet. Used by the compactor."""

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
        """*budget* bounds what is read back."""
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
        """Packs that a place could not be asked for, and when that is tried again."""
        self.moved = 0
        """Extents so far."""
        self.absent = 0
        """New packs so far that a place had confirmed, and did not have when it was asked again."""

    def sources(self) -> set[bytes] | None:
        """The old packs that are written anew already; None where no more may be."""
        rows = self._store.query("SELECT sources FROM rewrite LIMIT ?", (REWRITES_MAX,))
        return {block for (packed,) in rows for block in unpack(packed)} if len(rows) < REWRITES_MAX else None

    async def step(self) -> bool:
        """Bring one of them on. Answers whether there was one to be brought on now."""
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
        """A new pack was named."""
        self._looks_at = 0.0

    async def _bring_on(self, row: _Row) -> bool:
        """Answers whether anything came of it."""
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
        """As `is_there`, of all places that hold the pack by the journal."""
        targets = self._lookup.copies_of(BlockFacts(row.ring_key, row.size, row.backends))
        if len(targets) < len(self._lookup.members(row.backends)):
            return None
        size = min(self._budget.limit, row.size)
        await self._budget.take(size)
        try:
            return await is_there(Awaited(row.block, row.size, row.crc32c), targets)
        finally:
            self._budget.give(size)

    async def _move(self, row: _Row) -> None:
        ((packed,),) = self._store.query("SELECT copies FROM rewrite WHERE block = ?", (row.block,)) or ((b"",),)
        for copies in _slices(rewritten(packed)):
            moved = await self._journal.send(MoveRewritten(row.block, row.placed_ns, copies))
            if moved is None:
                return
            failpoints.reach("compaction-moved")
            self.moved += moved


def _slices(copies: Sequence[Rewritten]) -> Iterator[tuple[Rewritten, ...]]:
    """*copies* in slices of some `MOVES`, all of a run in one."""
    found: list[Rewritten] = []
    for each in sorted(copies):
        if len(found) >= MOVES and found[-1].run != each.run:
            yield tuple(found)
            found = []
        found.append(each)
    if found:
        yield tuple(found)
