"""Commands of the work on copies: planning it, beginning, settling, putting off. Rows in memory only.

Each is conditional on what was read, and takes many blocks: one that changed, died or was done meanwhile is passed
over, and its answer is False. So two who work at once, or one who starts again, do no harm.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.blocks.commands import require_copies_feature
from gateway.errors import InvalidArgument
from gateway.journal.apply.work import ids_in
from gateway.journal.columns import pack
from gateway.journal.commands import Command, CommandTable, Tx, command
from gateway.journal.records.site import BackendSetNamed
from gateway.journal.records.work import (
    BackendLost,
    BlockBackendsSet,
    CopiesCleared,
    CopiesPlaced,
    CopySuspected,
    PlanAdvanced,
    WorkBegun,
    WorkDone,
    WorkFailed,
    WorkNoted,
)
from gateway.journal.tables import BACKEND, BACKEND_SET, BLOCK, PLAN, REWRITE, SITE, WORK, Block, Work

PLACED_FEATURE = 4
"""The feature level of records that say since when copies have been where they should be."""


class Begin(NamedTuple):
    """Copies of a block are going to be made."""

    block: bytes
    before: int
    """The set that holds it, as it was read."""
    on: tuple[int, ...]
    """The backends where bytes of it may lie from now on."""


class Settle(NamedTuple):
    """A block is held by other backends."""

    block: bytes
    before: int
    """The set that holds it, as it was read, and"""
    was: tuple[int, ...]
    """its members."""
    members: tuple[int, ...]
    """Those that hold it now."""
    done: bool
    """That is as it should be."""
    placed_ns: int = 0
    """Since when every backend that should hold it has confirmed it; 0: not every one has."""
    due_ns: int = 0
    """When the block is looked at again; only with *placed_ns*."""


class Hold(NamedTuple):
    """The copies of a block outside the backends that should hold it are kept for a while."""

    block: bytes
    before: int
    """The set that holds it, as it was read."""
    placed_ns: int
    """Since when every backend that should hold it has confirmed it."""
    due_ns: int
    """When the block is looked at again."""


class Drop(NamedTuple):
    """Some of those that hold a block are let go of: the others were asked again, long enough after they confirmed."""

    block: bytes
    before: int
    """The set that holds it, as it was read, and"""
    was: tuple[int, ...]
    """its members."""
    members: tuple[int, ...]
    """Those that hold it from now on."""
    placed_ns: int
    """Since when they have, as it was read."""


class Finish(NamedTuple):
    """A block is as it should be, and what its row called strays is gone."""

    block: bytes
    before: int
    strays: tuple[int, ...]


class Fail(NamedTuple):
    """A block could not be brought where it should be."""

    block: bytes
    due_ns: int
    """When it is tried again."""
    state: int
    attempts: int
    word: str


@command(80, weight=lambda asked: len(asked.blocks))
class AdvancePlan(Command[bool]):
    """The planner's: the blocks behind *before* and up to *after* were looked at, and *blocks* of them are not where
    they should be. *walks* and *again_ns* as in `Plan`. Answers False where the plan is not as it was read."""

    fingerprint: bytes
    before: bytes
    after: bytes
    walks: int
    again_ns: int
    blocks: tuple[bytes, ...] = ()
    due_ns: int = 0


def advance_plan(asked: AdvancePlan, tx: Tx) -> bool:
    tx.prefetch([(PLAN, (0,)), (SITE, (0,)), *((BLOCK, (block,)) for block in asked.blocks)])
    tx.prefetch([(WORK, (block,)) for block in asked.blocks])
    plan = tx.get(PLAN, (0,))
    if asked.before and (plan is None or plan.fingerprint != asked.fingerprint or plan.after != asked.before):
        return False
    require_copies_feature(tx)
    alive = tuple(each for each in asked.blocks if (block := tx.get(BLOCK, (each,))) is not None and not block.died)
    if alive:
        tx.emit(WorkNoted(alive, asked.due_ns, tx.at_ns))
    tx.emit(PlanAdvanced(asked.fingerprint, asked.after, asked.walks, asked.again_ns))
    return True


@command(81, weight=lambda asked: 3 * len(asked.items))
class BeginWork(Command[tuple[bool, ...]]):
    """The mover's, before it puts anything anywhere. Answers for each whether it may."""

    items: tuple[Begin, ...]


