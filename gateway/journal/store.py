"""What the committer needs of a store. SQLite is the embedded one; a store in memory serves tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import product
from typing import Any, NamedTuple, Protocol

from gateway.journal.rows import Overlay, RowsNotLoaded
from gateway.journal.tables import Dir, Entry, Key, Table

HASH_BYTES = 32


VALUES = {"dead": (0, 1), "state": (0, 1, 2)}
"""The values of columns that stand in a stored key without being part of the key."""


class Head(NamedTuple):
    """Where the journal stands."""

    number: int
    """Of the last record; 0 before the first."""
    hash: bytes
    """The running hash over all batches."""
    at_ns: int
    next_id: int


EMPTY_HEAD = Head(0, bytes(HASH_BYTES), 0, 1)  # 0 is no id, so the first drawn is 1


def running_hash(before: bytes, packed: bytes) -> bytes:
    """BLAKE2b-256 over the hash before it and the packed records of the batch."""
    return blake2b(before + packed, digest_size=HASH_BYTES).digest()


class JournalRow(NamedTuple):
    """One batch as the journal keeps it."""

    number: int
    """Of its first record."""
    records_count: int
    at_ns: int
    next_id: int
    hash: bytes
    records: bytes
    """packed: list of records."""


@dataclass
class Batch:
    """What one commit writes, all of it or nothing. Rows that nobody changed do not occur."""

    head: Head
    journal: JournalRow | None
    puts: dict[Table[Any], list[tuple[Any, ...]]] = field(default_factory=dict)
    drops: dict[Table[Any], list[Key]] = field(default_factory=dict)
    """Stored keys (`Table.stored_key`) of rows to delete; they go before the puts."""

    def add_changes(self, overlay: Overlay) -> None:
        """Everything that *overlay* changed. A row that stands under another stored key now, or no more, is dropped
        there; where nobody looked it up before, wherever it may have stood."""
        for wanted, row in overlay.changed.items():
            table, key = wanted
            if row is not None:
                self.puts.setdefault(table, []).append(row)
                if not table.order:
                    continue
            now = None if row is None else _stored(table, row)
            gone = [stored for stored in _stood(overlay, table, key) if stored != now]
            if gone:
                self.drops.setdefault(table, []).extend(gone)


def _stored(table: Table[Any], row: Any) -> Key:
    if not table.order:
        return tuple(row[: table.key])
    return tuple(getattr(row, name) for name in table.order)


def _stood(overlay: Overlay, table: Table[Any], key: Key) -> list[Key]:
    """The stored keys under which a row may have stood below *overlay*."""
    try:
        before = overlay.before((table, key))
    except RowsNotLoaded:
        known = dict(zip(table.row._fields, key, strict=False))
        return list(product(*((known[name],) if name in known else VALUES[name] for name in table.stored_key)))
    return [] if before is None else [_stored(table, before)]


class TreePath(NamedTuple):
    """The rows of directories one below the other, in the order in which the path was followed."""

    directories: list[Dir]
    entries: list[Entry]


class Store(Protocol):
    """Rows by key, a journal, a head. One thread at a time writes; loading may go on beside it."""

    def head(self) -> Head:
        """Where the journal stands."""

    def load(self, table: Table[Any], keys: Sequence[Key]) -> dict[Key, Any]:
        """The rows of these keys; those that do not stand are left out."""

    def descend(self, parent: int, names: Sequence[bytes]) -> TreePath:
        """The rows of `rows.Descent`, as far as the names exist."""

    def climb(self, node: int, levels: int) -> TreePath:
        """The rows of `rows.Climb`: *node* and at most *levels* directories above it."""

    def write(self, batch: Batch) -> None:
        """Commit *batch*, durably. Raises `DiskFull`, or `Unavailable` where nothing was written."""

    def batches(self, after: int = 0) -> Iterator[JournalRow]:
        """The journal's batches whose first record is behind number *after*, in order."""

    def dump(self, table: Table[Any]) -> Iterable[tuple[Any, ...]]:
        """All rows of a table, in the order of their keys."""

    def close(self) -> None:
        """Let go of the store."""
