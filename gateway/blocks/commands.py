"""Commands of blocks: what takedown, the sweeper and the compactor ask of the committer. Rows in memory only.

All of them are idempotent: what is done already is passed over, so that two workers, or one that starts again, do no
harm.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import InvalidArgument
from gateway.journal.commands import CommandTable, Tx, command
from gateway.journal.packed import Extent, extents, pieces
from gateway.journal.records.bytes import BlocksForgotten, ExtentsMoved, NewBlock, TakenApart
from gateway.journal.records.site import SessionForgotten, SessionSwept
from gateway.journal.records.work import BlockBackendsSet, WorkBegun, WorkNoted
from gateway.journal.rows import Wanted
from gateway.journal.tables import (
    BACKEND_SET,
    BLOCK,
    BODY,
    FREED,
    MEMBER,
    RUN,
    SESSION,
    SITE,
    WORK,
    Freed,
    SessionState,
    Shape,
)

COPIES_FEATURE = 2
"""The journal's level that records about the work on copies need."""


class Move(NamedTuple):
    """Extents of one run that were written anew."""

    run: int
    nths: tuple[int, ...]
    """Which of the run's extents."""
    before: tuple[Extent, ...]
    """As they were read: if they differ by now, nothing of this run moves."""
    after: tuple[Extent, ...]


class Dead(NamedTuple):
    """A dead block whose bytes are gone."""

    id: bytes
    died: int
    """As it was read."""


@command(60, frees=True, weight=lambda asked: sum(most for _, most in asked.items))
class TakeApart:
    """Takedown's: what was let go of loses its counts. Each item is (freed id, how many of a body's pieces at most).
    Answers how many items there were to take."""

    items: tuple[tuple[int, int], ...]


def take_apart(asked: TakeApart, tx: Tx) -> int:
    ids = dict(asked.items)
    tx.want([(FREED, (freed,)) for freed in ids])
    there = [row for freed in ids if (row := tx.get(FREED, (freed,))) is not None and row.shape != Shape.NONE]
    _want_contents(tx, there, ids)
    if there:
        tx.emit(TakenApart(tuple((row.id, max(1, ids[row.id])) for row in there)))
    return len(there)


def _want_contents(tx: Tx, freed: list[Freed], most: dict[int, int]) -> None:
    """Load what applying will touch, a level at a time, instead of a row at a time."""
    tx.want([(BODY if row.shape == Shape.BODY else RUN, (row.content,)) for row in freed])
    runs: list[int] = []
    for row in freed:
        if row.shape == Shape.RUN:
            runs.append(row.content)
        elif (body := tx.get(BODY, (row.content,))) is not None and body.refs == 1:
            upto = row.cursor + max(1, most[row.id])
            runs.extend(piece.run for piece in pieces(body.pieces)[row.cursor : upto])
    tx.want([(RUN, (run,)) for run in runs])
    wanted: list[Wanted] = []
    for each in dict.fromkeys(runs):
        run = tx.get(RUN, (each,))
        if run is not None and run.refs <= runs.count(each):
            for extent in extents(run.extents):
                wanted += [(BLOCK, (extent.block,)), (MEMBER, (extent.block, each))]
    tx.want(wanted)


@command(61, weight=lambda asked: sum(len(move.before) for move in asked.moves))
class MoveExtents:
    """The compactor's: extents lie elsewhere from now on, of each run that is still as it was read. *blocks* are the
    facts of all blocks that they moved to. Answers for each move whether it was made.

    Raises `SessionOver` for blocks of another session: they may be swept at any moment."""

    moves: tuple[Move, ...]
    blocks: tuple[NewBlock, ...]


