"""The compactor: packs of which much is dead are written anew, with what lives in them.

What it costs and what it bounds: rewriting a pack of which a share f lives costs f bytes of writing for (1 - f) bytes
of disk, so each deleted byte pays for at most four rewritten ones, and a pack is left alone while more than four
fifths of it live: what lives, lives in at most 1.25 times its bytes. Below a half a pack is rewritten at once; between
that and four fifths only once nothing waits to be taken apart, so that a long deletion does not have the same bytes
rewritten again and again.

Before anything moves, the new pack is asked for again on every backend that confirmed it, and read back from one: a
backend that confirms a put and has nothing must not cost the old pack. (It is asked once, right away: a backend that
loses a pack later loses what any other write to it would lose.)

**The crash argument.** The new pack's bytes are durable before the record that moves extents into it; the record holds
for a run only while that is as it was read; the old block dies by that record, and goes when nobody reads it any more.
Killed anywhere, either the old extents stand and the new pack is unnamed (and swept), or the new ones do. Extents stand
in runs alone, so nothing else has to follow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway import errors, failpoints
from gateway.blocks.commands import Move, MoveExtents
from gateway.blocks.confirming import is_there
from gateway.blocks.lookup import Lookup
from gateway.blocks.reader import Reader
from gateway.blocks.values import BLOCK_BYTES, BlockFacts, Stamp, Want
from gateway.blocks.working import Journal, Tables, Worker
from gateway.blocks.writer import StoredRun, Writer
from gateway.journal.packed import Extent
from gateway.journal.records.bytes import NewBlock
from gateway.timing import Timing

CANDIDATES = 64
MOVES = 200
"""Runs that one command moves at most."""
MEMBERS = 1_000
"""Extents of one step at most."""

Restamp = Callable[[int, int], Stamp]
"""The stamp under which what was written with (ring key id, policy id) is written today."""

_log = logging.getLogger(__name__)


class _Sparse(NamedTuple):
    """A pack of which much is dead."""

    id: bytes
    ring_key: int
    policy: int
    plain: int
    live: int


class _Living(NamedTuple):
    """A live extent in such a pack."""

    run: int
    nth: int
    extent: Extent


class Compactor(Worker):
    """Rewrites packs that are mostly dead."""

    name = "compactor"

    def __init__(
        self,
        store: Tables,
        journal: Journal,
        lookup: Lookup,
        reader: Reader,
        writer: Writer,
        restamp: Restamp,
        *,
        timing: Timing,
    ) -> None:
        super().__init__(store, timing)
        self._journal = journal
        self._lookup = lookup
        self._reader = reader
        self._writer = writer
        self._restamp = restamp
        self._unreadable: set[bytes] = set()
        self._rest_seconds = timing.compactor.rest_seconds
        self._rests_until = 0.0
        self.moved = 0
        """Extents so far."""

    async def step(self) -> bool:
        if self._clock.monotonic() < self._rests_until:
            return False
        packs = self._candidates()
        if not packs:
            return False
        stamp = (packs[0].ring_key, packs[0].policy)
        chosen: list[_Sparse] = []
        size = 0
        for pack in packs:
            if (pack.ring_key, pack.policy) == stamp and (not chosen or size + pack.live <= BLOCK_BYTES):
                chosen.append(pack)
                size += pack.live
        with self._journal.reading():
            return await self._rewrite(chosen, self._restamp(*stamp)) > 0

    def _candidates(self) -> list[_Sparse]:
        rows = self.store.query(
            "SELECT id, ring_key, policy, plain, live FROM block "
            "WHERE died = 0 AND live * 5 < plain * 4 ORDER BY live LIMIT ?",
            (CANDIDATES + len(self._unreadable),),
        )
        packs = [pack for pack in map(_Sparse._make, rows) if pack.id not in self._unreadable]
        if self.store.query("SELECT 1 FROM freed LIMIT 1"):
            return [pack for pack in packs if pack.live * 2 < pack.plain]
        return packs

    async def _rewrite(self, packs: Sequence[_Sparse], stamp: Stamp) -> int:
        """Write what lives in *packs* anew. Answers how many extents moved."""
        living: list[_Living] = []
        for pack in packs:
            living.extend(self._living_in(pack.id))
            if len(living) >= MEMBERS:
                break
        size = min(self._writer.budget.limit, sum(each.extent.length for each in living))
        await self._writer.budget.take(size)
        try:
            stored = await asyncio.gather(*(self._store_anew(each, stamp) for each in living))
        finally:
            self._writer.budget.give(size)
        found = [(each, run) for each, run in zip(living, stored, strict=True) if run is not None]
        found = await self._confirmed(found)
        moved = 0
        for at in range(0, len(found), MOVES):
            moved += await self._move(found[at : at + MOVES])
        self.moved += moved
        return moved

    async def _confirmed(self, found: Sequence[tuple[_Living, StoredRun]]) -> list[tuple[_Living, StoredRun]]:
        """Those of *found* whose new packs are there. The others are given back, and nothing is written anew for a
        while."""
        blocks = {block.id: block for _, stored in found for block in stored.blocks}
        absent = set[bytes]()
        for block in blocks.values():
            targets = self._lookup.copies_of(BlockFacts(block.ring_key, block.size, block.backends))
            size = min(self._writer.budget.limit, block.size)
            await self._writer.budget.take(size)
            try:
                if len(targets) < len(self._lookup.members(block.backends)) or not await is_there(block, targets):
                    absent.add(block.id)
            finally:
                self._writer.budget.give(size)
        if absent:
            _log.error("packs are left as they are: %d new one(s) were confirmed and are not there", len(absent))
            self._rests_until = self._clock.monotonic() + self._rest_seconds
        there = []
        for living, stored in found:
            if absent.isdisjoint(block.id for block in stored.blocks):
                there.append((living, stored))
            else:
                self._writer.give_back(stored)
        return there

    def _living_in(self, block: bytes) -> list[_Living]:
        found: list[_Living] = []
        with self.store.snapshot():
            for (run,) in self.store.query("SELECT run FROM member WHERE block = ?", (block,)):
                for nth, extent in enumerate(self._lookup.extents_of(run)):
                    if extent.block == block:
                        found.append(_Living(run, nth, extent))
        return found

    async def _store_anew(self, living: _Living, stamp: Stamp) -> StoredRun | None:
        """The extent's bytes, verified and sealed again; None if no copy has them any more."""
        want = Want(living.extent, 0, living.extent.length, living.run, living.nth)
        try:
            plain = self._reader.read_now([want])
            if plain is None:
                plain = b"".join([bytes(piece) async for piece in self._reader.read([want])])
        except errors.Damaged as error:
            _log.error("a pack is left as it is: %s", error)
            self._unreadable.add(living.extent.block)
            return None
        return await self._writer.store_packed(stamp, plain)

    async def _move(self, found: Sequence[tuple[_Living, StoredRun]]) -> int:
        """Have the journal name the new extents. Those of runs that changed meanwhile are given back."""
        by_run: dict[int, list[tuple[_Living, StoredRun]]] = {}
        blocks: dict[bytes, NewBlock] = {}
        for living, stored in found:
            by_run.setdefault(living.run, []).append((living, stored))
            blocks |= {block.id: block for block in stored.blocks}
        moves = tuple(
            Move(
                run,
                tuple(living.nth for living, _ in group),
                tuple(living.extent for living, _ in group),
                tuple(stored.extents[0] for _, stored in group),
            )
            for run, group in by_run.items()
        )
        failpoints.reach("compaction-stored")
        try:
            made = await self._journal.send(MoveExtents(moves, tuple(blocks.values())))
        except BaseException:
            for _, stored in found:
                self._writer.leave(stored)
            raise
        failpoints.reach("compaction-moved")
        moved = 0
        for group, was_made in zip(by_run.values(), made, strict=True):
            for _, stored in group:
                (self._writer.named if was_made else self._writer.give_back)(stored)
            moved += len(group) if was_made else 0
        return moved
