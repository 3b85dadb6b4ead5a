"""The commands of the compactor: new packs, and the extents that move to them (`maintenance/rewrites.py`)."""

from __future__ import annotations

from gateway.blocks.commands.block_copies import require_copies_feature
from gateway.errors import InvalidArgument
from gateway.journal.apply.work import unpack_ids
from gateway.journal.columns import Rewritten, unpack_extents
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.bytes import (
    ExtentsMoved,
    NewBlock,
    PackRewritten,
    RewriteEnded,
    RewritePlaced,
)
from gateway.journal.records.work import CopySuspected
from gateway.journal.rows import RowKey
from gateway.journal.tables import (
    BLOCK,
    MEMBER,
    REWRITE,
    RUN,
    SITE,
    WORK,
)

REWRITES_FEATURE = 8
"""The journal's feature level that records about new packs need."""


@command(67, weight=lambda command: 3)
class RewritePack(Command[bool]):
    """Name a new pack, which holds copies of extents of older packs, by the record `PackRewritten`.

    Returns False if the journal has the pack already. Raises `SessionExpired` for a block of another session, which may
    be swept at any moment."""

    block: NewBlock
    policy: int
    sources: tuple[bytes, ...]
    copies: tuple[Rewritten, ...]


def rewrite_pack(command: RewritePack, tx: Tx) -> bool:
    tx.prefetch([(SITE, (0,)), *((table, (command.block.id,)) for table in (BLOCK, WORK, REWRITE))])
    for copy in command.copies:
        if copy.before.length != copy.after.length or copy.after.block != command.block.id:
            raise InvalidArgument("a copied extent must be in the new pack and have the length of its original")
    if tx.get(BLOCK, (command.block.id,)) is not None:
        return False
    tx.need_feature(REWRITES_FEATURE)
    tx.emit(PackRewritten(command.block, command.policy, command.sources, command.copies))
    return True


@command(68, weight=lambda command: 3)
class PlaceRewrite(Command[bool]):
    """Record that a new pack is where it must be, by the record `RewritePlaced`.

    Returns False, and records nothing, unless the pack is still held by the set *backends*, and exactly its copies on
    *suspects* are suspected."""

    block: bytes
    placed_ns: int
    backends: int
    suspects: tuple[int, ...] = ()


def place_rewrite(command: PlaceRewrite, tx: Tx) -> bool:
    tx.prefetch([(table, (command.block,)) for table in (BLOCK, WORK, REWRITE)])
    block, rewrite = tx.get(BLOCK, (command.block,)), tx.get(REWRITE, (command.block,))
    if rewrite is None or block is None or block.died or block.backends != command.backends:
        return False
    work = tx.get(WORK, (command.block,))
    if work is not None and unpack_ids(work.suspects) != command.suspects:
        return False
    tx.emit(RewritePlaced(command.block, command.placed_ns, command.backends))
    return True


@command(69, weight=lambda command: 2 * len(command.copies))
class MoveRewritten(Command[int | None]):
    """Move extents to a new pack, of each run that has not changed since it was read. *copies* has, of each run, all
    extents that the new pack holds copies of. Returns how many extents were moved.

    Returns None, and moves nothing, unless the new pack is still held by the set that it had at *placed_ns*, no copy of
    it has been suspected since, and each old pack is still held by its set in *sources*: (old pack, set)."""

    block: bytes
    placed_ns: int
    copies: tuple[Rewritten, ...]
    sources: tuple[tuple[bytes, int], ...] = ()


def move_rewritten(command: MoveRewritten, tx: Tx) -> int | None:
    tx.prefetch([(table, (command.block,)) for table in (BLOCK, REWRITE)])
    block, rewrite = tx.get(BLOCK, (command.block,)), tx.get(REWRITE, (command.block,))
    # A dead block may be swept at any moment. Only a command of the session that wrote it may revive it: not this one.
    if rewrite is None or block is None or block.died or not command.placed_ns:
        return None
    if rewrite.placed_ns != command.placed_ns or rewrite.backends != block.backends:
        return None
    by_run: dict[int, list[Rewritten]] = {}
    for copy in command.copies:
        by_run.setdefault(copy.run, []).append(copy)
    tx.prefetch([(RUN, (run,)) for run in by_run])
    unchanged = {run: copies for run, copies in by_run.items() if _is_unchanged(tx, run, copies)}
    keys: list[RowKey] = []
    for run, copies in unchanged.items():
        for copy in copies:
            keys += [(BLOCK, (copy.before.block,)), (MEMBER, (copy.before.block, run)), (MEMBER, (command.block, run))]
    tx.prefetch(keys)
    old_packs = {copy.before.block for copies in unchanged.values() for copy in copies}
    if not _are_held_by(tx, old_packs, dict(command.sources)):
        return None
    for run, copies in unchanged.items():
        tx.emit(ExtentsMoved(run, tuple(copy.nth for copy in copies), tuple(copy.after for copy in copies), ()))
    return sum(map(len, unchanged.values()))


def _are_held_by(tx: Tx, blocks: set[bytes], sets: dict[bytes, int]) -> bool:
    """Return whether each of *blocks* is held by its set in *sets*."""
    rows = ((block_id, tx.get(BLOCK, (block_id,))) for block_id in blocks)
    return all(row is not None and sets.get(block_id) == row.backends for block_id, row in rows)


def _is_unchanged(tx: Tx, run: int, copies: list[Rewritten]) -> bool:
    """Return whether the extents of *run* are those that *copies* were made of."""
    row = tx.get(RUN, (run,))
    present = unpack_extents(row.extents) if row is not None else []
    return all(copy.nth < len(present) and present[copy.nth] == copy.before for copy in copies)


@command(70, weight=lambda command: 4)
class EndRewrite(Command[bool]):
    """End a rewrite, by the record `RewriteEnded`. Returns whether there was such a rewrite.

    *absent*: backends that confirmed the new pack and do not have it. If extents have been moved to the pack already,
    its copies there are suspected, so that the mover makes them again."""

    block: bytes
    absent: tuple[int, ...] = ()


def end_rewrite(command: EndRewrite, tx: Tx) -> bool:
    tx.prefetch([(SITE, (0,)), *((table, (command.block,)) for table in (BLOCK, WORK, REWRITE))])
    if tx.get(REWRITE, (command.block,)) is None:
        return False
    block = tx.get(BLOCK, (command.block,))
    if block is not None and not block.died and block.members:
        for backend in command.absent:
            require_copies_feature(tx)
            tx.emit(CopySuspected(command.block, backend, "it was confirmed, and is not there", tx.at_ns))
    tx.emit(RewriteEnded(command.block))
    return True
