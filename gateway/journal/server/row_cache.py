"""The committer's cache of rows: what it knows of the tables without asking the store. Always right, since nobody else
writes. Bounded by a number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, TypeVar

from gateway.journal.rows import LEVELS_MAX, Descent, LoadRequest, RowKey, RowsNotLoaded
from gateway.journal.store import Store, TreePath
from gateway.journal.tables import DIR, ENTRY, Key, Table

R = TypeVar("R", bound=tuple[Any, ...])

ROWS_MAX = 200_000
_UNKNOWN: Any = object()


class RowCache:
    """Rows as they are durable. A key known to have no row is kept as None."""

    def __init__(self, store: Store, rows_max: int = ROWS_MAX) -> None:
        self._store = store
        self._rows: dict[RowKey, Any] = {}
        self._rows_max = rows_max
        self.fresh_id = 1 << 63
        """Ids from here on were drawn by no durable batch, so no row stands under one: a command that looks inside
        what it has just made misses nothing. Otherwise each of many that make directories in one batch would miss a
        row under an id that is another one at its next try, and one a round would get through. Who draws the ids
        sets this."""

    def get(self, table: Table[R], key: Key) -> R | None:
        found = self._rows.get((table, key), _UNKNOWN)
        if found is _UNKNOWN:
            first = key[0]
            if type(first) is int and first >= self.fresh_id:
                return None
            raise RowsNotLoaded(((table, key),))
        return found  # type: ignore[no-any-return]

    def knows(self, wanted: RowKey) -> bool:
        first = wanted[1][0]
        return wanted in self._rows or (type(first) is int and first >= self.fresh_id)

    def put(self, table: Table[R], row: R) -> None:
        self._rows[(table, row[: table.key])] = row

    def drop(self, table: Table[R], key: Key) -> None:
        self._rows[(table, key)] = None

    def load(self, wanted: Sequence[LoadRequest]) -> None:
        """Fetch these rows, with one query a table, and one for each path."""
        by_table: dict[Table[Any], list[Key]] = {}
        for each in wanted:
            if isinstance(each, tuple):
                by_table.setdefault(each[0], []).append(each[1])
            elif isinstance(each, Descent):
                self._load_descent(each)
            else:
                self._add(self._store.climb(each.node, LEVELS_MAX))
                self._rows.setdefault((DIR, (each.node,)), None)
        for table, keys in by_table.items():
            found = self._store.load(table, keys)
            for key in keys:
                self._rows.setdefault((table, key), found.get(key))

    def _load_descent(self, descent: Descent) -> None:
        """Fetch the rows of a path. That its first missing name does not exist is known from then on, too."""
        path = self._store.descend(descent.parent, descent.names)
        self._add(path)
        found = len(path.entries)
        self._rows.setdefault((DIR, (descent.parent,)), None)
        if found < len(descent.names):
            parent = path.entries[-1].node if found else descent.parent
            self._rows.setdefault((ENTRY, (parent, descent.names[found])), None)

    def _add(self, path: TreePath) -> None:
        """Rows that are in memory already stay as they are: the batch on its way may have changed them."""
        for directory in path.directories:
            self._rows.setdefault((DIR, (directory.id,)), directory)
        for entry in path.entries:
            self._rows.setdefault((ENTRY, (entry.parent, entry.name)), entry)

    def merge(self, changed: dict[RowKey, Any]) -> None:
        """These rows are durable now. They count as used last."""
        rows = self._rows
        for wanted, row in changed.items():
            rows.pop(wanted, None)
            rows[wanted] = row

    def shrink(self) -> None:
        """Forget the rows that came or changed longest ago, where there are too many. Only between batches."""
        surplus = len(self._rows) - self._rows_max
        if surplus > 0:
            for wanted in list(islice(self._rows, surplus + self._rows_max // 8)):
                del self._rows[wanted]
