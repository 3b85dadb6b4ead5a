"""How several share what is bounded: one user, or address, may hold at most as many bytes as are still free. Pure.

Rule (dynamic thresholds, Choudhury and Hahne 1998): with a limit of L bytes one greedy user holds at most L/2, two hold
L/3 each, n hold L/(n+1) each. So a user who holds nothing finds room as long as what it asks for fits into L/(n+1), no
share is reserved for users who are not there, and the total never exceeds L, however many users there are.
"""

from __future__ import annotations

from collections.abc import Hashable

from gateway.errors import Busy


def fits(more: int, mine: int, total: int, limit: int) -> bool:
    """Whether a user who holds *mine* bytes may hold *more*, where all users together hold *total* of *limit*."""
    return mine + more <= limit - total


class Shares:
    """Bytes that one process holds for its users, or for the addresses that they come from. For one event loop."""

    def __init__(self, limit: int, what: str) -> None:
        """*what* is held, for the text of `Busy`: a noun phrase."""
        self._limit = limit
        self._what = what
        self._held: dict[Hashable, int] = {}
        self.total = 0

    def hold(self, user: Hashable) -> Held:
        """A share of *user* that holds nothing yet."""
        return Held(self, user)

    def add(self, user: Hashable, size: int) -> None:
        """Hold *size* bytes more for *user*. Raises `Busy` where they exceed its share; then nothing is held."""
        if not self.try_add(user, size):
            raise Busy(f"{self._what} for this user: {self._held.get(user, 0)} bytes")

    def try_add(self, user: Hashable, size: int) -> bool:
        """As `add`; whether there was room."""
        mine = self._held.get(user, 0)
        if not fits(size, mine, self.total, self._limit):
            return False
        self._held[user] = mine + size
        self.total += size
        return True

    def remove(self, user: Hashable, size: int) -> None:
        """Hold *size* bytes less for *user*."""
        self.total -= size
        left = self._held.get(user, 0) - size
        if left:
            self._held[user] = left
        else:
            self._held.pop(user, None)


class Held:
    """What one request or one answer holds; to be released once it is not in memory any more."""

    __slots__ = ("_shares", "_size", "_user")

    def __init__(self, shares: Shares, user: Hashable) -> None:
        self._shares = shares
        self._user = user
        self._size = 0

    def add(self, size: int) -> None:
        """Hold *size* bytes more. Raises `Busy`."""
        self._shares.add(self._user, size)
        self._size += size

    def release(self) -> None:
        """Hold nothing any more. Harmless when repeated."""
        size, self._size = self._size, 0
        self._shares.remove(self._user, size)
