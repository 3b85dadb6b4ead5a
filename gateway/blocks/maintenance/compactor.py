"""The compactor: it rewrites packs that are largely dead, keeping only what lives in them.

**Cost and bound.** Rewriting a pack of which a share f lives costs f bytes of writing for (1 - f) bytes of disk. So
each deleted byte pays for at most four rewritten ones, and a pack is left alone while more than four fifths of it live:
living bytes take at most 1.25 times their size. A pack of which less than half lives is rewritten at once. One between
half and four fifths is rewritten only when no content waits to be released, so that a long deletion does not have the
same bytes rewritten again and again.

A new pack is written here, and named by a record. Its extents move there, and the old packs die, only once the backends
that must hold it have kept it for a while (`rewrites.py`, with the crash argument). The packs that one new pack
replaces are of one policy, and held by the same backends (a *group*). If the packs of a group cannot be rewritten,
since a backend is away, the group is left alone for a while, longer each time, and others are rewritten.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from backends.errors import BackendError
from gateway import errors, failpoints
from gateway.blocks.commands.rewrite import RewritePack
from gateway.blocks.maintenance.rewrites import REWRITES_MAX, Group, PendingRewrite, Rewrites, full_groups
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Tables, WantedBackends, WorkerJournal
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.read.reader import Reader
from gateway.blocks.types import BLOCK_BYTES, ReadRange, WriteContext
from gateway.blocks.write.writer import StoredRun, Writer
from gateway.journal.columns import Extent, Rewritten
from gateway.timing import Timing

CANDIDATES = 64
"""Packs that one step chooses from."""
SLICE = 500
"""Packs that one query reads."""
EXTENTS_PER_STEP = 1_000
"""About how many extents one step copies, at most."""

ContextOf = Callable[[int, int, frozenset[int]], WriteContext]
"""Called with (ring key id, policy id, ids of backends): returns the context under which blocks that were written with
that key and policy, and should be on these backends, are written today."""

_log = logging.getLogger(__name__)


class _SparsePack(NamedTuple):
    """A pack of which much is dead."""

    id: bytes
    ring_key: int
    policy: int
    backends: int
    plain: int
    live: int

    @property
    def group(self) -> Group:
        return self.policy, self.backends


class _LivingExtent(NamedTuple):
    """An extent that lives in such a pack: the *nth* one of a run."""

    run: int
    nth: int
    extent: Extent


class _CopiedExtent(NamedTuple):
    """A living extent, and its copy in a new pack."""

    source: _LivingExtent
    stored: StoredRun


class Compactor(Worker):
    """Rewrites packs that are largely dead."""

    name = "compactor"

    def __init__(
        self,
        store: Tables,
        journal: WorkerJournal,
        lookup: Lookup,
        reader: Reader,
        writer: Writer,
        context_of: ContextOf,
        wanted: WantedBackends,
        *,
        timing: Timing,
    ) -> None:
        super().__init__(store, timing)
        self._journal = journal
        self._lookup = lookup
        self._reader = reader
        self._writer = writer
        self._context_of = context_of
        self._unreadable: set[bytes] = set()  # packs with an extent that no copy has
        self._wanted = wanted
        self._rewrites = Rewrites(store, journal, lookup, writer.budget, wanted, timing=timing)

    @property
    def moved(self) -> int:
        """Extents that were moved to new packs so far."""
        return self._rewrites.moved

    async def step(self) -> bool:
        if not self._wanted.refresh():
            return False
        if await self._rewrites.step():
            return True
        pending = self._rewrites.pending()
        if pending is None:
            return True
        candidates = await self._candidates(pending)
        if not candidates:
            return False
        with self._journal.reading():
            return await self._rewrite(_choose(candidates)) > 0

    async def _candidates(self, pending: Sequence[PendingRewrite]) -> list[_SparsePack]:
        """Return packs that may be rewritten now, the one of which least lives first.

        Tens of thousands of packs, and thousands of groups, may have to be skipped. So packs are read in slices, and
        compared here: the query is the same however many groups are left alone."""
        if len(pending) >= REWRITES_MAX:
            return []
        skipped = self._unreadable.union(*(each.sources for each in pending))
        skipped_groups = full_groups(pending).union(self._rewrites.group_backoff.paused())
        candidates: dict[bytes, _SparsePack] = {}  # a pack that grows meanwhile may be read twice
        after = (-1, 0, b"")
        while len(candidates) < CANDIDATES:
            rows = self.store.query(
                "SELECT id, ring_key, policy, backends, plain, live FROM block WHERE died = 0 AND live * 5 < plain * 4 "
                "AND (live, plain, id) > (?, ?, ?) ORDER BY live, plain, id LIMIT ?",
                (*after, SLICE),
            )
            packs = list(map(_SparsePack._make, rows))
            candidates.update(
                (pack.id, pack) for pack in packs if pack.id not in skipped and pack.group not in skipped_groups
            )
            if len(packs) < SLICE:
                break
            after = packs[-1].live, packs[-1].plain, packs[-1].id
            await asyncio.sleep(0)
        if self.store.query("SELECT 1 FROM freed LIMIT 1"):
            return [pack for pack in candidates.values() if pack.live * 2 < pack.plain]
        return list(candidates.values())

    async def _rewrite(self, packs: Sequence[_SparsePack]) -> int:
        """Copy what lives in *packs*, which are of one group and one ring key, to new packs. Returns the number of new
        packs."""
        try:
            copied = await self._copy(packs)
        except (errors.EntrepotError, BackendError) as error:
            self._rewrites.group_backoff.record_failure(
                packs[0].group, str(error)
            )  # so that the next step rewrites others
            raise
        by_block: dict[bytes, list[_CopiedExtent]] = {}
        for each in copied:
            by_block.setdefault(each.stored.extents[0].block, []).append(each)
        failpoints.reach("compaction-stored")
        count = len(by_block)
        try:
            while by_block:
                await self._record_new_pack(packs[0].policy, next(iter(by_block.values())))
                del by_block[next(iter(by_block))]
        except BaseException:
            for each in itertools.chain.from_iterable(by_block.values()):
                self._writer.mark_unknown(each.stored)
            raise
        self._rewrites.look_soon()
        return count

    async def _copy(self, packs: Sequence[_SparsePack]) -> list[_CopiedExtent]:
        """Store what lives in *packs* in new packs, as far as it can be read, and as much as one step copies."""
        policy, set_id = packs[0].group
        wanted = self._wanted.desired(policy, self._lookup.members(set_id))
        context = self._context_of(packs[0].ring_key, policy, wanted)
        living: list[_LivingExtent] = []
        for pack in packs:
            living.extend(self._living_in(pack.id))
            if len(living) >= EXTENTS_PER_STEP:
                break
        async with self._writer.budget.charged(sum(each.extent.length for each in living)):
            return await self._store_all(living, context)

    async def _store_all(self, living: Sequence[_LivingExtent], context: WriteContext) -> list[_CopiedExtent]:
        """Store all extents that can be read in new packs. If one cannot be stored, all are aborted."""
        results = await asyncio.gather(*(self._copy_extent(each, context) for each in living), return_exceptions=True)
        copied = [
            _CopiedExtent(each, stored)
            for each, stored in zip(living, results, strict=True)
            if isinstance(stored, StoredRun)
        ]
        failed = [error for error in results if isinstance(error, BaseException)]
        if failed:
            for each in copied:
                self._writer.release_unnamed(each.stored)
            raise failed[0]
        return copied

    async def _record_new_pack(self, policy: int, copied: Sequence[_CopiedExtent]) -> None:
        """Have the journal name the new pack that all of *copied* are in."""
        (block,) = copied[0].stored.blocks
        copies = tuple(Rewritten(source.run, source.nth, source.extent, stored.extents[0]) for source, stored in copied)
        sources = tuple(dict.fromkeys(source.extent.block for source, _ in copied))
        await self._journal.send(RewritePack(block, policy, sources, copies))
        failpoints.reach("compaction-named")
        for each in copied:
            self._writer.mark_named(each.stored)

    def _living_in(self, block_id: bytes) -> list[_LivingExtent]:
        living: list[_LivingExtent] = []
        with self.store.snapshot():
            for (run,) in self.store.query("SELECT run FROM member WHERE block = ?", (block_id,)):
                for nth, extent in enumerate(self._lookup.extents_of(run)):
                    if extent.block == block_id:
                        living.append(_LivingExtent(run, nth, extent))
        return living

    async def _copy_extent(self, living: _LivingExtent, context: WriteContext) -> StoredRun | None:
        """Read, verify and store an extent's bytes; None if no copy has them any more."""
        read_range = ReadRange(living.extent, 0, living.extent.length, living.run, living.nth)
        try:
            plain = self._reader.read_now([read_range])
            if plain is None:
                plain = b"".join([bytes(piece) async for piece in self._reader.read([read_range])])
        except errors.Corrupted as error:
            _log.error("a pack is not compacted: %s", error)
            self._unreadable.add(living.extent.block)
            return None
        return await self._writer.store_packed(context, plain)


def _choose(candidates: Sequence[_SparsePack]) -> list[_SparsePack]:
    """Return the first candidate, and others of its group and ring key that fit into the same new pack."""
    first = candidates[0]
    chosen: list[_SparsePack] = []
    size = 0
    for pack in candidates:
        is_alike = (pack.ring_key, pack.group) == (first.ring_key, first.group)
        if is_alike and (not chosen or size + pack.live <= BLOCK_BYTES):
            chosen.append(pack)
            size += pack.live
    return chosen
