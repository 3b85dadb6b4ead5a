"""Commands about copies that may be or are lost: a suspected copy, copies that proved good, and a lost backend."""

from __future__ import annotations

from gateway.blocks.commands.block_copies import require_copies_feature
from gateway.errors import InvalidArgument
from gateway.journal.apply.work import unpack_ids
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.work import BackendLost, CopiesCleared, CopySuspected
from gateway.journal.tables import BACKEND, BLOCK, REWRITE, SITE, WORK


@command(85)
class SuspectCopy(Command[bool]):
    """Sent by any reader: the copy of *block* on *backend* is absent or damaged, as *word* says. Returns whether that
    was not known yet."""

    block: bytes
    backend: int
    word: str


def suspect_copy(request: SuspectCopy, tx: Tx) -> bool:
    tx.prefetch([(SITE, (0,)), (BLOCK, (request.block,)), (WORK, (request.block,))])
    tx.prefetch([(REWRITE, (request.block,))])
    block, work = tx.get(BLOCK, (request.block,)), tx.get(WORK, (request.block,))
    if block is None or block.died or (work is not None and request.backend in unpack_ids(work.suspects)):
        return False
    require_copies_feature(tx)
    tx.emit(CopySuspected(request.block, request.backend, request.word, tx.at_ns))
    return True


@command(86)
class ClearCopies(Command[bool]):
    """Sent by the mover: the copies of *block* on *backends* are good. Returns whether the block still has a row."""

    block: bytes
    backends: tuple[int, ...]


def clear_copies(request: ClearCopies, tx: Tx) -> bool:
    tx.prefetch([(SITE, (0,)), (BLOCK, (request.block,)), (WORK, (request.block,))])
    if tx.get(WORK, (request.block,)) is None:
        return False
    require_copies_feature(tx)
    tx.emit(CopiesCleared(request.block, request.backends))
    return True


@command(87)
class LoseBackend(Command[int]):
    """Mark the backend *name* as lost: its copies are gone for good. Returns its id."""

    name: str


def lose_backend(request: LoseBackend, tx: Tx) -> int:
    tx.prefetch([(SITE, (0,)), (BACKEND, (request.name,))])
    row = tx.get(BACKEND, (request.name,))
    if row is None:
        raise InvalidArgument(f"there is no backend {request.name!r}")
    if not row.lost:
        require_copies_feature(tx)
        tx.emit(BackendLost(request.name))
    return row.id
