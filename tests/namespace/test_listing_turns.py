"""A page of a deep or wide tree: what it takes of each turn of the loop, and what it holds. Counted in queries, rows
and bytes, not in seconds."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import EMPTY_HEAD, Batch
from gateway.journal.tables import BUCKET, DIR, ENTRY, FILE, Bucket
from gateway.namespace.read import listing, listing_turns, listing_versions, lookups, tree_walk
from tests.namespace import volume
from tests.namespace.world import Mirror

pytestmark = pytest.mark.slow

DEPTH = 500


class Tree:
    """Rows of a bucket whose keys are added one by one. Where keys share directories, they are made once."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.directories: list[Any] = []
        self._ids = count(1000)
        self._nodes: dict[bytes, int] = {b"": volume.ROOT}

    def add(self, key: bytes) -> None:
        *above, name = key.split(b"/")
        path, parent = b"", volume.ROOT
        for each in above:
            path += each + b"/"
            if path not in self._nodes:
                node = self._nodes[path] = next(self._ids)
                self.entries.append(volume.entry(parent, each + b"/", node, version=0))
                self.directories.append(volume.directory(node, parent, each + b"/", 0))
            parent = self._nodes[path]
        self.entries.append(volume.entry(parent, name, next(self._ids)))

    def chain(self, names: list[bytes], parent: int = volume.ROOT) -> int:
        """Directories one below the other. Returns the last."""
        for name in names:
            node = next(self._ids)
            self.entries.append(volume.entry(parent, name, node, version=0))
            self.directories.append(volume.directory(node, parent, name, 0))
            parent = node
        return parent

    def rows(self) -> dict[Any, list[Any]]:
        """All rows, with the counts that directories have."""
        entries: Counter[int] = Counter(row.parent for row in self.entries)
        subdirs: Counter[int] = Counter(row.parent for row in self.entries if not row.version)
        directories = [
            row._replace(live=entries[row.id], entries=entries[row.id], subdirs=subdirs[row.id])
            for row in [volume.directory(volume.ROOT, 0, b"", 0), *self.directories]
        ]
        return {BUCKET: [BUCKET_ROW], DIR: directories, ENTRY: self.entries}

    def mirror(self) -> Mirror:
        made = Mirror()
        for table, rows in self.rows().items():
            made.fill(table, rows)
        return made


BUCKET_ROW = Bucket("b", 1, 1, 7, volume.ROOT, "us-east-1", 0, 1, 0, 0, 0, 0, b"", 0)


class Turns:
    """Counts what a mirror is asked in each turn of the loop."""

    def __init__(self, mirror: Mirror) -> None:
        self.queries: list[int] = []
        self._mirror = mirror
        self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            self._mirror.queries = 0
            await asyncio.sleep(0)
            self.queries.append(self._mirror.queries)

    def end(self) -> None:
        self._ticking.cancel()


async def all_keys(mirror: Any, **asked: Any) -> tuple[list[bytes], int]:
    """Every key or prefix of a listing, and how many pages it took."""
    found: list[bytes] = []
    after, pages = b"", 0
    while True:
        page = await listing.list_objects(mirror, BUCKET_ROW, after=after, **asked)
        pages += 1
        found += sorted([*(each.key for each in page.keys), *page.prefixes])
        if page.next is None:
            return found, pages
        assert page.count, "a page that is not the last one has at least one item"
        assert page.next == found[-1]
        after = page.next
        await asyncio.sleep(0)  # each page is a request of its own


@pytest.mark.parametrize("delimiter", [b"", b"k"])
async def test_a_page_of_deep_keys_is_read_in_turns_of_bounded_work(delimiter: bytes) -> None:
    tree = Tree()
    keys = sorted(b"%02d/" % n + b"a/" * DEPTH + b"k" for n in range(20))
    for key in keys:
        tree.add(key)
    mirror = tree.mirror()
    turns = Turns(mirror)
    await asyncio.sleep(0)
    found, _ = await all_keys(mirror, delimiter=delimiter)
    turns.end()
    assert found == keys
    assert sum(turns.queries) > 20 * DEPTH
    assert max(turns.queries) <= tree_walk.QUERIES + 2 * tree_walk.LEVELS + 8


async def test_a_page_of_deep_versions_is_read_in_turns_of_bounded_work() -> None:
    tree = Tree()
    keys = sorted(b"%02d/" % n + b"a/" * DEPTH + b"k" for n in range(10))
    for key in keys:
        tree.add(key)
    mirror = tree.mirror()
    turns = Turns(mirror)
    await asyncio.sleep(0)
    found: list[bytes] = []
    after, version = b"", ""
    while True:
        page = await listing_versions.list_versions(mirror, BUCKET_ROW, after_key=after, after_version=version)
        found += [each.key for each in page.versions]
        if page.next_key is None:
            break
        after, version = page.next_key, page.next_version or ""
        await asyncio.sleep(0)
    turns.end()
    assert found == keys
    assert max(turns.queries) <= tree_walk.QUERIES + 2 * tree_walk.LEVELS + 8


async def test_a_page_that_needs_too_many_turns_ends_early_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_turns, "TURNS", 8)
    tree = Tree()
    keys = sorted(b"%02d/" % n + b"a/" * DEPTH + b"k" for n in range(12))
    for key in keys:
        tree.add(key)
    found, pages = await all_keys(tree.mirror())
    assert found == keys
    assert 2 < pages <= len(keys) + 1


