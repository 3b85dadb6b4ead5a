"""Commands of the mover: beginning, recording, keeping, dropping, finishing and postponing work on copies."""

from __future__ import annotations

from typing import NamedTuple

from gateway.blocks.commands.block_copies import require_copies_feature
from gateway.errors import InvalidArgument
from gateway.journal.apply.work import unpack_ids
from gateway.journal.columns import pack
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.work import BlockBackendsSet, CopiesPlaced, WorkBegun, WorkDone, WorkFailed
from gateway.journal.tables import BACKEND_SET, BLOCK, SITE, WORK, Block, Work
from gateway.placement.commands import backend_set_id

PLACED_FEATURE = 4
"""The journal's feature level that `CopiesPlaced` needs."""


class Begin(NamedTuple):
    """Announces that copies of a block will be made."""

    block: bytes
    before: int
    """The set of backends that holds the block, as it was read."""
    on: tuple[int, ...]
    """The backends on which bytes of the block may be from now on."""


class SetHolders(NamedTuple):
    """Changes the set of backends that holds a block."""

    block: bytes
    before: int
    """The set of backends that holds the block, as it was read."""
    was: tuple[int, ...]
    """The members of that set."""
    members: tuple[int, ...]
    """The backends that hold the block now."""
    done: bool
    """Whether these are exactly the backends that should hold it."""
    placed_ns: int = 0
    """When the last of the backends that should hold the block confirmed it; 0: not all of them have."""
    due_ns: int = 0
    """When the block is examined again; used only with *placed_ns*."""


class KeepOld(NamedTuple):
    """Keeps the old copies of a block for a while."""

    block: bytes
    before: int
    """The set of backends that holds the block, as it was read."""
    placed_ns: int
    """When the last of the backends that should hold the block confirmed it."""
    due_ns: int
    """When the block is examined again."""


class Drop(NamedTuple):
    """Removes old holders from a block's set. The other holders were checked again, long enough after they
    confirmed."""

    block: bytes
    before: int
    """The set of backends that holds the block, as it was read."""
    was: tuple[int, ...]
    """The members of that set."""
    members: tuple[int, ...]
    """The backends that hold the block from now on."""
    placed_ns: int
    """When the last of *members* confirmed the block, as it was read."""


class Finish(NamedTuple):
    """Deletes the row of work of a block that is as it should be, and whose strays were deleted."""

    block: bytes
    before: int
    strays: tuple[int, ...]


class Fail(NamedTuple):
    """Postpones the row of work of a block."""

    block: bytes
    due_ns: int
    """When it is tried again."""
    state: int
    attempts: int
    word: str


@command(81, weight=lambda request: 3 * len(request.items))
class BeginWork(Command[tuple[bool, ...]]):
    """Sent by the mover before it puts copies. Returns for each item whether it may."""

    items: tuple[Begin, ...]


def begin_work(request: BeginWork, tx: Tx) -> tuple[bool, ...]:
    _prefetch(tx, [item.block for item in request.items])
    return tuple(_begin(tx, item) for item in request.items)


def _begin(tx: Tx, item: Begin) -> bool:
    _, work = _as_read(tx, item.block, item.before)
    if work is None:
        return False
    if not set(item.on) <= set(unpack_ids(work.strays)):
        require_copies_feature(tx)
        tx.emit(WorkBegun(item.block, item.on))
    return True


@command(82, weight=lambda request: 3 * len(request.items))
class SetBlockHolders(Command[tuple[bool, ...]]):
    """Sent by the mover when copies were confirmed. Returns for each item whether its block was still as it was
    read."""

    items: tuple[SetHolders, ...]


def set_block_holders(request: SetBlockHolders, tx: Tx) -> tuple[bool, ...]:
    sets = [(BACKEND_SET, (pack(sorted(item.members)),)) for item in request.items]
    _prefetch(tx, [item.block for item in request.items])
    tx.prefetch(sets)
    return tuple(_set_holders(tx, item) for item in request.items)


def _set_holders(tx: Tx, item: SetHolders) -> bool:
    if not item.members:
        raise InvalidArgument("a block is held by one backend at least")
    _, work = _as_read(tx, item.block, item.before)
    if work is None:
        return False
    require_copies_feature(tx)
    strays = sorted({*unpack_ids(work.strays), *item.was} - {*item.members})
    tx.emit(BlockBackendsSet(item.block, backend_set_id(tx, tuple(sorted(item.members))), tuple(strays)))
    if item.done and not strays and not work.suspects:
        tx.emit(WorkDone((item.block,)))
    elif item.placed_ns and not work.suspects:
        _record_placed(tx, item.block, item.placed_ns, item.due_ns)
    return True


