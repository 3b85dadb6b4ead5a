"""Reading of a directory's entries with their attributes."""

from __future__ import annotations

from typing import NamedTuple

from gateway.journal.tables import Dir, File
from gateway.namespace.read.lookups import Reads, columns
from gateway.namespace.read.tree_walk import SLICE


class DirectoryEntry(NamedTuple):
    """An entry of a directory: a directory (its name ends in a slash) or a file."""

    name: bytes
    directory: Dir | None
    file: File | None


_DIR_COLUMNS = len(Dir._fields)


def read_directory(reads: Reads, directory: int, after: bytes = b"", limit: int = SLICE) -> list[DirectoryEntry]:
    """Return live entries after the name *after* with their attributes, sorted by their names in the tree, without the
    entry of the empty name. Fewer than *limit* entries: there are no more."""
    rows = reads.query(
        f"SELECT e.name, {columns('d', Dir)}, {columns('f', File)} FROM entry e "
        "LEFT JOIN dir d ON d.id = CASE WHEN e.version = 0 THEN e.node END "
        "LEFT JOIN file f ON f.id = CASE WHEN e.version THEN e.node END "
        "WHERE e.parent = ? AND e.dead = 0 AND e.name > ? ORDER BY e.name LIMIT ?",
        (directory, after, limit),
    )
    found = []
    for row in rows:
        is_dir = row[1] is not None
        found.append(
            DirectoryEntry(
                row[0],
                Dir._make(row[1 : 1 + _DIR_COLUMNS]) if is_dir else None,
                None if is_dir else File._make(row[1 + _DIR_COLUMNS :]),
            )
        )
    return found
