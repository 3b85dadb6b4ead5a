"""Listings, a page at a time: objects, versions, buckets, and what a directory holds.

A page is read in slices, each on a snapshot of its own and short enough not to hold up the loop; between two of them
others run, and nothing is held. A page costs in proportion to what it tells (see `seeking.py`).
"""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

from gateway.journal.packed import CHECKSUM_KIND_BYTES
from gateway.journal.tables import Bucket
from gateway.namespace.keys import behind
from gateway.namespace.pages import ListedVersion, Page, Shown, VersionPage
from gateway.namespace.reading import Reads, find
from gateway.namespace.seeking import SLICE, Row, Walk
from gateway.namespace.versions import NULL, parse, spell

_NAMES = re.compile(b"[^/]*/")
"""Names of directories, one behind the other."""
_FILE_COLUMNS = 6
"""Of a row: its name and what it remembers of its node."""


class _Source(NamedTuple):
    """How a statement gets at what a name (`e`) shows of its node: from the name itself, which remembers it; and where
    some nodes were written in place, which the names do not know, from those nodes, found by an index of just them."""

    size: str
    etag: str
    modified_ns: str
    owner: str
    checksum: str
    join: str
    """Stands behind the table."""


_REMEMBERED = _Source("e.size", "e.etag", "e.modified_ns", "e.owner", "e.checksum", "")
_LOOKED_UP = _Source(
    "coalesce(f.size, e.size)",
    "coalesce(f.etag, e.etag)",
    "max(e.modified_ns, coalesce(f.written_ns, 0))",
    "e.owner",  # a node's never changes
    f"CASE WHEN f.id THEN substr(f.checksums, 1, {CHECKSUM_KIND_BYTES}) ELSE e.checksum END",
    "LEFT JOIN file f INDEXED BY file_rewritten ON f.id = e.node AND f.rewritten = 1",
)


def _some_are_stale(reads: Reads) -> bool:
    """Whether any node was written in place. Looked at once a page: what is written behind that is written at the
    same time as the page is read."""
    return bool(reads.query("SELECT 1 FROM file f INDEXED BY file_rewritten WHERE f.rewritten = 1 LIMIT 1"))


class _Live:
    """The entries that are live. Row: name, size, etag, modified, owner, kind of checksum, and where there may be
    directories among them node, parent."""

    count = "live"
    dead = "e.dead = 0"

    def __init__(self, shown: _Source) -> None:
        behind_size = f"{shown.etag}, {shown.modified_ns}, {shown.owner}, {shown.checksum}"
        mixed = (
            f"SELECT e.name, CASE WHEN e.version THEN {shown.size} END, {behind_size}, e.node, e.parent FROM entry e"
        )
        within = "WHERE e.parent = ? AND e.dead = 0 AND e.name >= ?"
        self._open, self._bounded = _both(f"{mixed} {shown.join} {within}")
        self._files_open, self._files_bounded = _both(
            f"SELECT e.name, {shown.size}, {behind_size} FROM entry e {shown.join} {within}"
        )
        # One value instead of a thousand rows: a slash ends each name and stands nowhere else in it.
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
        return _grouped(reads.query(self._children, (parents,)))


def _both(select: str) -> tuple[str, str]:
    """The statement without an upper bound, and with one."""
    return f"{select} ORDER BY e.name LIMIT ?", f"{select} AND e.name < ? ORDER BY e.name LIMIT ?"


