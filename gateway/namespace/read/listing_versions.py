"""Listings of versions and delete markers, a page at a time, by the rules of `listing.py`."""

from __future__ import annotations

from gateway.journal.tables import Bucket
from gateway.namespace.keys import key_after
from gateway.namespace.read.denormalized import FROM_ENTRY, FROM_NODE, NodeColumns, group_by_parent, some_are_stale
from gateway.namespace.read.listing_turns import in_turns
from gateway.namespace.read.lookups import Reads, find
from gateway.namespace.read.pages import ListedVersion, VersionPage
from gateway.namespace.read.tree_walk import PAGE_BYTES, SLICE, Walk
from gateway.namespace.read.walk_state import Row
from gateway.namespace.version_ids import NULL, encode_version_id, parse_version_id, version_id_text


class _All:
    """All entries, live or dead. A row has: name, size, etag, modified, owner, kind of checksum, version, null, older,
    node, parent."""

    count = "entries"
    dead = "e.dead IN (0, 1)"

    def __init__(self, shown: NodeColumns) -> None:
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
        found = group_by_parent(reads.query(self._children, (parents,)))
        for rows in found.values():
            rows.sort(key=lambda row: row[0])
        return found


_ALL, _ALL_STALE = _All(FROM_ENTRY), _All(FROM_NODE)
_NEWEST = 1 << 62


class _VersionPage:
    """The page that is being read: the versions of each key, newest first, beginning after a version of the first
    key."""

    def __init__(
        self, reads: Reads, bucket: Bucket, prefix: bytes, delimiter: bytes, after_key: bytes, after_version: str,
        limit: int,
    ) -> None:  # fmt: skip
        table = _ALL_STALE if some_are_stale(reads) else _ALL
        self._reads = reads
        self._older = table.older
        self._limit = limit
        self._bytes = 0
        """Bytes of its keys and prefixes."""
        self._key: bytes | None = None
        self._below = _NEWEST
        self._found: list[ListedVersion] = []
        self._ids: list[int] = []
        self._prefixes: list[bytes] = []
        self._unfinished = False
        """Whether the last key has versions that were not listed yet."""
        self._complete = False
        self._walk = Walk(reads, table, bucket.root, prefix, delimiter)
        low = self._walk.first(after_key)
        if after_version and low == key_after(after_key):
            low = after_key
            self._continue_after(after_key, _version_number(reads, bucket, after_key, after_version))
        self._more = low is not None
        if low is not None:
            self._walk.begin(low)

    @property
    def count(self) -> int:
        """The number of versions and prefixes."""
        return len(self._found) + len(self._prefixes)

    def turn(self) -> bool:
        wanted = self._limit + 1 - self.count
        self._more = self._more and self._walk.turn(min(wanted, SLICE), self._emit_rows, self._emit_prefixes)
        if self._unfinished:
            self._continue_after(self._found[-1].key, self._ids[-1])
            self._walk.begin(self._found[-1].key)
            self._more = True
        self._complete = not self._more or self.count > self._limit
        return self._complete or self._is_full

    @property
    def _is_full(self) -> bool:
        return self._bytes >= PAGE_BYTES

    def _continue_after(self, key: bytes, version: int) -> None:
        self._key, self._below, self._unfinished = key, version, False

    def _emit_prefixes(self, prefixes: list[bytes]) -> None:
        self._prefixes.extend(prefixes)
        self._bytes += sum(map(len, prefixes))

    def _emit_rows(self, path: bytes, rows: list[Row], room: int) -> tuple[int, int]:
        items = 0
        for used, row in enumerate(rows):
            if items >= room or (items and self._is_full):
                return used, room
            items += self._emit_versions(path + row[0], row, room - items)
        return len(rows), room if self._is_full else items

    def _emit_versions(self, key: bytes, row: Row, room: int) -> int:
        name, size, etag, modified_ns, owner, checksum, version, null, older, node, parent = row
        below = self._below if key == self._key else _NEWEST
        before = len(self._found)
        if version < below:
            self._add(key, version, null, True, node, size, etag, modified_ns, owner, checksum)
        room -= len(self._found) - before
        if older and room:
            for found in self._reads.query(self._older, (parent, name, below, room)):
                version, null, node, size, etag, modified_ns, owner, checksum, older = found
                self._add(key, version, null, False, node, size, etag, modified_ns, owner, checksum)
                room -= 1
        self._unfinished = room == 0 and older != 0
        self._bytes += len(key) * (len(self._found) - before)
        return len(self._found) - before

    def _add(
        self, key: bytes, version: int, null: int, latest: bool, node: int, size: int, etag: str, modified_ns: int,
        owner: int, checksum: bytes | None,
    ) -> None:  # fmt: skip
        text = version_id_text(version, null)
        self._found.append(ListedVersion(key, text, latest, not node, size, etag, modified_ns, owner, checksum))
        self._ids.append(version)

    def page(self) -> VersionPage:
        """Return the page. If one item more than the limit was read, it is removed, and the page says where to
        continue."""
        found, prefixes = self._found, self._prefixes
        if self.count > self._limit:
            if not prefixes or (found and found[-1].key > prefixes[-1]):
                found.pop()
            else:
                prefixes.pop()
        elif self._complete:
            return VersionPage(found, prefixes, None, None)
        if found and (not prefixes or found[-1].key > prefixes[-1]):
            # The id, also for a null version: the next page begins after it even if that version is deleted by then.
            return VersionPage(found, prefixes, found[-1].key, encode_version_id(self._ids[len(found) - 1]))
        return VersionPage(found, prefixes, prefixes[-1] if prefixes else b"", None)


async def list_versions(
    reads: Reads, bucket: Bucket, prefix: bytes = b"", delimiter: bytes = b"", after_key: bytes = b"",
    after_version: str = "", limit: int = 1000,
) -> VersionPage:  # fmt: skip
    """List all versions and delete markers: keys in order, the versions of each key newest first. Begins after the key
    *after_key*, or, with *after_version*, after that version of it.

    Raises `InvalidArgument` if *after_version* is not a version id."""
    if limit <= 0:
        return VersionPage([], [], None, None)
    read = await in_turns(
        reads, lambda store: _VersionPage(store, bucket, prefix, delimiter, after_key, after_version, limit)
    )
    return read.page()


def _version_number(reads: Reads, bucket: Bucket, key: bytes, version: str) -> int:
    """Return the id of a version from its text; for a null version that was deleted, 0, after which no version
    follows."""
    named = parse_version_id(version)
    if named is not None:
        return named
    found = find(reads, bucket.name, key, NULL)
    return found.version if found is not None else 0
