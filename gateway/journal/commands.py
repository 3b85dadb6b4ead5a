"""What a command is: a small frozen dataclass with an integer tag, and a plain synchronous function over rows.

The functions live in the rooms that they belong to; each room has a table of them, and the site hands the committer
the sum. A command function looks rows up, refuses by raising one of `gateway.errors`, emits records and returns
its answer (plain values that msgpack knows, or a tuple of them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from gateway.errors import SessionExpired
from gateway.journal.apply import apply
from gateway.journal.records import Record
from gateway.journal.records.bytes import ExtentsMoved, PackRewritten, RunMade
from gateway.journal.records.site import FeatureRaised
from gateway.journal.rows import LoadRequest, Overlay, RowKey
from gateway.journal.rows import prefetch as prefetch_rows
from gateway.journal.tables import SITE

T = TypeVar("T")
R = TypeVar("R", bound=tuple[Any, ...])

Prefetcher = Callable[[Sequence[Any], Overlay], Iterable[RowKey]]

Weigh = Callable[[Any], int]

COMMAND_CLASSES: dict[int, type[Any]] = {}
"""Every command class by its tag."""


@dataclass_transform(frozen_default=True)
def command(
    tag: int, *, frees: bool = False, prefetch: Prefetcher | None = None, weight: Weigh | None = None
) -> Callable[[type[T]], type[T]]:
    """Make a class a command: frozen, slotted, known by *tag*. *frees*: taken also while the disk is all but full.

    *prefetch* returns rows that many such commands will look up and that are not in memory, so that they are loaded
    before any of them runs. It changes nothing but the time that it takes.

    *weight* returns about how many rows a command looks up, from its fields alone: the committer bounds by it how long
    it works without a break, and lets one user's heavy commands not delay the light ones of others. The default is 1:
    a fixed, small number of rows."""

    def register(cls: type[T]) -> type[T]:
        made = dataclass(frozen=True, slots=True)(cls)
        if tag in COMMAND_CLASSES:
            raise TypeError(f"tag {tag} is taken by {COMMAND_CLASSES[tag].__name__}")
        made.TAG = tag  # type: ignore[attr-defined]
        made.FREES = frees  # type: ignore[attr-defined]
        made.PREFETCH = prefetch  # type: ignore[attr-defined]
        made.WEIGHT = weight  # type: ignore[attr-defined]
        COMMAND_CLASSES[tag] = made
        return made

    return register


class Tx:
    """One command's run: rows to look up, records to emit.

    Emitting applies a record at once, so the command sees what it did. All of it is thrown away if the command
    raises. `at_ns` is the wall clock's time, which people see and which may go back; `site_ns` is the time by the
    site's clock (`site_clock`), by which things expire; `session` is the session that asks.
    """

    __slots__ = ("_next_id", "at_ns", "get", "number", "records", "rows", "session", "site_ns")

    def __init__(self, rows: Overlay, *, number: int, next_id: int, at_ns: int, session: int, site_ns: int = 0) -> None:
        self.rows = rows
        self.get = rows.get
        """The row of a table and a key, None if there is none. Raises `RowsNotLoaded`."""
        self.number = number
        """The number that the next emitted record will have."""
        self._next_id = next_id
        self.at_ns = at_ns
        self.site_ns = site_ns or at_ns
        self.session = session
        self.records: list[Record] = []

    @property
    def next_id(self) -> int:
        """The id that the next `new_id` will answer."""
        return self._next_id

    def prefetch(self, wanted: Sequence[LoadRequest]) -> None:
        """Ask for many rows at once, so that what is not in memory is loaded together."""
        prefetch_rows(self.rows, wanted)

    def new_id(self) -> int:
        """A fresh id, never drawn before at this site."""
        drawn = self._next_id
        self._next_id += 1
        return drawn

    def skip_ids_to(self, next_id: int) -> None:
        """Draw from *next_id* on: a new incarnation has begun."""
        self._next_id = max(self._next_id, next_id)

    def need_feature(self, level: int) -> None:
        """Let the journal hold records of this feature level."""
        site = self.get(SITE, (0,))
        if site is not None and site.feature < level:
            self.emit(FeatureRaised(level))

    def emit(self, record: Record) -> None:
        """Apply *record*. Raises `SessionExpired` if it names a block of another session than the one that asks: that
        session may have ended, and its unnamed blocks be gone."""
        if isinstance(record, RunMade | ExtentsMoved | PackRewritten):
            for block in (record.block,) if isinstance(record, PackRewritten) else record.blocks:
                if int.from_bytes(block.id[:8], "big") != self.session:
                    raise SessionExpired(self.session)
        apply(record, self.rows, self.number)
        self.records.append(record)
        self.number += 1


Handler = Callable[[Any, Tx], Any]
CommandTable = Mapping[type[Any], Handler]
