"""Which blocks would still have a copy without a given backend. The other backends are asked, and not only the journal.

The journal names a copy because a backend once confirmed it. Here each block of the backend is looked for (`stat`) on
its other backends, until one of them has it with its size. Bytes are not read: `fsck --read` does that.

Memory holds one slice of blocks, and the ids of the blocks that no other backend has. A backend that cannot be asked
once is not asked again; blocks that only such a backend may have are counted as unchecked.
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
"""Blocks that are read from the journal at a time."""
AT_ONCE = 32
"""Blocks that are looked for at a time."""


@dataclass
class RemainingCopies:
    """The blocks of a backend that the journal also names on others."""

    present: int = 0
    """How many of them another backend has."""
    absent: list[bytes] = field(default_factory=list)
    """The ids of those that no other backend has, although the journal names them there."""
    unchecked: int = 0
    """How many of them no other backend was found to have, while at least one that may have it could not be asked."""
    away: dict[str, str] = field(default_factory=dict)
    """The backends that could not be asked, by name, and why."""


async def check_remaining_copies(
    store: Tables,
    backends: Mapping[int, Backend],
    backend_id: int,
    excluded: Collection[int],
    progress: Progress = no_progress,
) -> RemainingCopies:
    """Look for every block of the backend *backend_id* on the other backends that should have it.

    *excluded*: the ids of backends that do not count as others, including *backend_id*. Blocks that the journal names
    on no other backend are skipped."""
    return await _Check(store, backends, backend_id, frozenset(excluded), progress).run()


class _Check:
    def __init__(
        self,
        store: Tables,
        backends: Mapping[int, Backend],
        backend_id: int,
        excluded: frozenset[int],
        progress: Progress,
    ) -> None:
        self._store = store
        self._backends = backends
        self._lookup = Lookup(store, backends)
        self._excluded = excluded
        self._progress = progress
        self._names = dict(store.query("SELECT id, name FROM backend"))
        self._sets = [each for each in sets_containing(store, backend_id) if self._others(each)]
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._away: set[int] = set()
        self._result = RemainingCopies()

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
        return self._result

    def _others(self, set_id: int) -> list[int]:
        """Return the members of a set that count as others."""
        return [each for each in self._lookup.members(set_id) if each not in self._excluded]

    async def _check(self, block_id: bytes, size: int, set_id: int) -> None:
        """Look for one block on its other backends, and count it."""
        async with self._slots:
            answers = set[bool | None]()
            for backend_id in self._others(set_id):
                answers.add(await self._has(backend_id, block_id, size))
                if True in answers:
                    self._result.present += 1
                    return
        if not self._store.query("SELECT 1 FROM block WHERE id = ? AND backends = ? AND died = 0", (block_id, set_id)):
            return  # it died or was moved meanwhile
        if None in answers:
            self._result.unchecked += 1
        else:
            self._result.absent.append(block_id)

    async def _has(self, backend_id: int, block_id: bytes, size: int) -> bool | None:
        """Return whether the backend has the block; None if it cannot be asked."""
        if backend_id in self._away:
            return None
        backend = self._backends.get(backend_id)
        try:
            if backend is None:
                raise backend_errors.Unavailable("the config does not name it")
            return (await backend.stat(block_path(block_id))).size == size
        except (backend_errors.NotFound, backend_errors.Corrupted):
            return False
        except backend_errors.BackendError as error:
            self._away.add(backend_id)
            self._result.away[self._names[backend_id]] = str(error)
            return None
