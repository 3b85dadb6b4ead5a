"""The compactor: packs of which much is dead are written anew, with what lives in them.

What it costs and what it bounds: rewriting a pack of which a share f lives costs f bytes of writing for (1 - f) bytes
of disk, so each deleted byte pays for at most four rewritten ones, and a pack is left alone while more than four
fifths of it live: what lives, lives in at most 1.25 times its bytes. Below a half a pack is rewritten at once; between
that and four fifths only once nothing waits to be taken apart, so that a long deletion does not have the same bytes
rewritten again and again.

A new pack is written here and named by a record. Its extents move there, and the old packs go, only once all places
that should hold it have kept it for a while (`rewrites`, with the crash argument).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway import errors, failpoints
from gateway.blocks.commands import RewritePack
from gateway.blocks.lookup import Lookup
from gateway.blocks.reader import Reader
from gateway.blocks.rewrites import Rewrites
from gateway.blocks.values import BLOCK_BYTES, Stamp, Want
from gateway.blocks.working import Journal, Tables, Worker
from gateway.blocks.writer import StoredRun, Writer
from gateway.journal.packed import Extent, Rewritten
from gateway.timing import Timing

CANDIDATES = 64
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
        recheck_seconds: Callable[[], float],
        *,
        timing: Timing,
    ) -> None:
        """*recheck_seconds*: `Topology.recheck_seconds`, as it is now."""
        super().__init__(store, timing)
        self._journal = journal
        self._lookup = lookup
        self._reader = reader
        self._writer = writer
        self._restamp = restamp
        self._unreadable: set[bytes] = set()
        self._rewrites = Rewrites(store, journal, lookup, writer.budget, recheck_seconds, timing=timing)
        self._rest_seconds = timing.compactor.rest_seconds
        self._rests_until = 0.0

    @property
    def moved(self) -> int:
        """Extents so far that moved to a new pack."""
        return self._rewrites.moved

    async def step(self) -> bool:
        absent = self._rewrites.absent
        if await self._rewrites.step():
            if self._rewrites.absent > absent:
                self._rests_until = self._clock.monotonic() + self._rest_seconds
            return True
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
        waiting = self._rewrites.sources()
        if waiting is None:
            return []
        passed_over = self._unreadable | waiting
        rows = self.store.query(
            "SELECT id, ring_key, policy, plain, live FROM block "
            "WHERE died = 0 AND live * 5 < plain * 4 ORDER BY live LIMIT ?",
            (CANDIDATES + len(passed_over),),
        )
        packs = [pack for pack in map(_Sparse._make, rows) if pack.id not in passed_over]
        if self.store.query("SELECT 1 FROM freed LIMIT 1"):
            return [pack for pack in packs if pack.live * 2 < pack.plain]
        return packs

    async def _rewrite(self, packs: Sequence[_Sparse], stamp: Stamp) -> int:
        """Write what lives in *packs* anew. Answers how many new packs there are."""
        living: list[_Living] = []
        for pack in packs:
            living.extend(self._living_in(pack.id))
            if len(living) >= MEMBERS:
                break
        async with self._writer.budget.charged(sum(each.extent.length for each in living)):
            stored = await self._store_all(living, stamp)
        found: dict[bytes, list[tuple[_Living, StoredRun]]] = {}
        for each, run in stored:
            found.setdefault(run.extents[0].block, []).append((each, run))
        failpoints.reach("compaction-stored")
        count = len(found)
        try:
            while found:
                await self._name(packs[0].policy, next(iter(found.values())))
                del found[next(iter(found))]
        except BaseException:
            for _, run in itertools.chain.from_iterable(found.values()):
                self._writer.leave(run)
            raise
        self._rewrites.look_soon()
        return count

    async def _store_all(self, living: Sequence[_Living], stamp: Stamp) -> list[tuple[_Living, StoredRun]]:
        """All that can be read, stored in new packs. Where one cannot be stored, none is kept."""
        stored = await asyncio.gather(*(self._store_anew(each, stamp) for each in living), return_exceptions=True)
        found = [(each, run) for each, run in zip(living, stored, strict=True) if isinstance(run, StoredRun)]
        failed = [error for error in stored if isinstance(error, BaseException)]
        if failed:
            for _, run in found:
                self._writer.give_back(run)
            raise failed[0]
        return found

    async def _name(self, policy: int, found: Sequence[tuple[_Living, StoredRun]]) -> None:
        """Have the journal name the new pack that all of *found* lie in."""
        (block,) = found[0][1].blocks
        copies = tuple(Rewritten(each.run, each.nth, each.extent, stored.extents[0]) for each, stored in found)
        sources = tuple(dict.fromkeys(each.extent.block for each, _ in found))
        await self._journal.send(RewritePack(block, policy, sources, copies))
        failpoints.reach("compaction-named")
        for _, stored in found:
            self._writer.named(stored)

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
