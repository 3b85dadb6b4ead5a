"""Commands of blocks: what the workers that release content, sweep and compact send to the committer.

All of them are idempotent: what is done already is skipped. So two workers, or one that starts again, do no harm. The
functions work on rows in memory only.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import InvalidArgument
from gateway.journal.apply.work import unpack_ids
from gateway.journal.columns import Rewritten, unpack_extents, unpack_pieces
from gateway.journal.commands import Command, CommandTable, Tx, command
from gateway.journal.records.bytes import (
    BlocksForgotten,
    ContentReleased,
    ExtentsMoved,
    NewBlock,
    PackRewritten,
    RewriteEnded,
    RewritePlaced,
)
from gateway.journal.records.site import SessionForgotten, SessionSwept
from gateway.journal.records.work import BlockBackendsSet, CopySuspected, WorkBegun, WorkNoted
from gateway.journal.rows import RowKey
from gateway.journal.tables import (
    BACKEND_SET,
    BLOCK,
    BODY,
    MEMBER,
    RELEASE_QUEUE,
    REWRITE,
    RUN,
    SESSION,
    SITE,
    WORK,
    QueuedRelease,
    SessionState,
    Shape,
)

REWRITES_FEATURE = 8
"""The journal's feature level that records about new packs need."""
COPIES_FEATURE = 2
"""The journal's feature level that records about the work on copies need."""


# ---- releasing content ----------------------------------------------------------------------------------------------


@command(60, frees=True, weight=lambda command: sum(most for _, most in command.items))
class ReleaseContent(Command[int]):
    """Lower the counts of what queued releases hold. Each item is (id in the queue, most pieces of a body to release).

    Returns how many of the items were in the queue."""

    items: tuple[tuple[int, int], ...]


def release_content(command: ReleaseContent, tx: Tx) -> int:
    most_pieces = dict(command.items)
    tx.prefetch([(RELEASE_QUEUE, (queued,)) for queued in most_pieces])
    rows = [row for queued in most_pieces if (row := tx.get(RELEASE_QUEUE, (queued,))) is not None]
    releases = [row for row in rows if row.shape != Shape.NONE]
    _prefetch_contents(tx, releases, most_pieces)
    if releases:
        tx.emit(ContentReleased(tuple((row.id, max(1, most_pieces[row.id])) for row in releases)))
    return len(releases)


def _prefetch_contents(tx: Tx, releases: list[QueuedRelease], most_pieces: dict[int, int]) -> None:
    """Load the rows that applying the record touches, one level at a time instead of one row at a time."""
    tx.prefetch([(BODY if row.shape == Shape.BODY else RUN, (row.content,)) for row in releases])
    runs: list[int] = []
    for row in releases:
        if row.shape == Shape.RUN:
            runs.append(row.content)
        elif (body := tx.get(BODY, (row.content,))) is not None and body.refs == 1:
            upto = row.cursor + max(1, most_pieces[row.id])
            runs.extend(piece.run for piece in unpack_pieces(body.pieces)[row.cursor : upto])
    tx.prefetch([(RUN, (run,)) for run in runs])
    keys: list[RowKey] = []
    for run_id in dict.fromkeys(runs):
        run = tx.get(RUN, (run_id,))
        if run is not None and run.refs <= runs.count(run_id):
            for extent in unpack_extents(run.extents):
                keys += [(BLOCK, (extent.block,)), (MEMBER, (extent.block, run_id))]
    tx.prefetch(keys)


# ---- compacting -----------------------------------------------------------------------------------------------------


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
    # A dead block may be swept at any moment, so only a worker of the session that wrote it may bring it back to life.
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


# ---- sweeping -------------------------------------------------------------------------------------------------------


class DeadBlock(NamedTuple):
    """A dead block whose bytes have been deleted."""

    id: bytes
    died: int
    """The number of the record that it died at, as it was read."""


@command(62, frees=True, weight=lambda command: len(command.dead))
class ForgetBlocks(Command[int]):
    """Drop the rows of dead blocks whose bytes have been deleted from every backend. Returns how many were dropped."""

    dead: tuple[DeadBlock, ...]


