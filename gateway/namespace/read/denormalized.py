"""What listings show of a node: its name remembers it, and only one that was written in place is looked at itself."""

from __future__ import annotations

from typing import NamedTuple

from gateway.journal.columns import CHECKSUM_KIND_BYTES
from gateway.namespace.read.lookups import Reads
from gateway.namespace.read.walk_state import Row


class NodeColumns(NamedTuple):
    """How a statement gets at what a name (`e`) shows of its node: from the name itself, which remembers it; and where
    some nodes were written in place, which the names do not know, from those nodes, found by an index of just them."""

    size: str
    etag: str
    modified_ns: str
    owner: str
    checksum: str
    join: str
    """Stands behind the table."""


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
    """Whether any node was written in place. Looked at once a page: what is written behind that is written at the
    same time as the page is read."""
    return bool(reads.query("SELECT 1 FROM file f INDEXED BY file_rewritten WHERE f.rewritten = 1 LIMIT 1"))


def group_by_parent(rows: list[Row]) -> dict[int, list[Row]]:
    """Rows whose last column is the directory that they stand in."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row[-1], []).append(row)
    return found