def _record_placed(tx: Tx, block: bytes, placed_ns: int, due_ns: int) -> None:
    tx.need_feature(PLACED_FEATURE)
    tx.emit(CopiesPlaced(block, placed_ns, due_ns))


@command(83, frees=True, weight=lambda request: 3 * len(request.items))
class FinishWork(Command[tuple[bool, ...]]):
    """Sent by the mover for blocks without further work. Returns for each item whether its row was deleted."""

    items: tuple[Finish, ...]


def finish_work(request: FinishWork, tx: Tx) -> tuple[bool, ...]:
    _prefetch(tx, [item.block for item in request.items])
    done = tuple(_is_done(tx, item) for item in request.items)
    ids = tuple(item.block for item, so in zip(request.items, done, strict=True) if so)
    if ids:
        require_copies_feature(tx)
        tx.emit(WorkDone(ids))
    return done


def _is_done(tx: Tx, item: Finish) -> bool:
    _, work = _as_read(tx, item.block, item.before)
    return work is not None and not work.suspects and unpack_ids(work.strays) == item.strays


@command(84, weight=lambda request: 3 * len(request.items))
class FailWork(Command[int]):
    """Sent by the mover to postpone rows. Returns how many of them still existed."""

    items: tuple[Fail, ...]


def fail_work(request: FailWork, tx: Tx) -> int:
    tx.prefetch([(SITE, (0,)), *((WORK, (item.block,)) for item in request.items)])
    there = [item for item in request.items if tx.get(WORK, (item.block,)) is not None]
    if there:
        require_copies_feature(tx)
    for item in there:
        tx.emit(WorkFailed(*item))
    return len(there)


@command(88)
class KeepOldCopies(Command[tuple[bool, ...]]):
    """Sent by the mover: every backend that should hold these blocks has confirmed them, and their old copies are kept
    until the block is examined again. Returns for each item whether its block was still as it was read."""

    items: tuple[KeepOld, ...]


def keep_old_copies(request: KeepOldCopies, tx: Tx) -> tuple[bool, ...]:
    _prefetch(tx, [item.block for item in request.items])
    return tuple(_keep_old(tx, item) for item in request.items)


def _keep_old(tx: Tx, item: KeepOld) -> bool:
    _, work = _as_read(tx, item.block, item.before)
    if work is None or work.suspects:
        return False
    _record_placed(tx, item.block, item.placed_ns, item.due_ns)
    return True


@command(89)
class DropCopies(Command[tuple[bool, ...]]):
    """Sent by the mover: these blocks are held by fewer backends from now on. Returns for each item whether its block
    was still as it was read, without a suspected copy."""

    items: tuple[Drop, ...]


def drop_copies(request: DropCopies, tx: Tx) -> tuple[bool, ...]:
    _prefetch(tx, [item.block for item in request.items])
    tx.prefetch([(BACKEND_SET, (pack(sorted(item.members)),)) for item in request.items])
    return tuple(_drop(tx, item) for item in request.items)


def _drop(tx: Tx, item: Drop) -> bool:
    if not item.members or not set(item.members) <= set(item.was):
        raise InvalidArgument("a block is held by one backend at least, and by none that did not hold it before")
    _, work = _as_read(tx, item.block, item.before)
    if work is None or work.suspects or not item.placed_ns or work.placed_ns != item.placed_ns:
        return False
    strays = sorted({*unpack_ids(work.strays), *item.was} - {*item.members})
    tx.emit(BlockBackendsSet(item.block, backend_set_id(tx, tuple(sorted(item.members))), tuple(strays)))
    _record_placed(tx, item.block, item.placed_ns, work.due_ns)
    return True


def _prefetch(tx: Tx, blocks: list[bytes]) -> None:
    tx.prefetch([(SITE, (0,)), *((BLOCK, (block,)) for block in blocks), *((WORK, (block,)) for block in blocks)])


def _as_read(tx: Tx, block_id: bytes, before: int) -> tuple[Block, Work] | tuple[None, None]:
    """Return a block and its row of work, if the block is alive and still held by the set *before*."""
    block, work = tx.get(BLOCK, (block_id,)), tx.get(WORK, (block_id,))
    if block is None or block.died or work is None or block.backends != before:
        return None, None
    return block, work
