"""Listings of objects, a page at a time.

A page reads one snapshot, in turns that are short enough not to block the event loop. Its cost is proportional to what
it lists. It ends early if it would take more than its share of work or of memory (see `tree_walk.py`).
"""

from __future__ import annotations

import re

from gateway.journal.tables import Bucket
from gateway.namespace.read.denormalized import FROM_ENTRY, FROM_NODE, NodeColumns, group_by_parent, some_are_stale
from gateway.namespace.read.listing_turns import in_turns
from gateway.namespace.read.lookups import Reads
from gateway.namespace.read.pages import ListedRow, Page
from gateway.namespace.read.tree_walk import PAGE_BYTES, SLICE, Walk
from gateway.namespace.read.walk_state import Row

_NAMES = re.compile(b"[^/]*/")
"""Concatenated names of directories."""
_FILE_COLUMNS = 6
"""Columns of a row: the name and the values that it copies from its node."""


class _Live:
    """The live entries. A row has: name, size, etag, modified, owner, kind of checksum; and, if the directory may have
    subdirectories, node, parent."""

    count = "live"
    dead = "e.dead = 0"

    def __init__(self, shown: NodeColumns) -> None:
        behind_size = f"{shown.etag}, {shown.modified_ns}, {shown.owner}, {shown.checksum}"
        mixed = (
            f"SELECT e.name, CASE WHEN e.version THEN {shown.size} END, {behind_size}, e.node, e.parent FROM entry e"
        )
        within = "WHERE e.parent = ? AND e.dead = 0 AND e.name >= ?"
        self._open, self._bounded = _both(f"{mixed} {shown.join} {within}")
        self._files_open, self._files_bounded = _both(
            f"SELECT e.name, {shown.size}, {behind_size} FROM entry e {shown.join} {within}"
        )
        # One value instead of a thousand rows: each name ends with its only slash.
        self._names_open, self._names_bounded = (
            f"SELECT CAST(group_concat(name, '') AS BLOB), max(version) FROM ({names})"
            for names in _both(f"SELECT e.name, e.version FROM entry e {within}")
        )
        self._children = (
            f"{mixed} {shown.join} WHERE e.parent IN (SELECT value FROM json_each(?)) AND e.dead = 0 "
            "ORDER BY e.parent, e.name"
        )

    def entries(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[Row]:
        if high is None:
            return reads.query(self._open, (parent, low, most))
        return reads.query(self._bounded, (parent, low, high, most))

    def directories(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[bytes] | None:
        if high is None:
            found = reads.query(self._names_open, (parent, low, most))
        else:
            found = reads.query(self._names_bounded, (parent, low, high, most))
        names, version = found[0]
        return None if version else _NAMES.findall(names or b"")

    def only_files(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[Row]:
        if high is None:
            return reads.query(self._files_open, (parent, low, most))
        return reads.query(self._files_bounded, (parent, low, high, most))

    def children(self, reads: Reads, parents: str) -> dict[int, list[Row]]:
        return group_by_parent(reads.query(self._children, (parents,)))


def _both(select: str) -> tuple[str, str]:
    """Return the statement without and with an upper bound."""
    return f"{select} ORDER BY e.name LIMIT ?", f"{select} AND e.name < ? ORDER BY e.name LIMIT ?"


_LIVE, _LIVE_STALE = _Live(FROM_ENTRY), _Live(FROM_NODE)


async def list_objects(
    reads: Reads, bucket: Bucket, prefix: bytes = b"", delimiter: bytes = b"", after: bytes = b"", limit: int = 1000
) -> Page:
    """List keys after *after* that begin with *prefix*; keys with *delimiter* after it become common prefixes.

    *limit* counts keys and common prefixes. A common prefix is listed only if it is itself greater than *after*."""
    if limit <= 0:
        return Page([], [], None)
    return (await in_turns(reads, lambda store: _ObjectPage(store, bucket, prefix, delimiter, after, limit))).page()


class _ObjectPage:
    """The page that is being read."""

    def __init__(self, reads: Reads, bucket: Bucket, prefix: bytes, delimiter: bytes, after: bytes, limit: int) -> None:
        self.count = 0
        self._limit = limit
        self._bytes = 0
        """Bytes of the paths of all its keys, and of its prefixes."""
        self._groups: list[tuple[bytes, list[ListedRow]]] = []
        self._prefixes: list[bytes] = []
        self._complete = False
        self._walk = Walk(reads, _LIVE_STALE if some_are_stale(reads) else _LIVE, bucket.root, prefix, delimiter)
        first = self._walk.first(after)
        self._more = first is not None
        if first is not None:
            self._walk.begin(first)

    def turn(self) -> bool:
        wanted = self._limit + 1 - self.count
        self._more = self._more and self._walk.turn(min(wanted, SLICE), self._emit_rows, self._emit_prefixes)
        self._complete = not self._more or self.count > self._limit
        return self._complete or self._is_full

    @property
    def _is_full(self) -> bool:
        return self._bytes >= PAGE_BYTES

    def _emit_rows(self, path: bytes, rows: list[Row], room: int) -> tuple[int, int]:
        used = rows if len(rows) <= room else rows[:room]
        self._groups.append((path, used if len(used[0]) == _FILE_COLUMNS else [row[:_FILE_COLUMNS] for row in used]))
        self.count += len(used)
        self._bytes += len(path) * len(used)
        return len(used), room if self._is_full else len(used)

    def _emit_prefixes(self, prefixes: list[bytes]) -> None:
        self._prefixes.extend(prefixes)
        self.count += len(prefixes)
        self._bytes += sum(map(len, prefixes))

    def page(self) -> Page:
        if self.count > self._limit:
            self._cut()
        elif self._complete:
            return Page(self._groups, self._prefixes, None)
        return Page(self._groups, self._prefixes, max(self._last_key(), self._prefixes[-1] if self._prefixes else b""))

    def _cut(self) -> None:
        """Remove the one item beyond the limit, which only showed that there are more."""
        groups, prefixes = self._groups, self._prefixes
        if not prefixes or self._last_key() > prefixes[-1]:
            path, rows = groups.pop()
            if len(rows) > 1:
                groups.append((path, rows[:-1]))
        else:
            prefixes.pop()
        self.count -= 1

    def _last_key(self) -> bytes:
        if not self._groups:
            return b""
        path, rows = self._groups[-1]
        return path + rows[-1][0]
