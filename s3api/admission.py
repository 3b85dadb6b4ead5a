"""How many connections a worker keeps, and how many bytes of unfinished heads: what strangers could pile up. Pure.

A body is bounded by the budget that it is charged to, and comes behind a signature; these come before anybody is known.
"""

from __future__ import annotations


class Admission:
    """The counts of one worker."""

    __slots__ = ("_connections_limit", "_heads_limit_bytes", "connections", "heads_bytes")

    def __init__(self, connections_limit: int, heads_limit_bytes: int) -> None:
        self._connections_limit = connections_limit
        self._heads_limit_bytes = heads_limit_bytes
        self.connections = 0
        """Open now."""
        self.heads_bytes = 0
        """Of heads that have not ended yet."""

    def enter(self) -> bool:
        """One connection more. Whether it may stay; it leaves in any case."""
        self.connections += 1
        return self.connections <= self._connections_limit

    def leave(self, head_bytes: int) -> None:
        """A connection is gone, which held *head_bytes*."""
        self.connections -= 1
        self.heads_bytes -= head_bytes

    def hold(self, count: int) -> bool:
        """*count* bytes more of an unfinished head. Whether there is room for them; they are held in any case."""
        self.heads_bytes += count
        return self.heads_bytes <= self._heads_limit_bytes

    def release(self, count: int) -> None:
        """A head of *count* bytes has ended."""
        self.heads_bytes -= count
