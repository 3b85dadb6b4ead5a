"""The compactor: packs of which much is dead are written anew, with what lives in them.

What it costs and what it bounds: rewriting a pack of which a share f lives costs f bytes of writing for (1 - f) bytes
of disk, so each deleted byte pays for at most four rewritten ones, and a pack is left alone while more than four
fifths of it live: what lives, lives in at most 1.25 times its bytes. Below a half a pack is rewritten at once; between
that and four fifths only once nothing waits to be taken apart, so that a long deletion does not have the same bytes
rewritten again and again.

A new pack is written here and named by a record. Its extents move there, and the old packs go, only once the places
that must hold it have kept it for a while (`rewrites`, with the crash argument). The packs that one new pack replaces
are of one policy, and the same backends hold them. Where such packs cannot be rewritten, since a backend is away, they
are left alone for a while, longer each time, and others are rewritten.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from backends.errors import BackendError
from gateway import errors, failpoints
from gateway.blocks.commands import RewritePack
from gateway.blocks.maintenance.rewrites import REWRITES_MAX, Begun, Group, Rewrites, full
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Tables, WantedBackends, WorkerJournal
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.read.reader import Reader
from gateway.blocks.types import BLOCK_BYTES, ReadRange, WriteContext
from gateway.blocks.write.writer import StoredRun, Writer
from gateway.journal.columns import Extent, Rewritten
from gateway.timing import Timing

CANDIDATES = 64
SLICE = 500
"""How many packs one query reads."""
MEMBERS = 1_000
"""Extents of one step at most."""

ContextOf = Callable[[int, int, frozenset[int]], WriteContext]
"""The stamp under which what was written with (ring key id, policy id), and should lie on these backends, is written
today."""

_log = logging.getLogger(__name__)


class _Sparse(NamedTuple):
    """A pack of which much is dead."""

    id: bytes
    ring_key: int
    policy: int
    backends: int
    plain: int
    live: int

    @property
    def group(self) -> Group:
        """What such packs wait with."""
        return self.policy, self.backends


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
        journal: WorkerJournal,
        lookup: Lookup,
        reader: Reader,
        writer: Writer,
        restamp: ContextOf,
        wanted: WantedBackends,
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
        self._wanted = wanted
        self._rewrites = Rewrites(store, journal, lookup, writer.budget, wanted, timing=timing)

    @property
    def moved(self) -> int:
        """Extents so far that moved to a new pack."""
        return self._rewrites.moved

    async def step(self) -> bool:
        if not self._wanted.refresh():
            return False
        if await self._rewrites.step():
            return True
        begun = self._rewrites.begun()
        if begun is None:
            return True
        packs = await self._candidates(begun)
        if not packs:
            return False
        chosen: list[_Sparse] = []
        size = 0
        for pack in packs:
            alike = (pack.ring_key, pack.group) == (packs[0].ring_key, packs[0].group)
            if alike and (not chosen or size + pack.live <= BLOCK_BYTES):
                chosen.append(pack)
                size += pack.live
        with self._journal.reading():
            return await self._rewrite(chosen) > 0

    async def _candidates(self, begun: Sequence[Begun]) -> list[_Sparse]:
        """Packs that may be rewritten now, those first of which least lives. *begun*: the rewrites that have not ended.

        Tens of thousands of packs, and thousands of groups, may have to be passed over. So packs are read in slices,
        and compared here: the query is the same however many groups rest."""
        if len(begun) >= REWRITES_MAX:
            return []
        passed_over = self._unreadable.union(*(each.sources for each in begun))
        groups = full(begun).union(self._rewrites.groups.paused())
        found: dict[bytes, _Sparse] = {}
        after = (-1, 0, b"")
        while len(found) < CANDIDATES:
            rows = self.store.query(
                "SELECT id, ring_key, policy, backends, plain, live FROM block WHERE died = 0 AND live * 5 < plain * 4 "
                "AND (live, plain, id) > (?, ?, ?) ORDER BY live, plain, id LIMIT ?",
                (*after, SLICE),
            )
            packs = list(map(_Sparse._make, rows))
            found.update((pack.id, pack) for pack in packs if pack.id not in passed_over and pack.group not in groups)
            if len(packs) < SLICE:
                break
            after = packs[-1].live, packs[-1].plain, packs[-1].id
            await asyncio.sleep(0)
        if self.store.query("SELECT 1 FROM freed LIMIT 1"):
            return [pack for pack in found.values() if pack.live * 2 < pack.plain]
        return list(found.values())

    async def _rewrite(self, packs: Sequence[_Sparse]) -> int:
        """Write what lives in *packs*, which are of one group and one ring key, anew. Answers how many new packs there
        are."""
        try:
            stored = await self._copied(packs)
        except (errors.EntrepotError, BackendError) as error:
            self._rewrites.groups.record_failure(packs[0].group, str(error))  # so that the next step rewrites others
            raise
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
                self._writer.commit_unknown(run)
            raise
        self._rewrites.look_soon()
        return count

    async def _copied(self, packs: Sequence[_Sparse]) -> list[tuple[_Living, StoredRun]]:
        """What lives in *packs*, as far as it can be read and one step takes it, stored in new packs."""
        policy, set_id = packs[0].group
        stamp = self._restamp(packs[0].ring_key, policy, self._wanted.desired(policy, self._lookup.members(set_id)))
        living: list[_Living] = []
        for pack in packs:
            living.extend(self._living_in(pack.id))
            if len(living) >= MEMBERS:
                break
        async with self._writer.budget.charged(sum(each.extent.length for each in living)):
            return await self._store_all(living, stamp)

    async def _store_all(self, living: Sequence[_Living], stamp: WriteContext) -> list[tuple[_Living, StoredRun]]:
        """All that can be read, stored in new packs. Where one cannot be stored, none is kept."""
        stored = await asyncio.gather(*(self._store_anew(each, stamp) for each in living), return_exceptions=True)
        found = [(each, run) for each, run in zip(living, stored, strict=True) if isinstance(run, StoredRun)]
        failed = [error for error in stored if isinstance(error, BaseException)]
        if failed:
            for _, run in found:
                self._writer.abort(run)
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
            self._writer.commit(stored)

    def _living_in(self, block: bytes) -> list[_Living]:
        found: list[_Living] = []
        with self.store.snapshot():
            for (run,) in self.store.query("SELECT run FROM member WHERE block = ?", (block,)):
                for nth, extent in enumerate(self._lookup.extents_of(run)):
                    if extent.block == block:
                        found.append(_Living(run, nth, extent))
        return found

    async def _store_anew(self, living: _Living, stamp: WriteContext) -> StoredRun | None:
        """The extent's bytes, verified and sealed again; None if no copy has them any more."""
        want = ReadRange(living.extent, 0, living.extent.length, living.run, living.nth)
        try:
            plain = self._reader.read_now([want])
            if plain is None:
                plain = b"".join([bytes(piece) async for piece in self._reader.read([want])])
        except errors.Corrupted as error:
            _log.error("a pack is left as it is: %s", error)
            self._unreadable.add(living.extent.block)
            return None
        return await self._writer.store_packed(stamp, plain)
