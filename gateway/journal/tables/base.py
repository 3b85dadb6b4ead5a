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

    def key_of(self, row: R) -> Key:
        """Return the leading columns of *row* that are its key."""
        return row[: self.key]

    @property
    def stored_key(self) -> tuple[str, ...]:
        """The columns of the primary key in the stores."""
        return self.order or self.row._fields[: self.key]  # type: ignore[attr-defined]