def _grouped(rows: list[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row[-1], []).append(row)
    return found


_LIVE, _LIVE_STALE = _Live(_REMEMBERED), _Live(_LOOKED_UP)


async def list_objects(
    reads: Reads, bucket: Bucket, prefix: bytes = b"", delimiter: bytes = b"", after: bytes = b"", limit: int = 1000
) -> Page:
    """Keys behind *after* that begin with *prefix*; those that have *delimiter* behind it rolled up.

    *limit* counts keys and common prefixes. A common prefix is told where it lies behind *after* itself."""
    told = _Told()
    if limit <= 0:
        return told.page()
    table = _LIVE_STALE if _some_are_stale(reads) else _LIVE
    walk = Walk(reads, table, bucket.root, prefix, delimiter)
    low = walk.first(after)
    while low is not None:
        wanted = limit + 1 - told.count
        low = walk.slice(low, min(wanted, SLICE), told.tell, told.roll)
        if told.count > limit:
            return told.cut()
        if low is not None:
            await asyncio.sleep(0)
    return told.page()


class _Told:
    """The page so far."""

    def __init__(self) -> None:
        self.count = 0
        self._groups: list[tuple[bytes, list[Shown]]] = []
        self._prefixes: list[bytes] = []

    def tell(self, path: bytes, rows: list[Row], room: int) -> tuple[int, int]:
        told = rows if len(rows) <= room else rows[:room]
        self._groups.append((path, told if len(told[0]) == _FILE_COLUMNS else [row[:_FILE_COLUMNS] for row in told]))
        self.count += len(told)
        return len(told), len(told)

    def roll(self, prefixes: list[bytes]) -> None:
        self._prefixes.extend(prefixes)
        self.count += len(prefixes)

    def page(self, behind_it: bytes | None = None) -> Page:
        return Page(self._groups, self._prefixes, behind_it)

    def cut(self) -> Page:
        """One item more than asked for was found: it goes, and the page says where it ends."""
        groups, prefixes = self._groups, self._prefixes
        if not prefixes or self._last_key() > prefixes[-1]:
            path, rows = groups.pop()
            if len(rows) > 1:
                groups.append((path, rows[:-1]))
        else:
            prefixes.pop()
        return self.page(max(self._last_key(), prefixes[-1] if prefixes else b""))

    def _last_key(self) -> bytes:
        if not self._groups:
            return b""
        path, rows = self._groups[-1]
        return path + rows[-1][0]


# --- versions -------------------------------------------------------------------------------------------------------


class _All:
    """Every entry, live or dead. Row: name, size, etag, modified, owner, version, null, older, node, parent."""

    count = "entries"
    dead = "e.dead IN (0, 1)"

    def __init__(self, shown: _Source) -> None:
        columns = (
            f"e.name, CASE WHEN e.version THEN {shown.size} END, {shown.etag}, {shown.modified_ns}, {shown.owner}, "
            'e.version, e."null", e.older, e.node, e.parent'
        )
        half = f"SELECT {columns} FROM entry e {shown.join} WHERE e.parent = ?1 AND e.dead = %d AND e.name >= ?2"
        tail = "ORDER BY 1 LIMIT ?3"
        self._open = f"{half % 0} UNION ALL {half % 1} {tail}"
        self._bounded = f"{half % 0} AND e.name < ?4 UNION ALL {half % 1} AND e.name < ?4 {tail}"
        self._children = (
            f"SELECT {columns} FROM entry e {shown.join} "
            "WHERE e.parent IN (SELECT value FROM json_each(?)) AND e.dead IN (0, 1)"
        )
        self.older = (
            f'SELECT e.version, e."null", e.node, {shown.size}, {shown.etag}, {shown.modified_ns}, {shown.owner}, '
            f"e.older FROM version e {shown.join} "
            "WHERE e.parent = ? AND e.name = ? AND e.version < ? ORDER BY e.version DESC LIMIT ?"
        )

    def entries(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[Row]:
        if high is None:
            return reads.query(self._open, (parent, low, most))
        return reads.query(self._bounded, (parent, low, most, high))

    only_files = entries

    def directories(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[bytes] | None:
        return None

    def children(self, reads: Reads, parents: str) -> dict[int, list[Row]]:
        found = _grouped(reads.query(self._children, (parents,)))
        for rows in found.values():
            rows.sort(key=lambda row: row[0])
        return found


_ALL, _ALL_STALE = _All(_REMEMBERED), _All(_LOOKED_UP)
_NEWEST = 1 << 62


class _Versions:
    """Tells the versions of keys, newest first, from behind a version of one key on."""

    def __init__(self, reads: Reads, table: _All) -> None:
        self._reads = reads
        self._older = table.older
        self._key: bytes | None = None
        self._below = _NEWEST
        self.found: list[ListedVersion] = []
        self.ids: list[int] = []
        self.unfinished = False
        """The last key told has versions that were not."""

    def go_on_behind(self, key: bytes, version: int) -> None:
        self._key, self._below, self.unfinished = key, version, False

    def tell(self, path: bytes, rows: list[Row], room: int) -> tuple[int, int]:
        items = 0
        for told, row in enumerate(rows):
            if items >= room:
                return told, items
            items += self._tell_one(path + row[0], row, room - items)
        return len(rows), items

    def _tell_one(self, key: bytes, row: Row, room: int) -> int:
        name, size, etag, modified_ns, owner, version, null, older, node, parent = row
        below = self._below if key == self._key else _NEWEST
        before = len(self.found)
        if version < below:
            self._add(key, version, null, True, node, size, etag, modified_ns, owner)
        room -= len(self.found) - before
        if older and room:
            for found in self._reads.query(self._older, (parent, name, below, room)):
                version, null, node, size, etag, modified_ns, owner, older = found
                self._add(key, version, null, False, node, size, etag, modified_ns, owner)
                room -= 1
        self.unfinished = room == 0 and older != 0
        return len(self.found) - before

    def _add(
        self, key: bytes, version: int, null: int, latest: bool, node: int, size: int, etag: str, modified_ns: int,
        owner: int,
    ) -> None:  # fmt: skip
        text = NULL if null else spell(version)
        self.found.append(ListedVersion(key, text, latest, not node, size, etag, modified_ns, owner))
        self.ids.append(version)


async def list_versions(
    reads: Reads, bucket: Bucket, prefix: bytes = b"", delimiter: bytes = b"", after_key: bytes = b"",
    after_version: str = "", limit: int = 1000,
) -> VersionPage:  # fmt: skip
    """All versions and delete markers: keys in order, each key's newest first. Behind *after_key*, or, with
    *after_version*, behind that version of it.

    Raises `InvalidArgument` for what is no version id."""
    prefixes: list[bytes] = []
    table = _ALL_STALE if _some_are_stale(reads) else _ALL
    told = _Versions(reads, table)
    walk = Walk(reads, table, bucket.root, prefix, delimiter)
    low = walk.first(after_key)
    if after_version and low == behind(after_key):
        low = after_key
        told.go_on_behind(after_key, _id_of(reads, bucket, after_key, after_version))
    while low is not None and limit > 0:
        room = min(limit + 1 - len(told.found) - len(prefixes), SLICE)
        low = walk.slice(low, room, told.tell, prefixes.extend)
        if told.unfinished:
            low = told.found[-1].key
            told.go_on_behind(low, told.ids[-1])
        if len(told.found) + len(prefixes) > limit:
            return _cut_versions(told, prefixes)
        if low is not None:
            await asyncio.sleep(0)
    return VersionPage(told.found, prefixes, None, None)


def _id_of(reads: Reads, bucket: Bucket, key: bytes, version: str) -> int:
    """The id of a version marker; of a null version that is gone, one behind which the key has nothing."""
    named = parse(version)
    if named is not None:
        return named
    found = find(reads, bucket.name, key, NULL)
    return found.version if found is not None else 0


def _cut_versions(told: _Versions, prefixes: list[bytes]) -> VersionPage:
    """One item more than asked for was found: it goes, and the page says where it ends."""
    if not prefixes or (told.found and told.found[-1].key > prefixes[-1]):
        told.found.pop()
    else:
        prefixes.pop()
    if told.found and (not prefixes or told.found[-1].key > prefixes[-1]):
        # the id, also of a null version: it says where to go on even when that is gone by then
        return VersionPage(told.found, prefixes, told.found[-1].key, spell(told.ids[len(told.found) - 1]))
    return VersionPage(told.found, prefixes, prefixes[-1] if prefixes else b"", None)
