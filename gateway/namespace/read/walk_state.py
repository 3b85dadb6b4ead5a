"""The state of a tree walk (`tree_walk.py`) and the tables that it reads. Plain values: the walk decides."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from gateway.namespace.read.lookups import Reads

Row = tuple[Any, ...]
"""(name, size, …, node, parent). The size of a directory is None."""


class Table(Protocol):
    """The entries that a walk reads: the live ones, or all."""

    count: str
    """The column of `dir` that counts these entries."""
    dead: str
    """An SQL condition on entries `e`: whether the walk reads them."""

    def entries(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[Row]:
        """Return the first *most* entries of a directory whose names are at least *low* and below *high*, in order."""

    def directories(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[bytes] | None:
        """Return the names of the same entries, much faster, if all are directories; None if one is not."""

    def only_files(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[Row]:
        """Return the same entries, faster. Only for directories without subdirectories."""

    def children(self, reads: Reads, parents: str) -> dict[int, list[Row]]:
        """Return all entries of the directories in a JSON list, by directory and in order."""


class Frame:
    """A directory on the walk's current path, with the rows that were fetched and not emitted yet."""

    __slots__ = ("at", "batch", "end", "high", "low", "more", "node", "rows")

    def __init__(self, node: int, end: int, low: bytes, high: bytes | None, batch: int) -> None:
        self.node = node
        self.end = end
        """Length of its path in bytes. The path is the beginning of the walk's."""
        self.low = low
        """The name at which the next range begins."""
        self.high = high
        """Only names below this one are read; None: all."""
        self.batch = batch
        """How many rows the next fetch reads, at most."""
        self.rows: list[Row] = []
        self.at = 0
        """The index in `rows` of the first row that was not emitted."""
        self.more = True
        """Whether there may be rows after those in `rows`."""


class CountedReads:
    """Counts the queries that a walk makes."""

    __slots__ = ("_reads", "count")

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self.count = 0

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        self.count += 1
        return self._reads.query(statement, values)

    def snapshot(self) -> AbstractContextManager[None]:
        return self._reads.snapshot()

    def separate_snapshot(self) -> AbstractAsyncContextManager[Reads]:
        return self._reads.separate_snapshot()


class Seek:
    """The descent to the key at which a walk begins."""

    __slots__ = ("at", "base_depth", "end", "low", "names", "node")

    def __init__(self, low: bytes, names: list[bytes], base_depth: int, root: int) -> None:
        self.low = low
        self.names = names
        """The names of the key's directories."""
        self.base_depth = base_depth
        """How many of them lead to the directory in which the prefix ends."""
        self.at = 0
        """How many of them were descended."""
        self.end = 0
        """Length of the path of these, in bytes."""
        self.node = root
