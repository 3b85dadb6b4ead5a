"""The commands for copies of blocks: which backends hold a block, and which copies the journal does not name."""

from __future__ import annotations

from gateway.errors import InvalidArgument
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.work import BlockBackendsSet, WorkBegun, WorkNoted
from gateway.journal.rows import RowKey
from gateway.journal.tables import (
    BACKEND_SET,
    BLOCK,
    SITE,
    WORK,
)

COPIES_FEATURE = 2
"""The journal's feature level that records about the work on copies need."""


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
            tx.emit(WorkBegun(block_id, (backend,)))  # which adds a stray: there may be bytes of the block
            noted += 1
    return noted


def require_copies_feature(tx: Tx) -> None:
    """Raise the journal's feature level to the one that records about the work on copies need."""
    tx.need_feature(COPIES_FEATURE)
