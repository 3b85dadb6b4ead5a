"""What a table is: its name in the stores, its rows, its key. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Key = tuple[Any, ...]

R = TypeVar("R", bound=tuple[Any, ...])


@dataclass(frozen=True, eq=False)
class Table(Generic[R]):
    """A table: its name in the stores, its row, how many leading columns are the key, truth or scratch."""

    name: str
    row: type[R]
    key: int = 1
    order: tuple[str, ...] = ()
    """The columns of the stores' primary key, in order, where that is not simply the key."""
    truth: bool = True

    def key_of(self, row: R) -> Key:
        """The leading columns of *row* that are its key."""
        return row[: self.key]

    @property
    def stored_key(self) -> tuple[str, ...]:
        """The columns of the stores' primary key."""
        return self.order or self.row._fields[: self.key]  # type: ignore[attr-defined]
