"""A store in memory: the reference that the others are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gateway.journal.store import EMPTY_HEAD, Batch, Head, JournalRow, TreePath
from gateway.journal.tables import DIR, ENTRY, TABLES, Key, Table


class MemoryStore:
    def __init__(self) -> None:
        self._rows: dict[Table[Any], dict[Key, Any]] = {table: {} for table in TABLES}
        self._journal: list[JournalRow] = []
        self._head = EMPTY_HEAD

    def head(self) -> Head:
        return self._head

    def load(self, table: Table[Any], keys: Sequence[Key]) -> dict[Key, Any]:
        rows = self._rows[table]
        return {key: rows[key] for key in keys if key in rows}

    def descend(self, parent: int, names: Sequence[bytes]) -> TreePath:
        return descend(self._rows[DIR].get, self._rows[ENTRY].get, parent, names)

    def climb(self, node: int, levels: int) -> TreePath:
        return climb(self._rows[DIR].get, self._rows[ENTRY].get, node, levels)

    def write(self, batch: Batch) -> None:
        for table, stored_keys in batch.drops.items():
            for stored in stored_keys:
                named = dict(zip(table.stored_key, stored, strict=True))
                self._rows[table].pop(tuple(named[name] for name in table.row._fields[: table.key]), None)
        for table, rows in batch.puts.items():
            for row in rows:
                self._rows[table][table.key_of(row)] = row
        if batch.journal is not None:
            self._journal.append(batch.journal)
        self._head = batch.head

    def batches(self, after: int = 0) -> Iterator[JournalRow]:
        return iter([row for row in self._journal if row.number > after])

    def dump(self, table: Table[Any]) -> Iterable[tuple[Any, ...]]:
        rows = self._rows[table]
        return [rows[key] for key in sorted(rows)]

    def close(self) -> None:
        pass


Get = Callable[[Key], Any]
"""The row of a key, or None."""


def descend(directory: Get, entry: Get, parent: int, names: Sequence[bytes]) -> TreePath:
    """`Store.descend` over two tables' look-ups."""
    path = TreePath([], [])
    for name in names:
        _add(path.directories, directory((parent,)))
        row = entry((parent, name))
        if row is None:
            return path
        path.entries.append(row)
        parent = row.node
    _add(path.directories, directory((parent,)))
    return path


def climb(directory: Get, entry: Get, node: int, levels: int) -> TreePath:
    """`Store.climb` over two tables' look-ups."""
    path = TreePath([], [])
    for _ in range(levels + 1):
        row = directory((node,))
        if row is None:
            break
        path.directories.append(row)
        _add(path.entries, entry((row.parent, row.name)))
        node = row.parent
    return path


def _add(rows: list[Any], row: Any) -> None:
    if row is not None:
        rows.append(row)
