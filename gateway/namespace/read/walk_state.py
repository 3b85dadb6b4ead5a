"""What a walk over a tree reads through, and what it remembers of its way: values without decisions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from gateway.namespace.read.lookups import Reads

Row = tuple[Any, ...]
"""(name, size, …, node, parent): size None for a directory."""


class Table(Protocol):
    """Which entries a walk meets."""

    count: str
    """The column of `dir` that counts them."""
    dead: str
    """SQL that says of an entry `e` that it is met."""

    def entries(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[Row]:
        """The first entries of a directory, names from *low* up to before *high*, in order."""

    def directories(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[bytes] | None:
        """The names of the same entries, much quicker, where all of them are directories; None where one is not."""

    def only_files(self, reads: Reads, parent: int, low: bytes, high: bytes | None, most: int) -> list[Row]:
        """The same, quick where there is no directory among them."""

    def children(self, reads: Reads, parents: str) -> dict[int, list[Row]]:
        """All entries of the directories in a JSON list, each directory's in order."""


class Frame:
    """A directory that the walk is in: the rows at hand, and whether there are more behind them."""

    __slots__ = ("at", "batch", "end", "high", "low", "more", "node", "rows")

    def __init__(self, node: int, end: int, low: bytes, high: bytes | None, batch: int) -> None:
        self.node = node
        self.end = end
        """Bytes of its path, which is the beginning of the walk's."""
        self.low = low
        self.high = high
        self.batch = batch
        self.rows: list[Row] = []
        self.at = 0
        self.more = True


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
    """The way to the key that a walk begins at."""

    __slots__ = ("above", "at", "end", "low", "names", "node")

    def __init__(self, low: bytes, names: list[bytes], above: int, root: int) -> None:
        self.low = low
        self.names = names
        """The key's directories."""
        self.above = above
        """So many of them are the prefix's."""
        self.at = 0
        """How many of them were entered."""
        self.end = 0
        """Bytes of their path."""
        self.node = root
