"""The committer's cache of rows. It is always up to date, since no other process writes. Bounded by a number of
rows."""

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
    """Rows as they are durable. A key that is known to have no row is cached as None."""

    def __init__(self, store: Store, rows_max: int = ROWS_MAX) -> None:
        self._store = store
        self._rows: dict[RowKey, Any] = {}
        self._rows_max = rows_max
        self.fresh_id = 1 << 63
        """No durable batch has drawn an id from this one on, so there is no row under such an id. Therefore a command
        that looks inside what it has just made misses no row. Otherwise, of many commands of a batch that make
        directories, each would miss a row under an id that is a different one at its next run, and only one of them
        would succeed per round. `BatchRunner`, which draws the ids, sets this."""

    def get(self, table: Table[R], key: Key) -> R | None:
        row = self._rows.get((table, key), _UNKNOWN)
        if row is _UNKNOWN:
            first = key[0]
            if type(first) is int and first >= self.fresh_id:
                return None
            raise RowsNotLoaded(((table, key),))
        return row  # type: ignore[no-any-return]

    def is_loaded(self, wanted: RowKey) -> bool:
        first = wanted[1][0]
        return wanted in self._rows or (type(first) is int and first >= self.fresh_id)

    def put(self, table: Table[R], row: R) -> None:
        self._rows[(table, row[: table.key])] = row

    def drop(self, table: Table[R], key: Key) -> None:
        self._rows[(table, key)] = None

    def load(self, wanted: Sequence[LoadRequest]) -> None:
        """Load these rows from the store, with one query per table, and one per path."""
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
            rows = self._store.load(table, keys)
            for key in keys:
                self._rows.setdefault((table, key), rows.get(key))

    def _load_descent(self, descent: Descent) -> None:
        """Load the rows of a path downwards, and cache that its first missing name does not exist."""
        path = self._store.descend(descent.parent, descent.names)
        self._add(path)
        count = len(path.entries)
        self._rows.setdefault((DIR, (descent.parent,)), None)
        if count < len(descent.names):
            parent = path.entries[-1].node if count else descent.parent
            self._rows.setdefault((ENTRY, (parent, descent.names[count])), None)

    def _add(self, path: TreePath) -> None:
        """Cache the rows of *path*. Rows that are cached already are left as they are: a batch that is being committed
        may have changed them."""
        for directory in path.directories:
            self._rows.setdefault((DIR, (directory.id,)), directory)
        for entry in path.entries:
            self._rows.setdefault((ENTRY, (entry.parent, entry.name)), entry)

    def merge(self, changed: dict[RowKey, Any]) -> None:
        """Cache the rows *changed*, which are durable now, as those that are evicted last."""
        rows = self._rows
        for wanted, row in changed.items():
            if wanted[0].cached:
                rows.pop(wanted, None)
                rows[wanted] = row

    def shrink(self) -> None:
        """If there are too many rows, evict those that were loaded or changed longest ago. Called only between
        batches."""
        surplus = len(self._rows) - self._rows_max
        if surplus > 0:
            for wanted in list(islice(self._rows, surplus + self._rows_max // 8)):
                del self._rows[wanted]
