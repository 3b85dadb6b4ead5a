"""The slots under which a process's commands are on their way: so many at once; users take turns for the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from gateway.journal.turns import Turns

SLOTS = 256
"""Commands of one process that may be on their way."""
WAITERS_MAX = 8192
"""And those that wait for a slot; of one user half as many."""
TOO_MANY = "commands of this process"


class Slots:
    """For one event loop."""

    def __init__(self) -> None:
        self._turns = Turns(deque(range(SLOTS)), WAITERS_MAX, TOO_MANY)
        self._numbers = [0] * SLOTS

    @property
    def free(self) -> int:
        """How many nobody has."""
        return self._turns.free

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return self._turns.waiting

    async def acquire(self, user: Hashable, wait_seconds: float) -> tuple[int, int]:
        """A slot that is free, and a number that it never had before. Raises as `Turns.take`."""
        slot = await self._turns.acquire(user, wait_seconds)
        number = self._numbers[slot] = self._numbers[slot] + 1
        return slot, number

    def release(self, slot: int) -> None:
        """As `Turns.release`."""
        self._turns.release(slot)
