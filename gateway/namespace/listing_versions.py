"""Listings of versions and delete markers, a page at a time; read as `listing.py` reads objects."""

from __future__ import annotations

import asyncio

from gateway.journal.tables import Bucket
from gateway.namespace.keys import behind
from gateway.namespace.pages import ListedVersion, VersionPage
from gateway.namespace.reading import Reads, find
from gateway.namespace.remembered import LOOKED_UP, REMEMBERED, Source, by_parent, some_are_stale
from gateway.namespace.seeking import SLICE, Row, Walk
from gateway.namespace.versions import NULL, parse, spell, text_of


class _All:
    """Every entry, live or dead. Row: name, size, etag, modified, owner, kind of checksum, version, null, older, node,
    parent."""

    count = "entries"
    dead = "e.dead IN (0, 1)"

    def __init__(self, shown: Source) -> None:
        columns = (
            f"e.name, CASE WHEN e.version THEN {shown.size} END, {shown.etag}, {shown.modified_ns}, {shown.owner}, "
            f'{shown.checksum}, e.version, e."null", e.older, e.node, e.parent'
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
            f"{shown.checksum}, e.older FROM version e {shown.join} "
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
        found = by_parent(reads.query(self._children, (parents,)))
        for rows in found.values():
            rows.sort(key=lambda row: row[0])
        return found


_ALL, _ALL_STALE = _All(REMEMBERED), _All(LOOKED_UP)
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
        name, size, etag, modified_ns, owner, checksum, version, null, older, node, parent = row
        below = self._below if key == self._key else _NEWEST
        before = len(self.found)
        if version < below:
            self._add(key, version, null, True, node, size, etag, modified_ns, owner, checksum)
        room -= len(self.found) - before
        if older and room:
            for found in self._reads.query(self._older, (parent, name, below, room)):
                version, null, node, size, etag, modified_ns, owner, checksum, older = found
                self._add(key, version, null, False, node, size, etag, modified_ns, owner, checksum)
                room -= 1
        self.unfinished = room == 0 and older != 0
        return len(self.found) - before

    def _add(
        self, key: bytes, version: int, null: int, latest: bool, node: int, size: int, etag: str, modified_ns: int,
        owner: int, checksum: bytes | None,
    ) -> None:  # fmt: skip
        text = text_of(version, null)
        self.found.append(ListedVersion(key, text, latest, not node, size, etag, modified_ns, owner, checksum))
        self.ids.append(version)


async def list_versions(
    reads: Reads, bucket: Bucket, prefix: bytes = b"", delimiter: bytes = b"", after_key: bytes = b"",
    after_version: str = "", limit: int = 1000,
) -> VersionPage:  # fmt: skip
    """All versions and delete markers: keys in order, each key's newest first. Behind *after_key*, or, with
    *after_version*, behind that version of it.

    Raises `InvalidArgument` for what is no version id."""
    prefixes: list[bytes] = []
    table = _ALL_STALE if some_are_stale(reads) else _ALL
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
