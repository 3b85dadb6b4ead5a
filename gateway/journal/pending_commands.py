"""The commands of a client that wait for their answers.

A command occupies a slot from `add` until it is answered or given up, even if its caller is cancelled: it may be on its
way to the committer. All methods are called on the event loop of the client.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gateway.errors import Busy, CommitterGone, DiskFull, EntrepotError, SessionExpired
from gateway.journal.slots import TOO_MANY, Slots
from gateway.journal.wire import PackedCommand, decode_error

BYTES_MAX = 64 << 20
"""The most bytes of all commands that wait."""


class PendingCommand:
    """A command that waits for its answer."""

    __slots__ = ("answer", "number", "packed", "session", "since", "times_sent")

    def __init__(self, number: int, packed: PackedCommand, answer: asyncio.Future[Any], since: float) -> None:
        self.number = number
        self.packed = packed
        self.answer = answer
        self.session = 0
        """The session under which the command was first sent; 0: it has not been sent yet."""
        self.since = since
        """When `Journal.send` was called, in seconds, by the monotonic clock."""
        self.times_sent = 0


class PendingCommands:
    """The waiting commands of one client by their slots."""

    def __init__(self) -> None:
        self.slots = Slots()
        self.by_slot: dict[int, PendingCommand] = {}
        self._bytes = 0
        self._references: Counter[bytes] = Counter()
        """The blocks whose inline values waiting commands refer to. A value counts once towards the bytes."""

    def add(self, slot: int, number: int, packed: PackedCommand, since: float) -> PendingCommand:
        """Add a command under a slot and number that the caller has acquired. Raises `Busy` if too many bytes wait."""
        values = packed.attachment
        new = {value.block: len(value.value) for value in values if value.block not in self._references}
        size = len(packed.packed) + sum(new.values())
        if self._bytes + size > BYTES_MAX:
            raise Busy(TOO_MANY)
        pending = PendingCommand(number, packed, asyncio.get_running_loop().create_future(), since)
        self.by_slot[slot] = pending
        self._bytes += size
        for value in values:
            self._references[value.block] += 1
        return pending

    def _release(self, slot: int) -> PendingCommand:
        """Remove the command of *slot*, and release the slot."""
        pending = self.by_slot.pop(slot)
        self._bytes -= len(pending.packed.packed)
        for value in pending.packed.attachment:
            others = self._references[value.block] - 1
            if others:
                self._references[value.block] = others
            else:
                del self._references[value.block]
                self._bytes -= len(value.value)
        self.slots.release(slot)
        return pending

    def receive(self, answers: Sequence[tuple[int, int, str, Any]]) -> None:
        """Pass answers to the callers, each as (slot, number, wire code of an error or "", value or arguments)."""
        for slot, number, code, payload in answers:
            pending = self.by_slot.get(slot)
            if pending is None or pending.number != number:
                continue
            self._release(slot)
            if not pending.answer.done():
                if code:
                    pending.answer.set_exception(_error_for_caller(pending, decode_error(code, payload)))
                else:
                    pending.answer.set_result(payload)

    def fail_older(self, since: float, message: str) -> None:
        """Raise `CommitterGone` in the callers of commands from before *since*. The commands keep their slots, since
        they may still be answered."""
        for pending in self.by_slot.values():
            if pending.since < since and not pending.answer.done():
                pending.answer.set_exception(CommitterGone(message))

    def drop_abandoned(self, since: float) -> None:
        """Drop the commands that are not to be sent again: their callers got `CommitterGone`, or were cancelled and had
        sent them before *since*."""
        for slot, pending in list(self.by_slot.items()):
            if pending.answer.done() and (pending.since < since or not pending.answer.cancelled()):
                self._release(slot)

    def fail_session(self, session: int) -> None:
        """Raise `SessionExpired` in the callers of all commands that were sent under *session*."""
        for slot, pending in list(self.by_slot.items()):
            if pending.session == session:
                self._release(slot)
                if not pending.answer.done():
                    pending.answer.set_exception(SessionExpired(session))

    def fail_all(self, message: str) -> None:
        """Raise `CommitterGone` in all callers."""
        for slot, pending in list(self.by_slot.items()):
            self._release(slot)
            if not pending.answer.done():
                pending.answer.set_exception(CommitterGone(message))


def _error_for_caller(pending: PendingCommand, error: EntrepotError) -> EntrepotError:
    """Return the error that the caller of a refused command gets. `Busy` and `DiskFull` mean that the committer did not
    run the command when it was last sent. If it had been sent before, it may have been committed then, or may still be
    committed, so the caller must not regard it as refused."""
    if pending.times_sent > 1 and isinstance(error, Busy | DiskFull):
        return CommitterGone(f"no answer when the command was first sent, and then: {error}")
    return error
