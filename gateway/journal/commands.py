"""Commands: requests to change the journal.

A command is a small frozen dataclass with an integer tag, derived from `Command`, and a plain synchronous function (its
handler) over rows in memory. The functions live in the packages that they belong to. Each of these packages has a table
of them, and `gateway/site` gives the committer all tables together. A handler looks rows up, refuses by raising an
error of `gateway.errors`, emits records, and returns its answer: values that msgpack can encode, a NamedTuple of them,
or None.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

from gateway.errors import SessionExpired
from gateway.journal import rows as row_lookups
from gateway.journal.apply import apply
from gateway.journal.converters import Converter, converter
from gateway.journal.records import Record
from gateway.journal.records.bytes import ExtentsMoved, PackRewritten, RunMade
from gateway.journal.records.site import FeatureRaised
from gateway.journal.rows import LoadRequest, Overlay, RowKey
from gateway.journal.tables import SITE

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
"""The type of a command's answer."""

Prefetcher = Callable[[Sequence[Any], Overlay], Iterable[RowKey]]
"""Returns the rows that these commands, all of one class, will look up and that are not in memory."""

Weigh = Callable[[Any], int]
"""Returns a command's weight; see `command`."""


class Command(Generic[R_co]):
    """Base of all command classes; `R_co` is the type of the answer. Derived classes are registered by `command`."""

    __slots__ = ()

    TAG: ClassVar[int]
    FREES: ClassVar[bool]
    PREFETCH: ClassVar[Prefetcher | None]
    WEIGHT: ClassVar[Weigh | None]
    ANSWER: ClassVar[Converter | None]
    """Rebuilds the answer from what msgpack decoded. None: the decoded value is the answer."""


COMMAND_CLASSES: dict[int, type[Any]] = {}
"""Every command class by its tag."""


@dataclass_transform(frozen_default=True)
def command(
    tag: int, *, frees: bool = False, prefetch: Prefetcher | None = None, weight: Weigh | None = None
) -> Callable[[type[T]], type[T]]:
    """Make a class a command: a frozen dataclass with slots, registered under *tag*.

    *frees*: the committer accepts the command also while the disk is full, since it frees space.

    *prefetch* returns rows that many such commands will look up and that are not in memory. They are loaded together
    before any of the commands runs. It has no effect except on the time that this takes.

    *weight* returns about how many rows a command looks up, from its fields alone. The committer uses it to bound how
    long it works without a break, and to keep one user's heavy commands from delaying the light ones of others. The
    default is 1: a fixed, small number of rows."""

    def register(cls: type[T]) -> type[T]:
        made: Any = dataclass(frozen=True, slots=True)(cls)
        if tag in COMMAND_CLASSES:
            raise TypeError(f"tag {tag} is taken by {COMMAND_CLASSES[tag].__name__}")
        made.TAG = tag
        made.FREES = frees
        made.PREFETCH = prefetch
        made.WEIGHT = weight
        made.ANSWER = _answer_converter(cls)
        COMMAND_CLASSES[tag] = made
        return made  # type: ignore[no-any-return]

    return register


def _answer_converter(cls: type[Any]) -> Converter | None:
    for base in getattr(cls, "__orig_bases__", ()):
        if typing.get_origin(base) is Command:
            return converter(typing.get_args(base)[0])
    return None


class Tx:
    """One run of a command: rows to look up, records to emit.

    Emitting a record applies it at once, so the command sees its effect. If the command raises, all of it is discarded.

    `at_ns` is the wall clock's time, which people see and which may go back. `site_ns` is the time of the site's clock
    (`site_clock`), by which things expire. `session` is the session that sent the command.
    """

    __slots__ = ("_next_id", "at_ns", "get", "number", "records", "rows", "session", "site_ns")

    def __init__(self, rows: Overlay, *, number: int, next_id: int, at_ns: int, session: int, site_ns: int = 0) -> None:
        self.rows = rows
        self.get = rows.get
        """Return the row of a table and a key, None if there is none. Raises `RowsNotLoaded`."""
        self.number = number
        """The number that the next emitted record will have."""
        self._next_id = next_id
        self.at_ns = at_ns
        self.site_ns = site_ns or at_ns
        self.session = session
        self.records: list[Record] = []

    @property
    def next_id(self) -> int:
        """The id that the next `new_id` will return."""
        return self._next_id

    def prefetch(self, wanted: Sequence[LoadRequest]) -> None:
        """Require that these rows are in memory. Raises one `RowsNotLoaded` with all that are not, so that they are
        loaded together."""
        row_lookups.prefetch(self.rows, wanted)

    def new_id(self) -> int:
        """Draw an id that was never drawn before at this site."""
        drawn = self._next_id
        self._next_id += 1
        return drawn

    def skip_ids_to(self, next_id: int) -> None:
        """Draw ids from *next_id* on, since a new incarnation has begun."""
        self._next_id = max(self._next_id, next_id)

    def need_feature(self, level: int) -> None:
        """Raise the journal's feature level to *level*, if it is lower, so that it may hold records of that level."""
        site = self.get(SITE, (0,))
        if site is not None and site.feature < level:
            self.emit(FeatureRaised(level))

    def emit(self, record: Record) -> None:
        """Apply *record*. Raises `SessionExpired` if it names a block of another session than the one that sent the
        command: that session may have ended, and its unnamed blocks may have been deleted."""
        if isinstance(record, RunMade | ExtentsMoved | PackRewritten):
            for block in (record.block,) if isinstance(record, PackRewritten) else record.blocks:
                if int.from_bytes(block.id[:8], "big") != self.session:
                    raise SessionExpired(self.session)
        apply(record, self.rows, self.number)
        self.records.append(record)
        self.number += 1


Handler = Callable[[Any, Tx], Any]
CommandTable = Mapping[type[Any], Handler]

HEAVY_WEIGHT = 64
"""A command of this weight or more is heavy."""


def weight_of(command: Command[Any]) -> int:
    """Return about how many rows *command* looks up."""
    weigh = type(command).WEIGHT
    if weigh is None:
        return 1
    try:
        return int(weigh(command))
    except (TypeError, ValueError, AttributeError):
        return HEAVY_WEIGHT  # its fields are not of their types; the command will fail, alone
