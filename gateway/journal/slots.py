"""The slots under which the commands of a process are sent. Users take turns with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from gateway.journal.turns import Turns

SLOTS = 256
"""The most commands of one process that are sent and not answered."""
WAITERS_MAX = 8192
"""The most commands of one process that wait for a slot; one user may have half as many."""
TOO_MANY = "commands of this process"


class Slots:
    """The slots of one session. For one event loop."""

    def __init__(self) -> None:
        self._turns = Turns(deque(range(SLOTS)), WAITERS_MAX, TOO_MANY)
        self._numbers = [0] * SLOTS

    @property
    def free(self) -> int:
        """How many slots are free."""
        return self._turns.free

    @property
    def waiting(self) -> int:
        """How many commands wait for a slot."""
        return self._turns.waiting

    async def acquire(self, user: Hashable, wait_seconds: float) -> tuple[int, int]:
        """Return a free slot, and a number that the slot has never had before. Raises as `Turns.acquire`."""
        slot = await self._turns.acquire(user, wait_seconds)
        number = self._numbers[slot] = self._numbers[slot] + 1
        return slot, number

    def release(self, slot: int) -> None:
        """Release *slot*, as `Turns.release`."""
        self._turns.release(slot)
