"""Fair shares of a bounded number of bytes: one user, or address, may hold at most as many bytes as are free. Pure.

The rule is that of dynamic thresholds (Choudhury and Hahne, 1998). With a limit of L bytes, one greedy user holds at
most L/2, two hold L/3 each, and n hold L/(n+1) each. So a user who holds nothing gets what fits into L/(n+1), no share
is reserved for users who are not active, and the total never exceeds L, however many users there are.
"""

from __future__ import annotations

from collections.abc import Hashable

from gateway.errors import Busy


def fits(more: int, mine: int, total: int, limit: int) -> bool:
    """Return whether a user who holds *mine* bytes may hold *more*, if all users together hold *total* of *limit*."""
    return mine + more <= limit - total


class Shares:
    """The bytes that a process holds for its users, or for client addresses. For one event loop."""

    def __init__(self, limit: int, what: str) -> None:
        """*what*: a noun phrase for the message of `Busy`."""
        self._limit = limit
        self._what = what
        self._held: dict[Hashable, int] = {}
        self.total = 0

    def new_share(self, user: Hashable) -> UserShare:
        """Return an empty share of *user*."""
        return UserShare(self, user)

    def add(self, user: Hashable, size: int) -> None:
        """Hold *size* more bytes for *user*. Raises `Busy`, and holds nothing, if that exceeds the user's share."""
        if not self.try_add(user, size):
            raise Busy(f"{self._what} for this user: {self._held.get(user, 0)} bytes")

    def try_add(self, user: Hashable, size: int) -> bool:
        """Hold *size* more bytes for *user*, unless that exceeds the user's share. Returns whether it did."""
        mine = self._held.get(user, 0)
        if not fits(size, mine, self.total, self._limit):
            return False
        self._held[user] = mine + size
        self.total += size
        return True

    def remove(self, user: Hashable, size: int) -> None:
        """Release *size* bytes of *user*."""
        self.total -= size
        left = self._held.get(user, 0) - size
        if left:
            self._held[user] = left
        else:
            self._held.pop(user, None)


class UserShare:
    """The bytes that one request or response holds. It is released once they are not in memory any more."""

    __slots__ = ("_shares", "_size", "_user")

    def __init__(self, shares: Shares, user: Hashable) -> None:
        self._shares = shares
        self._user = user
        self._size = 0

    def add(self, size: int) -> None:
        """Hold *size* more bytes. Raises `Busy`."""
        self._shares.add(self._user, size)
        self._size += size

    def release(self) -> None:
        """Release all bytes. May be called more than once."""
        size, self._size = self._size, 0
        self._shares.remove(self._user, size)
