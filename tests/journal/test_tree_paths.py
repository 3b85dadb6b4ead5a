"""Rows of a whole path, as the stores load them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.journal.rows import Climb, Descent, RowsNotLoaded
from gateway.journal.server.row_cache import RowCache
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import EMPTY_HEAD, Batch, Store
from gateway.journal.tables import DIR, ENTRY, Dir, Entry
from tests.journal.memory_store import MemoryStore

LEVELS = [b"a/", b"/", b"\xff\xfe/", b"x" * 255 + b"/", b"c/"]
"""Directories one below the other: 1 is the root, 2 is `a/`, and so on."""
LEAF = 50
EMPTY = 51


def directory(node: int, parent: int, name: bytes) -> Dir:
    return Dir(node, "b", parent, name, 1, 1, 0, 0o755, 0, 0, 0, 0, 0, b"")


def entry(parent: int, name: bytes, node: int, *, dead: int = 0, version: int = 0) -> Entry:
    return Entry(parent, name, dead, node, version, 1, 0, version, 7)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "journal.db")
    batch = Batch(EMPTY_HEAD, None)
    batch.puts[DIR] = [directory(1, 0, b"")]
    batch.puts[ENTRY] = []
    for node, name in enumerate(LEVELS, 2):
        batch.puts[DIR].append(directory(node, node - 1, name))
        batch.puts[ENTRY].append(entry(node - 1, name, node, dead=node % 2))
    deepest = len(LEVELS) + 1
    batch.puts[ENTRY] += [entry(deepest, b"leaf", LEAF, version=9), entry(deepest, b"", EMPTY, version=9)]
    made.write(batch)
    yield made
    made.close()


@pytest.mark.parametrize(("leaf", "node"), [(b"leaf", LEAF), (b"", EMPTY)])
def test_a_descent_brings_every_directory_and_the_object(store: Store, leaf: bytes, node: int) -> None:
    path = store.descend(1, (*LEVELS, leaf))
    assert [row.id for row in path.directories] == [1, 2, 3, 4, 5, 6]
    assert [(row.name, row.node) for row in path.entries] == [*zip(LEVELS, range(2, 7), strict=True), (leaf, node)]


def test_a_descent_ends_at_the_first_name_that_does_not_exist(store: Store) -> None:
    path = store.descend(2, (*LEVELS[1:3], b"none/", b"c/"))
    assert [row.id for row in path.directories] == [2, 3, 4]
    assert [row.name for row in path.entries] == LEVELS[1:3]
    assert store.descend(99, (b"a/",)) == ([], [])


def test_a_climb_brings_every_directory_up_to_the_root(store: Store) -> None:
    path = store.climb(6, 100)
    assert [row.id for row in path.directories] == [6, 5, 4, 3, 2, 1]
    assert [row.name for row in path.entries] == LEVELS[::-1]
    assert [row.id for row in store.climb(6, 2).directories] == [6, 5, 4]
    assert store.climb(99, 5) == ([], [])


def test_what_was_loaded_is_not_missing_any_more_and_neither_is_what_does_not_exist(store: Store) -> None:
    cache = RowCache(store)
    cache.load([Descent(1, (*LEVELS, b"none"))])
    nodes = range(1, len(LEVELS) + 2)
    assert all(cache.get(DIR, (node,)) is not None for node in nodes)
    for (above, below), name in zip(pairwise(nodes), LEVELS, strict=True):
        found = cache.get(ENTRY, (above, name))
        assert found is not None
        assert found.node == below
    assert cache.get(ENTRY, (nodes[-1], b"none")) is None
    cold = RowCache(store)
    cold.load([Climb(6), Climb(99), Descent(98, (b"a/", b"b"))])
    assert cold.get(DIR, (1,)) is not None
    assert cold.get(DIR, (99,)) is None
    assert (cold.get(DIR, (98,)), cold.get(ENTRY, (98, b"a/"))) == (None, None)


def test_a_row_that_is_in_memory_is_not_replaced_by_loading_a_path(store: Store) -> None:
    """It may be the one that the batch on its way to the disk has changed."""
    cache = RowCache(store)
    newer = directory(3, 2, b"/")._replace(live=77)
    cache.put(DIR, newer)
    cache.load([Descent(1, tuple(LEVELS)), Climb(6), (DIR, (3,))])
    assert cache.get(DIR, (3,)) == newer
    with pytest.raises(RowsNotLoaded):
        cache.get(ENTRY, (1, b"other"))
