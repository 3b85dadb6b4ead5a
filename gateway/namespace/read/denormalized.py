"""Columns of a node that its names copy for listings. Nodes that were written in place are looked up themselves."""

from __future__ import annotations

from typing import NamedTuple

from gateway.journal.columns import CHECKSUM_KIND_BYTES
from gateway.namespace.read.lookups import Reads
from gateway.namespace.read.walk_state import Row


class NodeColumns(NamedTuple):
    """SQL expressions for the columns that a name (`e`) shows of its node: from the name, which has a copy; if some
    nodes were written in place, which does not update the copies, from those nodes, by an index of only these."""

    size: str
    etag: str
    modified_ns: str
    owner: str
    checksum: str
    join: str
    """SQL that follows the table's name."""


FROM_ENTRY = NodeColumns("e.size", "e.etag", "e.modified_ns", "e.owner", "e.checksum", "")
FROM_NODE = NodeColumns(
    "coalesce(f.size, e.size)",
    "coalesce(f.etag, e.etag)",
    "max(e.modified_ns, coalesce(f.written_ns, 0))",
    "e.owner",  # a node's never changes
    f"CASE WHEN f.id THEN substr(f.checksums, 1, {CHECKSUM_KIND_BYTES}) ELSE e.checksum END",
    "LEFT JOIN file f INDEXED BY file_rewritten ON f.id = e.node AND f.rewritten = 1",
)


def some_are_stale(reads: Reads) -> bool:
    """Return whether any node was written in place. Checked once for a page: later writes are concurrent with it."""
    return bool(reads.query("SELECT 1 FROM file f INDEXED BY file_rewritten WHERE f.rewritten = 1 LIMIT 1"))


def group_by_parent(rows: list[Row]) -> dict[int, list[Row]]:
    """Group rows by their last column, which is the parent directory."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row[-1], []).append(row)
    return found
