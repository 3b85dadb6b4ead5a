"""The commands of the sweeper: deleted blocks and swept sessions are forgotten."""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import InvalidArgument
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.bytes import (
    BlocksForgotten,
)
from gateway.journal.records.site import SessionForgotten, SessionSwept
from gateway.journal.tables import (
    BLOCK,
    SESSION,
    SessionState,
)


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
