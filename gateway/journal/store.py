"""The interface of the committer's store, and the batches that it writes. Production uses SQLite; tests also use a
store in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import product
from typing import Any, NamedTuple, Protocol

from gateway.journal.rows import Overlay, RowKey, RowsNotLoaded
from gateway.journal.tables import INLINE_VALUE, Dir, Entry, InlineValue, Key, Table

HASH_BYTES = 32

STORED_KEY_VALUES = {"dead": (0, 1), "state": (0, 1, 2)}
"""The possible values of columns that are part of a stored key but not of the key (`Table.order`)."""


class Head(NamedTuple):
    """The end of the journal at some point."""

    number: int
    """The number of the last record; 0 before the first."""
    hash: bytes
    """The running hash over all batches."""
    at_ns: int
    """The time of the last batch."""
    next_id: int
    """The next id that a command draws."""


EMPTY_HEAD = Head(0, bytes(HASH_BYTES), 0, 1)  # 0 is no id, so the first drawn is 1


def running_hash(before: bytes, packed: bytes) -> bytes:
    """Return BLAKE2b-256 over the hash of the batch before and the packed records of this batch."""
    return blake2b(before + packed, digest_size=HASH_BYTES).digest()


class JournalRow(NamedTuple):
    """One batch: a row of the table `journal`."""

    number: int
    """The number of its first record."""
    records_count: int
    at_ns: int
    next_id: int
    hash: bytes
    records: bytes
    """packed: list of records."""


@dataclass
class Batch:
    """What one commit writes, all of it or nothing. Contains only changed rows."""

    head: Head
    journal: JournalRow | None
    puts: dict[Table[Any], list[tuple[Any, ...]]] = field(default_factory=dict)
    drops: dict[Table[Any], list[Key]] = field(default_factory=dict)
    """Stored keys (`Table.stored_key`) of rows to delete. They are deleted before the puts."""
    catalog_changed: bool = False
    """Whether the rows that processes cache have to be looked up again."""

    @property
    def inline_values(self) -> list[bytes]:
        """The inline values that it stores."""
        return [InlineValue._make(row).value for row in self.puts.get(INLINE_VALUE, ())]

    def add_changes(self, overlay: Overlay) -> None:
        """Add everything that *overlay* changed. A row whose stored key has changed, or that was dropped, is deleted
        under its former stored key; if its former row was never looked up, under every stored key that is possible."""
        for wanted, row in overlay.changed.items():
            table, key = wanted
            if table.catalog and not self.catalog_changed:
                self.catalog_changed = not _same_for_caches(overlay, wanted, row)
            if row is not None:
                self.puts.setdefault(table, []).append(row)
                if not table.order:
                    continue
            new = None if row is None else _stored_key(table, row)
            stale = [former for former in _former_stored_keys(overlay, table, key) if former != new]
            if stale:
                self.drops.setdefault(table, []).extend(stale)


def _same_for_caches(overlay: Overlay, wanted: RowKey, row: Any) -> bool:
    try:
        before = overlay.row_below(wanted)
    except RowsNotLoaded:
        return False
    return wanted[0].same_for_caches(before, row)


def _stored_key(table: Table[Any], row: Any) -> Key:
    if not table.order:
        return tuple(row[: table.key])
    return tuple(getattr(row, name) for name in table.order)


def _former_stored_keys(overlay: Overlay, table: Table[Any], key: Key) -> list[Key]:
    """The stored keys that the row below *overlay* has, or may have if that row is not loaded."""
    try:
        before = overlay.row_below((table, key))
    except RowsNotLoaded:
        known = dict(zip(table.row._fields, key, strict=False))
        return list(
            product(*((known[name],) if name in known else STORED_KEY_VALUES[name] for name in table.stored_key))
        )
    return [] if before is None else [_stored_key(table, before)]


class TreePath(NamedTuple):
    """The rows of a path of directories, in the order in which the path was followed."""

    directories: list[Dir]
    entries: list[Entry]


class Store(Protocol):
    """Rows by key, a journal, a head. One thread at a time writes; others may load rows meanwhile."""

    def head(self) -> Head:
        """The end of the journal."""

    def load(self, table: Table[Any], keys: Sequence[Key]) -> dict[Key, Any]:
        """The rows of these keys. Keys without a row are left out."""

    def descend(self, parent: int, names: Sequence[bytes]) -> TreePath:
        """The rows that a `rows.Descent` names, as far as the names exist."""

    def climb(self, node: int, levels: int) -> TreePath:
        """The rows that a `rows.Climb` names: those of *node* and of at most *levels* directories above it."""

    def write(self, batch: Batch) -> None:
        """Commit *batch* durably. Raises `DiskFull` or `Unavailable` if nothing was written."""

    def batches(self, after: int = 0) -> Iterator[JournalRow]:
        """The batches whose first record comes after number *after*, in order."""

    def dump(self, table: Table[Any]) -> Iterable[tuple[Any, ...]]:
        """All rows of a table, in the order of their keys."""

    def close(self) -> None:
        """Release the store."""