def begin_work(asked: BeginWork, tx: Tx) -> tuple[bool, ...]:
    _want(tx, [item.block for item in asked.items])
    return tuple(_begin(tx, item) for item in asked.items)


def _begin(tx: Tx, item: Begin) -> bool:
    _, work = _as_read(tx, item.block, item.before)
    if work is None:
        return False
    if not set(item.on) <= set(ids_in(work.strays)):
        require_copies_feature(tx)
        tx.emit(WorkBegun(item.block, item.on))
    return True


@command(82, weight=lambda asked: 3 * len(asked.items))
class SettleWork(Command[tuple[bool, ...]]):
    """The mover's: the copies are there. Answers for each whether its block was still as it was read."""

    items: tuple[Settle, ...]


def settle_work(asked: SettleWork, tx: Tx) -> tuple[bool, ...]:
    sets = [(BACKEND_SET, (pack(sorted(item.members)),)) for item in asked.items]
    _want(tx, [item.block for item in asked.items])
    tx.prefetch(sets)
    return tuple(_settle(tx, item) for item in asked.items)


def _settle(tx: Tx, item: Settle) -> bool:
    if not item.members:
        raise InvalidArgument("a block is held by one backend at least")
    _, work = _as_read(tx, item.block, item.before)
    if work is None:
        return False
    require_copies_feature(tx)
    strays = sorted({*ids_in(work.strays), *item.was} - {*item.members})
    tx.emit(BlockBackendsSet(item.block, _set_of(tx, item.members), tuple(strays)))
    if item.done and not strays and not work.suspects:
        tx.emit(WorkDone((item.block,)))
    elif item.placed_ns and not work.suspects:
        _place(tx, item.block, item.placed_ns, item.due_ns)
    return True


def _place(tx: Tx, block: bytes, placed_ns: int, due_ns: int) -> None:
    tx.need_feature(PLACED_FEATURE)
    tx.emit(CopiesPlaced(block, placed_ns, due_ns))


def _set_of(tx: Tx, members: tuple[int, ...]) -> int:
    """The id of the set, named if nobody has yet."""
    ordered = tuple(sorted(members))
    found = tx.get(BACKEND_SET, (pack(list(ordered)),))
    if found is not None:
        return found.id
    made = BackendSetNamed(ordered, tx.new_id())
    tx.emit(made)
    return made.id


@command(83, frees=True, weight=lambda asked: 3 * len(asked.items))
class FinishWork(Command[tuple[bool, ...]]):
    """The mover's: nothing is left to do for these. Answers for each whether that was so."""

    items: tuple[Finish, ...]


def finish_work(asked: FinishWork, tx: Tx) -> tuple[bool, ...]:
    _want(tx, [item.block for item in asked.items])
    done = tuple(_is_done(tx, item) for item in asked.items)
    ids = tuple(item.block for item, so in zip(asked.items, done, strict=True) if so)
    if ids:
        require_copies_feature(tx)
        tx.emit(WorkDone(ids))
    return done


def _is_done(tx: Tx, item: Finish) -> bool:
    _, work = _as_read(tx, item.block, item.before)
    return work is not None and not work.suspects and ids_in(work.strays) == item.strays


@command(84, weight=lambda asked: 3 * len(asked.items))
class FailWork(Command[int]):
    """The mover's: these are tried again later. Answers how many there still are."""

    items: tuple[Fail, ...]


def fail_work(asked: FailWork, tx: Tx) -> int:
    tx.prefetch([(SITE, (0,)), *((WORK, (item.block,)) for item in asked.items)])
    there = [item for item in asked.items if tx.get(WORK, (item.block,)) is not None]
    if there:
        require_copies_feature(tx)
    for item in there:
        tx.emit(WorkFailed(*item))
    return len(there)


@command(85)
class SuspectCopy(Command[bool]):
    """Whoever reads: the copy of *block* on *backend* is absent or damaged, as *word* says. Answers whether that was
    news."""

    block: bytes
    backend: int
    word: str


