"""Commands of blocks: what takedown, the sweeper and the compactor ask of the committer. Rows in memory only.

All of them are idempotent: what is done already is passed over, so that two workers, or one that starts again, do no
harm.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import InvalidArgument
from gateway.journal.apply.work import ids_in
from gateway.journal.columns import Rewritten, extents, pieces
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
"""The journal's level that records about new packs need."""
COPIES_FEATURE = 2
"""The journal's level that records about the work on copies need."""


class DeadBlock(NamedTuple):
    """A dead block whose bytes are gone."""

    id: bytes
    died: int
    """As it was read."""


@command(60, frees=True, weight=lambda asked: sum(most for _, most in asked.items))
class ReleaseContent(Command[int]):
    """Takedown's: what was let go of loses its counts. Each item is (freed id, how many of a body's pieces at most).
    Answers how many items there were to take."""

    items: tuple[tuple[int, int], ...]


def release_content(asked: ReleaseContent, tx: Tx) -> int:
    ids = dict(asked.items)
    tx.prefetch([(RELEASE_QUEUE, (freed,)) for freed in ids])
    there = [row for freed in ids if (row := tx.get(RELEASE_QUEUE, (freed,))) is not None and row.shape != Shape.NONE]
    _want_contents(tx, there, ids)
    if there:
        tx.emit(ContentReleased(tuple((row.id, max(1, ids[row.id])) for row in there)))
    return len(there)


def _want_contents(tx: Tx, freed: list[QueuedRelease], most: dict[int, int]) -> None:
    """Load what applying will touch, a level at a time, instead of a row at a time."""
    tx.prefetch([(BODY if row.shape == Shape.BODY else RUN, (row.content,)) for row in freed])
    runs: list[int] = []
    for row in freed:
        if row.shape == Shape.RUN:
            runs.append(row.content)
        elif (body := tx.get(BODY, (row.content,))) is not None and body.refs == 1:
            upto = row.cursor + max(1, most[row.id])
            runs.extend(piece.run for piece in pieces(body.pieces)[row.cursor : upto])
    tx.prefetch([(RUN, (run,)) for run in runs])
    wanted: list[RowKey] = []
    for each in dict.fromkeys(runs):
        run = tx.get(RUN, (each,))
        if run is not None and run.refs <= runs.count(each):
            for extent in extents(run.extents):
                wanted += [(BLOCK, (extent.block,)), (MEMBER, (extent.block, each))]
    tx.prefetch(wanted)


@command(67, weight=lambda asked: 3)
class RewritePack(Command[bool]):
    """The compactor's: name a new pack, which holds copies of extents of older packs; as of `PackRewritten`. Answers
    whether it was news.

    Raises `SessionExpired` for a block of another session: it may be swept at any moment."""

    block: NewBlock
    policy: int
    sources: tuple[bytes, ...]
    copies: tuple[Rewritten, ...]


def rewrite_pack(asked: RewritePack, tx: Tx) -> bool:
    tx.prefetch([(SITE, (0,)), *((table, (asked.block.id,)) for table in (BLOCK, WORK, REWRITE))])
    if any(each.before.length != each.after.length or each.after.block != asked.block.id for each in asked.copies):
        raise InvalidArgument("a copy lies in the new pack and is as long as the extent that it is of")
    if tx.get(BLOCK, (asked.block.id,)) is not None:
        return False
    tx.need_feature(REWRITES_FEATURE)
    tx.emit(PackRewritten(asked.block, asked.policy, asked.sources, asked.copies))
    return True


@command(68, weight=lambda asked: 3)
class PlaceRewrite(Command[bool]):
    """The compactor's: as of `RewritePlaced`. Answers whether the new pack was still held by the set *backends*, and
    its copies on *suspects*, and on no other backends, were suspected."""

    block: bytes
    placed_ns: int
    backends: int
    suspects: tuple[int, ...] = ()


