"""Rows in memory: what commands look up and `apply` changes. Knows no SQL and no store.

A look-up of a row that is not in memory raises `RowsNotLoaded`; the caller of the command loads it and runs the command
again. A command that follows a path asks for many directories at once (`Descent`, `Climb`), so that it is not run
again for each of them.
An overlay holds the changes of one command, or of one batch, above the rows below it, and can be thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gateway.errors import Corrupted
from gateway.journal.tables import Key, Table

R = TypeVar("R", bound=tuple[Any, ...])

LEVELS_MAX = 256
"""The most directories that one `Descent` or `Climb` loads. A longer path is continued when the command runs again."""


@dataclass(frozen=True, slots=True)
class Descent:
    """The rows of a path downwards: the directory *parent*, each of *names* in the directory that the name before it
    points at, and those directories."""

    parent: int
    names: tuple[bytes, ...]
    """1 to `LEVELS_MAX`. A directory's name carries its slash; the last one may be an object's."""


@dataclass(frozen=True, slots=True)
class Climb:
    """The rows of a path upwards: the directory *node*, those above it, and their names."""

    node: int


RowKey = tuple[Table[Any], Key]
"""One row, by its table and key."""
LoadRequest = RowKey | Descent | Climb
"""Rows that a command misses."""


class RowsNotLoaded(Exception):
    """Rows that are not in memory. `wanted` lists them."""

    def __init__(self, wanted: Iterable[LoadRequest]) -> None:
        super().__init__()
        self.wanted = tuple(wanted)


class Rows(Protocol):
    """Rows by key."""

    def get(self, table: Table[R], key: Key) -> R | None:
        """The row, None if there is none. Raises `RowsNotLoaded` if that is not known yet."""

    def knows(self, wanted: RowKey) -> bool:
        """Whether `get` would not raise `RowsNotLoaded`."""

    def put(self, table: Table[R], row: R) -> None:
        """The row stands, instead of one of the same key."""

    def drop(self, table: Table[R], key: Key) -> None:
        """No row of that key stands."""


_UNKNOWN: Any = object()


class Overlay:
    """Changes above other rows. `changed` maps (table, key) to the row, or to None for a dropped one."""

    __slots__ = ("below", "changed")

    def __init__(self, below: Rows) -> None:
        self.below = below
        self.changed: dict[RowKey, Any] = {}

    def get(self, table: Table[R], key: Key) -> R | None:
        # A PUT looks some thirty rows up, through two overlays: so they are walked, not called.
        wanted = (table, key)
        rows: Rows = self
        while type(rows) is Overlay:
            found = rows.changed.get(wanted, _UNKNOWN)
            if found is not _UNKNOWN:
                return found  # type: ignore[no-any-return]
            rows = rows.below
        return rows.get(table, key)

    def knows(self, wanted: RowKey) -> bool:
        """Whether a look-up would not raise `RowsNotLoaded`."""
        if wanted in self.changed:
            return True
        return self.below.knows(wanted)

    def put(self, table: Table[R], row: R) -> None:
        self.changed[(table, row[: table.key])] = row

    def drop(self, table: Table[R], key: Key) -> None:
        self.changed[(table, key)] = None

    def before(self, wanted: RowKey) -> Any:
        """The row below this overlay, None if there is none. Raises `RowsNotLoaded` if that is not known."""
        return self.below.get(*wanted)

    def rebase(self, below: Rows) -> None:
        """Stand above other rows, which have what those below had."""
        self.below = below

    def merge_into(self, other: Overlay) -> None:
        """These changes become the other's."""
        other.changed.update(self.changed)


def rows_in(load: LoadRequest) -> int:
    """The most rows that *load* brings into memory."""
    if isinstance(load, Descent):
        return 2 * len(load.names)
    return 2 * LEVELS_MAX if isinstance(load, Climb) else 1


def prefetch(rows: Rows, wanted: Iterable[LoadRequest]) -> None:
    """Ask for many rows at once. Raises one `RowsNotLoaded` with all that are not in memory. A `Descent` or `Climb`,
    which a caller passes on from another `RowsNotLoaded`, counts as not in memory."""
    missing: list[LoadRequest] = []
    for each in wanted:
        if not isinstance(each, tuple):
            missing.append(each)
            continue
        table, key = each
        try:
            rows.get(table, key)
        except RowsNotLoaded as these:
            missing.extend(these.wanted)
    if missing:
        raise RowsNotLoaded(missing)


def require(rows: Rows, table: Table[R], key: Key) -> R:
    """The row of *key*, which a valid journal has. Raises `Corrupted` if there is none."""
    row = rows.get(table, key)
    if row is None:
        raise Corrupted(f"the journal speaks of a row that is not there: {table.name} {key!r}")
    return row
