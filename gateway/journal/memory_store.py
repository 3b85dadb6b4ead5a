"""A store in memory: the reference that the others are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gateway.journal.store import EMPTY_HEAD, Batch, Head, JournalRow
from gateway.journal.tables import TABLES, Key, Table


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
