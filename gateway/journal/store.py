"""What the committer needs of a store. SQLite is the embedded one; a store in memory serves tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from gateway.journal.rows import Overlay
from gateway.journal.tables import Key, Table

HASH_BYTES = 32


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
        """Everything that *overlay* changed. What stood before says under which stored key it stands."""
        for wanted, row in overlay.changed.items():
            table = wanted[0]
            before = overlay.before(wanted)
            if before is not None and (row is None or _stored(table, before) != _stored(table, row)):
                self.drops.setdefault(table, []).append(_stored(table, before))
            if row is not None:
                self.puts.setdefault(table, []).append(row)


def _stored(table: Table[Any], row: Any) -> tuple[Any, ...]:
    if not table.order:
        return tuple(row[: table.key])
    return tuple(getattr(row, name) for name in table.order)


class Store(Protocol):
    """Rows by key, a journal, a head. One thread at a time writes; loading may go on beside it."""

    def head(self) -> Head:
        """Where the journal stands."""

    def load(self, table: Table[Any], keys: Sequence[Key]) -> dict[Key, Any]:
        """The rows of these keys; those that do not stand are left out."""

    def write(self, batch: Batch) -> None:
        """Commit *batch*, durably. Raises `DiskFull`, or `Unavailable` where nothing was written."""

    def batches(self, after: int = 0) -> Iterator[JournalRow]:
        """The journal's batches whose first record is behind number *after*, in order."""

    def dump(self, table: Table[Any]) -> Iterable[tuple[Any, ...]]:
        """All rows of a table, in the order of their keys."""

    def close(self) -> None:
        """Let go of the store."""
