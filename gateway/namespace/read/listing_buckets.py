"""Listing of buckets by name."""

from __future__ import annotations

from gateway.journal.tables import Bucket
from gateway.namespace.keys import successor
from gateway.namespace.read.lookups import Reads, columns


def list_buckets(
    reads: Reads, owner: int | None = None, prefix: str = "", after: str = "", limit: int = 10_000
) -> tuple[list[Bucket], str | None]:
    """Return buckets sorted by name, only those of *owner* unless it is None, and the name after which to continue."""
    high = successor(prefix.encode())
    bound = "" if high is None else "AND b.name < ?4"
    mine = "" if owner is None else "AND b.owner = ?3"
    rows = reads.query(
        f"SELECT {columns('b', Bucket)} FROM bucket b WHERE b.name >= ?1 AND b.name > ?2 {mine} {bound} "
        "ORDER BY b.name LIMIT ?5",
        (prefix, after, owner, high.decode() if high is not None else None, limit + 1),
    )
    found = [Bucket._make(row) for row in rows[:limit]]
    return found, found[-1].name if len(rows) > limit and found else None
