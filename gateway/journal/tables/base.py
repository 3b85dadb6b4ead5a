"""The description of a table: its name in the stores, its rows, its key. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Key = tuple[Any, ...]

R = TypeVar("R", bound=tuple[Any, ...])


@dataclass(frozen=True, eq=False)
class Table(Generic[R]):
    """A table: its name in the stores, the class of its rows, and how many leading columns are the key."""

    name: str
    row: type[R]
    key: int = 1
    order: tuple[str, ...] = ()
    """The columns of the primary key in the stores, in order, if they differ from the key."""
    truth: bool = True
    """False: the table is scratch."""
    catalog: bool = False
    """Rows change seldom, and processes cache them until the catalog version changes (`sqlite/catalog_version`)."""
    counts: tuple[str, ...] = ()
    """Columns of a catalog table that change often, and that no process caches."""
    cached: bool = True
    """False: the committer keeps no rows of it in memory, since commands only put and drop them and look none up."""

    def key_of(self, row: R) -> Key:
        """Return the leading columns of *row* that are its key."""
        return row[: self.key]

    def same_for_caches(self, before: R | None, after: R | None) -> bool:
        """Whether *before* and *after* differ in no column that a process may cache; None means that there is no
        row."""
        if before is None or after is None:
            return before is after
        zeros = dict.fromkeys(self.counts, 0)
        return bool(before._replace(**zeros) == after._replace(**zeros))  # type: ignore[attr-defined]

    @property
    def stored_key(self) -> tuple[str, ...]:
        """The columns of the primary key in the stores."""
        return self.order or self.row._fields[: self.key]  # type: ignore[attr-defined]