def forget_blocks(command: ForgetBlocks, tx: Tx) -> int:
    tx.prefetch([(BLOCK, (dead.id,)) for dead in command.dead])
    present = []
    for dead in command.dead:
        block = tx.get(BLOCK, (dead.id,))
        if block is not None and block.died == dead.died and block.died:
            present.append(dead.id)
    if present:
        tx.emit(BlocksForgotten(tuple(present)))
    return len(present)


@command(63, frees=True)
class SweepSession(Command[bool]):
    """Record that a session has ended and its unnamed blocks were deleted. Returns False if that was recorded before.

    Raises `InvalidArgument` if the session has not ended."""

    session: int


def sweep_session(command: SweepSession, tx: Tx) -> bool:
    row = tx.get(SESSION, (command.session,))
    if row is None or row.state == SessionState.SWEPT:
        return False
    if row.state == SessionState.LIVE:
        raise InvalidArgument(f"session {command.session} has not ended")
    tx.emit(SessionSwept(command.session))
    return True


@command(64, frees=True)
class ForgetSession(Command[bool]):
    """Drop a swept session, whose blocks were listed a last time. Returns False if it was dropped before.

    Raises `InvalidArgument` if the session was not swept."""

    session: int


def forget_session(command: ForgetSession, tx: Tx) -> bool:
    row = tx.get(SESSION, (command.session,))
    if row is None:
        return False
    if row.state != SessionState.SWEPT:
        raise InvalidArgument(f"session {command.session} was not swept yet")
    tx.emit(SessionForgotten(command.session))
    return True


# ---- copies ---------------------------------------------------------------------------------------------------------


@command(65)
class SetBlockBackends(Command[bool]):
    """Record that a block is held by the backends of another set, if it is still held by those of the set *before*.

    Returns whether it was. Raises `InvalidArgument` if the new set does not exist."""

    block: bytes
    before: int
    set_members: bytes
    """The new set's packed members, which are the key of its row: a command finds rows by key."""


def set_block_backends(command: SetBlockBackends, tx: Tx) -> bool:
    tx.prefetch([(BLOCK, (command.block,)), (BACKEND_SET, (command.set_members,))])
    block = tx.get(BLOCK, (command.block,))
    backend_set = tx.get(BACKEND_SET, (command.set_members,))
    if backend_set is None:
        raise InvalidArgument("that set of backends does not exist")
    if block is None or block.backends != command.before:
        return False
    tx.emit(BlockBackendsSet(command.block, backend_set.id))
    return True


@command(66, weight=lambda command: 2 * len(command.copies))
class NoteStrays(Command[int]):
    """Note unnamed copies of living blocks, each (block, backend), for the mover, which names or deletes them.

    Returns how many of the blocks live."""

    copies: tuple[tuple[bytes, int], ...]


def note_strays(command: NoteStrays, tx: Tx) -> int:
    keys: list[RowKey] = [(SITE, (0,))]
    for block_id, _ in command.copies:
        keys += [(BLOCK, (block_id,)), (WORK, (block_id,))]
    tx.prefetch(keys)
    noted = 0
    for block_id, backend in command.copies:
        block = tx.get(BLOCK, (block_id,))
        if block is not None and not block.died:
            require_copies_feature(tx)
            tx.emit(WorkNoted((block_id,), tx.at_ns, tx.at_ns))
            tx.emit(WorkBegun(block_id, (backend,)))
            noted += 1
    return noted


def require_copies_feature(tx: Tx) -> None:
    """Raise the journal's feature level to the one that records about the work on copies need."""
    tx.need_feature(COPIES_FEATURE)


COMMANDS: CommandTable = {
    ReleaseContent: release_content,
    RewritePack: rewrite_pack,
    PlaceRewrite: place_rewrite,
    MoveRewritten: move_rewritten,
    EndRewrite: end_rewrite,
    ForgetBlocks: forget_blocks,
    SweepSession: sweep_session,
    ForgetSession: forget_session,
    SetBlockBackends: set_block_backends,
    NoteStrays: note_strays,
}
"""The commands of this package, for the committer."""
