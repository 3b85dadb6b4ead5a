"""The interfaces of the journal and of the policies that blocks depend on. No behaviour of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from gateway.journal.commands import Command

R = TypeVar("R")


class WorkerJournal(Protocol):
    """What workers need of the journal's client."""

    async def send(self, command: Command[R], /) -> R:
        """Send a command to the committer. Returns the command's result."""

    async def horizons(self, *, pins: bool = True) -> int:
        """Return the record number at or below which no reader sees what died; 0 while it is unknown.

        Without *pins*, backups are not counted as readers."""

    def reading(self) -> AbstractContextManager[Any]:
        """Hold this process's horizon: nothing that was alive on entry is deleted before the exit."""


class TableReader(Protocol):
    """A read-only store of the journal's tables, as far as look-ups need it."""

    def query(self, statement: str, values: Sequence[Any] = (), /) -> list[Any]:
        """Return all rows of one statement, read in the enclosing snapshot, or in one of its own."""


class Tables(TableReader, Protocol):
    """A read-only store of the journal's tables, as background work needs it."""

    def head(self) -> int:
        """Return the number of the journal's last record."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Read all queries inside the context in one snapshot."""


class WantedBackends(Protocol):
    """What workers need of the policies. `gateway.reconcile.placement_targets.PlacementTargets` implements it."""

    def refresh(self) -> bool:
        """Load the policies in force. Returns False while they are unknown. Call it before each question below."""

    def desired(self, policy: int, held: tuple[int, ...], /) -> frozenset[int]:
        """Return the backends that should hold a block that was written under *policy* and is held by *held*."""

    @property
    def recheck_seconds(self) -> float:
        """How long a copy that is no longer needed is kept before the copies that replace it are verified again."""


Covers = Callable[[int, int], bool]
"""`covers(backend_id, number)`: whether a block that died at record *number* may be deleted on that backend. The
backend's marker must have the journal's fence up to that number; False means not yet."""


def no_fence(backend_id: int, number: int) -> bool:
    """A `Covers` that allows every deletion: for a site that only one process uses."""
    return True


Progress = Callable[[str, int, int], None]
"""`progress(what, done, total)`: called on the event loop as work advances. A *total* of 0 means unknown."""


def no_progress(what: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""
