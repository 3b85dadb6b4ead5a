"""The slots under which a process's commands are on their way: so many at once, and the others as they came."""

from __future__ import annotations

import asyncio
from collections import deque

from gateway.errors import Busy

SLOTS = 256
"""Commands of one process that may be on their way."""
WAITERS_MAX = 4096
"""And those that wait for a slot."""
TOO_MANY = "commands of this process"


class Slots:
    """For one event loop."""

    def __init__(self) -> None:
        self._free: deque[int] = deque(range(SLOTS))
        self._turns: deque[asyncio.Future[int]] = deque()
        self._numbers = [0] * SLOTS

    @property
    def free(self) -> int:
        """How many nobody has."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return len(self._turns)

    async def take(self, wait_seconds: float) -> tuple[int, int]:
        """A slot that is free, and a number that it never had before. Raises `Busy` where too many wait already, or
        none becomes free within *wait_seconds*."""
        slot = self._free.popleft() if self._free else await self._turn(wait_seconds)
        number = self._numbers[slot] = self._numbers[slot] + 1
        return slot, number

    def release(self, slot: int) -> None:
        """Hand *slot* to who has waited longest: laid down, somebody who never waited might take it first."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(slot)
                return
        self._free.append(slot)

    async def _turn(self, wait_seconds: float) -> int:
        if len(self._turns) >= WAITERS_MAX:
            raise Busy(TOO_MANY)
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(wait_seconds):
                return await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.release(turn.result())
            elif turn in self._turns:
                self._turns.remove(turn)
            if isinstance(error, TimeoutError):
                raise Busy(TOO_MANY) from None
            raise