def place_rewrite(asked: PlaceRewrite, tx: Tx) -> bool:
    tx.prefetch([(table, (asked.block,)) for table in (BLOCK, WORK, REWRITE)])
    block, row = tx.get(BLOCK, (asked.block,)), tx.get(REWRITE, (asked.block,))
    if row is None or block is None or block.died or block.backends != asked.backends:
        return False
    work = tx.get(WORK, (asked.block,))
    if work is not None and ids_in(work.suspects) != asked.suspects:
        return False
    tx.emit(RewritePlaced(asked.block, asked.placed_ns, asked.backends))
    return True


@command(69, weight=lambda asked: 2 * len(asked.copies))
class MoveRewritten(Command[int | None]):
    """The compactor's: extents move to a new pack, of each run that is still as it was read. *copies*: all of a run
    that lie in this pack. Answers how many extents moved.

    Answers None, and nothing moves, unless the new pack is still held by the set that it was *placed_ns* with, no copy
    of it was suspected since, and each old pack is still held by the set that *sources* name: (old pack, set)."""

    block: bytes
    placed_ns: int
    copies: tuple[Rewritten, ...]
    sources: tuple[tuple[bytes, int], ...] = ()


def move_rewritten(asked: MoveRewritten, tx: Tx) -> int | None:
    tx.prefetch([(table, (asked.block,)) for table in (BLOCK, REWRITE)])
    block, row = tx.get(BLOCK, (asked.block,)), tx.get(REWRITE, (asked.block,))
    # what died may be swept at any moment: a worker who did not write it must not bring it back to life
    if row is None or block is None or block.died or not asked.placed_ns or row.placed_ns != asked.placed_ns:
        return None
    if row.backends != block.backends:
        return None
    runs: dict[int, list[Rewritten]] = {}
    for each in asked.copies:
        runs.setdefault(each.run, []).append(each)
    tx.prefetch([(RUN, (run,)) for run in runs])
    standing = {run: copies for run, copies in runs.items() if _stands(tx, run, copies)}
    wanted: list[RowKey] = []
    for run, copies in standing.items():
        for each in copies:
            wanted += [(BLOCK, (each.before.block,)), (MEMBER, (each.before.block, run)), (MEMBER, (asked.block, run))]
    tx.prefetch(wanted)
    if not _are_held(tx, {each.before.block for copies in standing.values() for each in copies}, dict(asked.sources)):
        return None
    for run, copies in standing.items():
        tx.emit(ExtentsMoved(run, tuple(each.nth for each in copies), tuple(each.after for each in copies), ()))
    return sum(map(len, standing.values()))


def _are_held(tx: Tx, blocks: set[bytes], sets: dict[bytes, int]) -> bool:
    """Whether each of *blocks* is held by its set in *sets*."""
    found = ((each, tx.get(BLOCK, (each,))) for each in blocks)
    return all(row is not None and sets.get(each) == row.backends for each, row in found)


def _stands(tx: Tx, run: int, copies: list[Rewritten]) -> bool:
    """Whether the run is as it was read."""
    row = tx.get(RUN, (run,))
    placed = extents(row.extents) if row is not None else []
    return all(each.nth < len(placed) and placed[each.nth] == each.before for each in copies)


@command(70, weight=lambda asked: 4)
class EndRewrite(Command[bool]):
    """The compactor's: as of `RewriteEnded`. *absent*: backends that confirmed the new pack and do not have it; where
    extents have moved there already, those copies are suspected, so that the mover makes them again. Answers whether
    there was such a rewrite."""

    block: bytes
    absent: tuple[int, ...] = ()


def end_rewrite(asked: EndRewrite, tx: Tx) -> bool:
    tx.prefetch([(SITE, (0,)), *((table, (asked.block,)) for table in (BLOCK, WORK, REWRITE))])
    if tx.get(REWRITE, (asked.block,)) is None:
        return False
    block = tx.get(BLOCK, (asked.block,))
    if block is not None and not block.died and block.members:
        for backend in asked.absent:
            require_copies_feature(tx)
            tx.emit(CopySuspected(asked.block, backend, "it was confirmed, and is not there", tx.at_ns))
    tx.emit(RewriteEnded(asked.block))
    return True


