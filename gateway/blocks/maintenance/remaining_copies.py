"""Which blocks would still have a copy if a backend were gone: the others are asked, not believed.

The journal names a copy because a backend once confirmed it. Here each block of the backend is asked for (`stat`) on
its other backends, until one has it in its size. Bytes are not read: `fsck --read` does that.

Memory holds one slice of blocks, and the ids of those that nobody else has. A backend that does not answer is not asked
again; blocks that only such a one could have are counted as unchecked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from backends import errors as backend_errors
from backends.base import Backend
from gateway.blocks.maintenance.inventory import sets_containing
from gateway.blocks.protocols import Progress, Tables, no_progress
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.types import block_path

SLICE = 256
"""Blocks that are looked up at a time."""
AT_ONCE = 32
"""Blocks that are asked for at a time."""


@dataclass
class RemainingCopies:
    """What was found out about the blocks of a backend that the journal also names elsewhere."""

    present: int = 0
    """Blocks that another backend has."""
    absent: list[bytes] = field(default_factory=list)
    """Blocks that no other backend has, although the journal names them there."""
    unchecked: int = 0
    """Blocks that no other backend was seen to have, while at least one that should could not be asked."""
    away: dict[str, str] = field(default_factory=dict)
    """Backends that could not be asked, by name, and why."""


async def check_remaining_copies(
    store: Tables,
    backends: Mapping[int, Backend],
    place: int,
    gone: Collection[int],
    progress: Progress = no_progress,
) -> RemainingCopies:
    """Ask for every block of the backend whose id is *place* on the others that should have it. *gone*: backends that
    do not count, *place* among them. Blocks that lie on nothing else are passed over."""
    return await _Check(store, backends, place, frozenset(gone), progress).run()


class _Check:
    """One run of it."""

    def __init__(
        self, store: Tables, backends: Mapping[int, Backend], place: int, gone: frozenset[int], progress: Progress
    ) -> None:
        self._store = store
        self._backends = backends
        self._lookup = Lookup(store, backends)
        self._gone = gone
        self._progress = progress
        self._names = dict(store.query("SELECT id, name FROM backend"))
        self._sets = [each for each in sets_containing(store, place) if self._others(each)]
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._away: set[int] = set()
        self._found = RemainingCopies()

    async def run(self) -> RemainingCopies:
        marks = ", ".join("?" * len(self._sets))
        ((total,),) = self._store.query(
            f"SELECT count(*) FROM block WHERE backends IN ({marks}) AND died = 0", self._sets
        )
        after, done = b"", 0
        while rows := self._store.query(
            f"SELECT id, size, backends FROM block WHERE id > ? AND backends IN ({marks}) AND died = 0 "
            "ORDER BY id LIMIT ?",
            (after, *self._sets, SLICE),
        ):
            await asyncio.gather(*(self._check(*row) for row in rows))
            after, done = rows[-1][0], done + len(rows)
            self._progress("copies elsewhere", min(done, total), total)
        return self._found

    def _others(self, set_id: int) -> list[int]:
        """The members of a set that count."""
        return [each for each in self._lookup.members(set_id) if each not in self._gone]

    async def _check(self, block: bytes, size: int, set_id: int) -> None:
        async with self._slots:
            answers = set[bool | None]()
            for place in self._others(set_id):
                answers.add(await self._has(place, block, size))
                if True in answers:
                    self._found.present += 1
                    return
        if not self._store.query("SELECT 1 FROM block WHERE id = ? AND backends = ? AND died = 0", (block, set_id)):
            return  # it died or was moved meanwhile
        if None in answers:
            self._found.unchecked += 1
        else:
            self._found.absent.append(block)

    async def _has(self, place: int, block: bytes, size: int) -> bool | None:
        """Whether the backend has the block; None if it cannot be asked."""
        if place in self._away:
            return None
        backend = self._backends.get(place)
        try:
            if backend is None:
                raise backend_errors.Unavailable("the config does not name it")
            return (await backend.stat(block_path(block))).size == size
        except (backend_errors.NotFound, backend_errors.Corrupted):
            return False
        except backend_errors.BackendError as error:
            self._away.add(place)
            self._found.away[self._names[place]] = str(error)
            return None
