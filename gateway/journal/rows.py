"""Rows in memory, which commands look up and `apply` changes. Knows no SQL and no store.

A look-up of a row that is not in memory raises `RowsNotLoaded`. The caller of the command then loads the row and runs
the command again. A command that follows a path requests many directories at once (`Descent`, `Climb`), so that it does
not run again for each of them.

An `Overlay` holds the changes of one command, or of one batch, on top of other rows, and can be discarded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gateway.errors import Corrupted
from gateway.journal.tables import Key, Table

R = TypeVar("R", bound=tuple[Any, ...])

LEVELS_MAX = 256
"""The most directories that one `Descent` or `Climb` loads. The rest of a longer path is loaded when the command runs
again."""


@dataclass(frozen=True, slots=True)
class Descent:
    """A request for the rows of a path downwards: the directory *parent*, the entries of *names*, each in the directory
    that the entry before it points at, and these directories."""

    parent: int
    names: tuple[bytes, ...]
    """1 to `LEVELS_MAX` names. A directory's name ends with its slash; the last name may be that of an object."""


@dataclass(frozen=True, slots=True)
class Climb:
    """A request for the rows of a path upwards: the directory *node*, the directories above it, and their entries."""

    node: int


RowKey = tuple[Table[Any], Key]
"""A row is named by its table and its key."""
LoadRequest = RowKey | Descent | Climb
"""A request for rows that a command misses."""


class RowsNotLoaded(Exception):
    """Raised when rows are looked up that are not in memory. `wanted` lists them."""

    def __init__(self, wanted: Iterable[LoadRequest]) -> None:
        super().__init__()
        self.wanted = tuple(wanted)


class Rows(Protocol):
    """Rows by key."""

    def get(self, table: Table[R], key: Key) -> R | None:
        """The row of *key*, None if there is none. Raises `RowsNotLoaded` if that is not in memory."""

    def is_loaded(self, wanted: RowKey) -> bool:
        """Whether `get` would return without `RowsNotLoaded`."""

    def put(self, table: Table[R], row: R) -> None:
        """Insert *row*, or replace the row of the same key."""

    def drop(self, table: Table[R], key: Key) -> None:
        """Delete the row of *key*, if there is one."""


_UNKNOWN: Any = object()


class Overlay:
    """Changes on top of other rows. `changed` maps (table, key) to the row, or to None if it was dropped."""

    __slots__ = ("below", "changed")

    def __init__(self, below: Rows) -> None:
        self.below = below
        self.changed: dict[RowKey, Any] = {}

    def get(self, table: Table[R], key: Key) -> R | None:
        # A PUT looks up some thirty rows, through two overlays: a loop over the overlays is faster than nested calls.
        wanted = (table, key)
        rows: Rows = self
        while type(rows) is Overlay:
            row = rows.changed.get(wanted, _UNKNOWN)
            if row is not _UNKNOWN:
                return row  # type: ignore[no-any-return]
            rows = rows.below
        return rows.get(table, key)

    def is_loaded(self, wanted: RowKey) -> bool:
        """Whether `get` would return without `RowsNotLoaded`."""
        if wanted in self.changed:
            return True
        return self.below.is_loaded(wanted)

    def put(self, table: Table[R], row: R) -> None:
        self.changed[(table, row[: table.key])] = row

    def drop(self, table: Table[R], key: Key) -> None:
        self.changed[(table, key)] = None

    def row_below(self, wanted: RowKey) -> Any:
        """The row as it is without this overlay, None if there is none. Raises `RowsNotLoaded`."""
        return self.below.get(*wanted)

    def rebase(self, below: Rows) -> None:
        """Replace the rows below this overlay by *below*, which must have the same contents."""
        self.below = below

    def merge_into(self, other: Overlay) -> None:
        """Add these changes to those of *other*."""
        other.changed.update(self.changed)


def max_rows(load: LoadRequest) -> int:
    """The most rows that *load* loads."""
    if isinstance(load, Descent):
        return 2 * len(load.names)
    return 2 * LEVELS_MAX if isinstance(load, Climb) else 1


def prefetch(rows: Rows, wanted: Iterable[LoadRequest]) -> None:
    """Require that many rows are in memory. Raises one `RowsNotLoaded` with all that are not. A `Descent` or `Climb`,
    which a caller passes on from another `RowsNotLoaded`, counts as not in memory."""
    missing: list[LoadRequest] = []
    for each in wanted:
        if not isinstance(each, tuple):
            missing.append(each)
            continue
        table, key = each
        try:
            rows.get(table, key)
        except RowsNotLoaded as not_loaded:
            missing.extend(not_loaded.wanted)
    if missing:
        raise RowsNotLoaded(missing)


def require(rows: Rows, table: Table[R], key: Key) -> R:
    """Return the row of *key*, which must exist if the journal is valid. Raises `Corrupted` if there is none."""
    row = rows.get(table, key)
    if row is None:
        raise Corrupted(f"the journal refers to a row that does not exist: {table.name} {key!r}")
    return row