def suspect_copy(asked: SuspectCopy, tx: Tx) -> bool:
    _want(tx, [asked.block])
    tx.prefetch([(REWRITE, (asked.block,))])
    block, work = tx.get(BLOCK, (asked.block,)), tx.get(WORK, (asked.block,))
    if block is None or block.died or (work is not None and asked.backend in ids_in(work.suspects)):
        return False
    require_copies_feature(tx)
    tx.emit(CopySuspected(asked.block, asked.backend, asked.word, tx.at_ns))
    return True


@command(86)
class ClearCopies(Command[bool]):
    """The mover's: these copies of *block* are good. Answers whether it still has a row."""

    block: bytes
    backends: tuple[int, ...]


def clear_copies(asked: ClearCopies, tx: Tx) -> bool:
    _want(tx, [asked.block])
    if tx.get(WORK, (asked.block,)) is None:
        return False
    require_copies_feature(tx)
    tx.emit(CopiesCleared(asked.block, asked.backends))
    return True


@command(87)
class LoseBackend(Command[int]):
    """Copies on the backend are gone for good. Answers its id."""

    name: str


def lose_backend(asked: LoseBackend, tx: Tx) -> int:
    tx.prefetch([(SITE, (0,)), (BACKEND, (asked.name,))])
    row = tx.get(BACKEND, (asked.name,))
    if row is None:
        raise InvalidArgument(f"there is no backend {asked.name!r}")
    if not row.lost:
        require_copies_feature(tx)
        tx.emit(BackendLost(asked.name))
    return row.id


@command(88)
class HoldCopies(Command[tuple[bool, ...]]):
    """The mover's: every backend that should hold these blocks has confirmed them, and copies elsewhere are kept until
    the block is looked at again. Answers for each whether its block was still as it was read."""

    items: tuple[Hold, ...]


def hold_copies(asked: HoldCopies, tx: Tx) -> tuple[bool, ...]:
    _want(tx, [item.block for item in asked.items])
    return tuple(_hold(tx, item) for item in asked.items)


def _hold(tx: Tx, item: Hold) -> bool:
    _, work = _as_read(tx, item.block, item.before)
    if work is None or work.suspects:
        return False
    _place(tx, item.block, item.placed_ns, item.due_ns)
    return True


@command(89)
class DropCopies(Command[tuple[bool, ...]]):
    """The mover's: these blocks are held by fewer backends from now on. Answers for each whether its block was still
    as it was read, and no copy of it is suspected."""

    items: tuple[Drop, ...]


def drop_copies(asked: DropCopies, tx: Tx) -> tuple[bool, ...]:
    _want(tx, [item.block for item in asked.items])
    tx.prefetch([(BACKEND_SET, (pack(sorted(item.members)),)) for item in asked.items])
    return tuple(_drop(tx, item) for item in asked.items)


def _drop(tx: Tx, item: Drop) -> bool:
    if not item.members or not set(item.members) <= set(item.was):
        raise InvalidArgument("a block is held by one backend at least, and by none that did not hold it before")
    _, work = _as_read(tx, item.block, item.before)
    if work is None or work.suspects or not item.placed_ns or work.placed_ns != item.placed_ns:
        return False
    strays = sorted({*ids_in(work.strays), *item.was} - {*item.members})
    tx.emit(BlockBackendsSet(item.block, _set_of(tx, item.members), tuple(strays)))
    _place(tx, item.block, item.placed_ns, work.due_ns)
    return True


def _want(tx: Tx, blocks: list[bytes]) -> None:
    tx.prefetch([(SITE, (0,)), *((BLOCK, (block,)) for block in blocks), *((WORK, (block,)) for block in blocks)])


def _as_read(tx: Tx, block_id: bytes, before: int) -> tuple[Block, Work] | tuple[None, None]:
    """The block and its row, if it lives and is held by the set that was read."""
    block, work = tx.get(BLOCK, (block_id,)), tx.get(WORK, (block_id,))
    if block is None or block.died or work is None or block.backends != before:
        return None, None
    return block, work


COMMANDS: CommandTable = {
    AdvancePlan: advance_plan,
    BeginWork: begin_work,
    SettleWork: settle_work,
    FinishWork: finish_work,
    FailWork: fail_work,
    SuspectCopy: suspect_copy,
    ClearCopies: clear_copies,
    LoseBackend: lose_backend,
    HoldCopies: hold_copies,
    DropCopies: drop_copies,
}
"""What the committer runs for this room."""