@command(62, frees=True, weight=lambda asked: len(asked.dead))
class ForgetBlocks(Command[int]):
    """The sweeper's: the bytes of these dead blocks are gone from every backend. Answers how many were forgotten."""

    dead: tuple[DeadBlock, ...]


def forget_blocks(asked: ForgetBlocks, tx: Tx) -> int:
    tx.prefetch([(BLOCK, (dead.id,)) for dead in asked.dead])
    there = []
    for dead in asked.dead:
        block = tx.get(BLOCK, (dead.id,))
        if block is not None and block.died == dead.died and block.died:
            there.append(dead.id)
    if there:
        tx.emit(BlocksForgotten(tuple(there)))
    return len(there)


@command(63, frees=True)
class SweepSession(Command[bool]):
    """The sweeper's: the session has ended, and its unnamed blocks were deleted. Answers whether that was news."""

    session: int


def sweep_session(asked: SweepSession, tx: Tx) -> bool:
    row = tx.get(SESSION, (asked.session,))
    if row is None or row.state == SessionState.SWEPT:
        return False
    if row.state == SessionState.LIVE:
        raise InvalidArgument(f"session {asked.session} has not ended")
    tx.emit(SessionSwept(asked.session))
    return True


@command(64, frees=True)
class ForgetSession(Command[bool]):
    """The sweeper's: a swept session was listed a last time. Answers whether that was news."""

    session: int


def forget_session(asked: ForgetSession, tx: Tx) -> bool:
    row = tx.get(SESSION, (asked.session,))
    if row is None:
        return False
    if row.state != SessionState.SWEPT:
        raise InvalidArgument(f"session {asked.session} was not swept yet")
    tx.emit(SessionForgotten(asked.session))
    return True


@command(65)
class SetBlockBackends(Command[bool]):
    """A block is held by the backends of another set now, if it is still held by those of *before*. Answers whether
    it was changed."""

    block: bytes
    before: int
    set_members: bytes
    """packed, the key of the set's row: a command finds rows by key."""


def set_block_backends(asked: SetBlockBackends, tx: Tx) -> bool:
    tx.prefetch([(BLOCK, (asked.block,)), (BACKEND_SET, (asked.set_members,))])
    block = tx.get(BLOCK, (asked.block,))
    found = tx.get(BACKEND_SET, (asked.set_members,))
    if found is None:
        raise InvalidArgument("nobody named that set of backends")
    if block is None or block.backends != asked.before:
        return False
    tx.emit(BlockBackendsSet(asked.block, found.id))
    return True


@command(66, weight=lambda asked: 2 * len(asked.found))
class NoteStrays(Command[int]):
    """Copies that no row names, each (block, backend), of blocks that live: they are to be adopted or deleted by who
    works on copies. Answers how many that were."""

    found: tuple[tuple[bytes, int], ...]


def note_strays(asked: NoteStrays, tx: Tx) -> int:
    wanted: list[RowKey] = [(SITE, (0,))]
    for block_id, _ in asked.found:
        wanted += [(BLOCK, (block_id,)), (WORK, (block_id,))]
    tx.prefetch(wanted)
    noted = 0
    for block_id, backend in asked.found:
        block = tx.get(BLOCK, (block_id,))
        if block is not None and not block.died:
            require_copies_feature(tx)
            tx.emit(WorkNoted((block_id,), tx.at_ns, tx.at_ns))
            tx.emit(WorkBegun(block_id, (backend,)))
            noted += 1
    return noted


def require_copies_feature(tx: Tx) -> None:
    """Let the journal hold records about the work on copies."""
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
"""What the committer runs for this room."""