async def test_going_to_a_deep_key_takes_few_queries() -> None:
    tree = Tree()
    key = b"a/" * DEPTH
    tree.add(key + b"1")
    tree.add(key + b"2")
    mirror = tree.mirror()
    for prefix in (key, b"a/" * 20):
        mirror.queries = 0
        page = await listing.list_objects(mirror, BUCKET_ROW, prefix=prefix, after=key + b"1", limit=1)
        assert [each.key for each in page.keys] == [key + b"2"]
        if prefix == key:
            assert mirror.queries < 12


async def test_a_path_of_many_long_names_is_held_once() -> None:
    """Trees that renaming made before there was a limit: the memory follows the path, not its square."""
    tree = Tree()
    deepest = tree.chain([b"%05d" % n + b"x" * 200 + b"/" for n in range(4000)])
    tree.entries += [volume.entry(deepest, b"%d" % n, 5_000_000 + n) for n in range(50)]
    mirror = tree.mirror()
    tracemalloc.start()
    try:
        found, pages = await all_keys(mirror)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    key_bytes = 4000 * 206
    assert len(found) == 50
    assert pages > 10, f"a page has at most {tree_walk.PAGE_BYTES} bytes of keys"
    assert peak < 50 * key_bytes + 20 * key_bytes, "50 keys, and what a page takes besides"


async def test_prefixes_far_down_are_told_in_pages_of_bounded_size() -> None:
    tree = Tree()
    deepest = tree.chain([b"%05d" % n + b"x" * 200 + b"/" for n in range(1000)])
    for n in range(40):
        tree.chain([b"%02d/" % n], deepest)
    base = b"".join(row.name for row in tree.directories[:1000])
    found, pages = await all_keys(tree.mirror(), prefix=base, delimiter=b"/")
    assert found == [base + b"%02d/" % n for n in range(40)]
    assert pages >= 40 * len(base) // (2 * tree_walk.PAGE_BYTES)


async def test_rows_of_wide_directories_above_are_not_all_held(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree()
    parent = volume.ROOT
    for _ in range(60):
        for n in range(200):
            tree.entries.append(volume.entry(parent, b"file%03d" % n, next(tree._ids)))
        parent = tree.chain([b"a/"], parent)
    tree.entries.append(volume.entry(parent, b"leaf", next(tree._ids)))
    mirror = tree.mirror()
    held = []
    push = tree_walk.Walk._push

    def watched(walk: Any, frame: Any) -> None:
        push(walk, frame)
        held.append(sum(len(each.rows) for each in walk._frames))

    monkeypatch.setattr(tree_walk.Walk, "_push", watched)
    monkeypatch.setattr(tree_walk, "HELD_ROWS", 1000)
    found, _ = await all_keys(mirror)
    assert len(found) == 60 * 200 + 1
    assert found == sorted(found)
    assert max(held) <= 1000 + 2 * tree_walk.SLICE


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[SqliteStore, ReadStore, list[bytes]]]:
    tree = Tree()
    keys = sorted(b"%02d/" % n + b"a/" * DEPTH + b"k" for n in range(6))
    for key in keys:
        tree.add(key)
    written = SqliteStore(tmp_path / "journal.db")
    batch = Batch(EMPTY_HEAD, None)
    batch.puts.update(tree.rows())
    written.write(batch)
    reads = ReadStore(tmp_path / "journal.db")
    yield written, reads, keys
    reads.close()
    written.close()


async def test_a_page_of_many_turns_is_one_state_of_the_bucket(store: Any) -> None:
    written, reads, keys = store
    listed = asyncio.create_task(listing.list_objects(reads, BUCKET_ROW))
    for _ in range(4):
        await asyncio.sleep(0)
    assert not listed.done()
    # The last key becomes the first one, as a rename would do it: a walk in several states would miss it.
    (moved,) = (row for row in written.dump(ENTRY) if row[:2] == (volume.ROOT, b"05/"))
    batch = Batch(EMPTY_HEAD, None)
    batch.drops[ENTRY] = [(volume.ROOT, 0, b"05/")]
    batch.puts[ENTRY] = [volume.entry(volume.ROOT, b"00!/", moved[3], version=0)]
    written.write(batch)
    assert [each.key for each in (await listed).keys] == keys
    after = await listing.list_objects(reads, BUCKET_ROW)
    assert [each.key for each in after.keys] == [b"00!" + keys[-1][2:], *keys[:-1]]


async def test_a_listing_whose_client_is_gone_stops_and_leaves_its_snapshot(store: Any) -> None:
    _, reads, keys = store
    for _ in range(5):  # more than there may be at a time
        listed = asyncio.create_task(listing.list_objects(reads, BUCKET_ROW))
        for _ in range(4):
            await asyncio.sleep(0)
        listed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listed
    page = await listing.list_objects(reads, BUCKET_ROW)
    assert [each.key for each in page.keys] == keys


async def test_other_reads_see_the_newest_state_while_a_page_is_read(store: Any) -> None:
    written, reads, _ = store
    listed = asyncio.create_task(listing.list_objects(reads, BUCKET_ROW))
    for _ in range(4):
        await asyncio.sleep(0)
    batch = Batch(EMPTY_HEAD._replace(number=77), None)
    written.write(batch)
    assert not listed.done()
    assert reads.head() == 77
    await listed


async def test_a_deep_key_is_found_in_few_queries() -> None:
    tree = Tree()
    key = b"a/" * DEPTH + b"k"
    tree.add(key)
    mirror = tree.mirror()
    mirror.fill(FILE, [volume.file(tree.entries[-1].node)])
    found = lookups.find(mirror, "b", key)
    assert found is not None
    assert found.file is not None
    assert found.file.id == tree.entries[-1].node
    assert mirror.queries < 8
    for missing in (b"a/" * DEPTH + b"none", b"a/" * 300 + b"b/" * 200 + b"k", b"a/" * 700):
        assert lookups.find(mirror, "b", missing) is None