def move_extents(asked: MoveExtents, tx: Tx) -> tuple[bool, ...]:
    facts = {block.id: block for block in asked.blocks}
    tx.want([(RUN, (move.run,)) for move in asked.moves])
    standing = [_stands(tx, move) for move in asked.moves]
    wanted: list[Wanted] = []
    for move, stands in zip(asked.moves, standing, strict=True):
        if stands:
            for extent in (*move.before, *move.after):
                wanted += [(BLOCK, (extent.block,)), (MEMBER, (extent.block, move.run))]
    tx.want(wanted)
    for move, stands in zip(asked.moves, standing, strict=True):
        if stands:
            blocks = dict.fromkeys(extent.block for extent in move.after)
            tx.emit(ExtentsMoved(move.run, move.nths, move.after, tuple(facts[block] for block in blocks)))
    return tuple(standing)


def _stands(tx: Tx, move: Move) -> bool:
    """Whether the run is as it was read."""
    lengths = [extent.length for extent in move.after]
    if not len(move.nths) == len(move.before) == len(move.after) or lengths != [each.length for each in move.before]:
        raise InvalidArgument("a move names as many extents as it replaces, of the same lengths")
    run = tx.get(RUN, (move.run,))
    if run is None:
        return False
    placed = extents(run.extents)
    return all(nth < len(placed) and placed[nth] == before for nth, before in zip(move.nths, move.before, strict=True))


@command(62, frees=True, weight=lambda asked: len(asked.dead))
class ForgetBlocks:
    """The sweeper's: the bytes of these dead blocks are gone from every backend. Answers how many were forgotten."""

    dead: tuple[Dead, ...]


def forget_blocks(asked: ForgetBlocks, tx: Tx) -> int:
    tx.want([(BLOCK, (dead.id,)) for dead in asked.dead])
    there = []
    for dead in asked.dead:
        block = tx.get(BLOCK, (dead.id,))
        if block is not None and block.died == dead.died and block.died:
            there.append(dead.id)
    if there:
        tx.emit(BlocksForgotten(tuple(there)))
    return len(there)


@command(63, frees=True)
class SweepSession:
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
class ForgetSession:
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
class SetBlockBackends:
    """A block is held by the backends of another set now, if it is still held by those of *before*. Answers whether
    it was changed."""

    block: bytes
    before: int
    set_members: bytes
    """packed, the key of the set's row: a command finds rows by key."""


def set_block_backends(asked: SetBlockBackends, tx: Tx) -> bool:
    tx.want([(BLOCK, (asked.block,)), (BACKEND_SET, (asked.set_members,))])
    block = tx.get(BLOCK, (asked.block,))
    found = tx.get(BACKEND_SET, (asked.set_members,))
    if found is None:
        raise InvalidArgument("nobody named that set of backends")
    if block is None or block.backends != asked.before:
        return False
    tx.emit(BlockBackendsSet(asked.block, found.id))
    return True


@command(66, weight=lambda asked: 2 * len(asked.found))
class NoteStrays:
    """Copies that no row names, each (block, backend), of blocks that live: they are to be adopted or deleted by who
    works on copies. Answers how many that were."""

    found: tuple[tuple[bytes, int], ...]


def note_strays(asked: NoteStrays, tx: Tx) -> int:
    wanted: list[Wanted] = [(SITE, (0,))]
    for block_id, _ in asked.found:
        wanted += [(BLOCK, (block_id,)), (WORK, (block_id,))]
    tx.want(wanted)
    noted = 0
    for block_id, backend in asked.found:
        block = tx.get(BLOCK, (block_id,))
        if block is not None and not block.died:
            raise_feature(tx)
            tx.emit(WorkNoted((block_id,), tx.at_ns, tx.at_ns))
            tx.emit(WorkBegun(block_id, (backend,)))
            noted += 1
    return noted


def raise_feature(tx: Tx) -> None:
    """Let the journal hold records about the work on copies."""
    tx.need_feature(COPIES_FEATURE)


COMMANDS: CommandTable = {
    TakeApart: take_apart,
    MoveExtents: move_extents,
    ForgetBlocks: forget_blocks,
    SweepSession: sweep_session,
    ForgetSession: forget_session,
    SetBlockBackends: set_block_backends,
    NoteStrays: note_strays,
}
"""What the committer runs for this room."""
