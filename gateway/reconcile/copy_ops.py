"""Copies of one block, byte by byte: fetching one that is good, putting it elsewhere, deleting what nobody names.

What is copied was verified, frame by frame; a copy counts once the backend has confirmed its checksum.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Backend, Buffer, Stat
from gateway import errors
from gateway.blocks.protocols import Covers, Tables, no_fence
from gateway.blocks.types import block_path
from gateway.blocks.verify import verify_copy
from gateway.crypto.sealing import BlockKeys

AT_HAND_BYTES = 256 << 10
"""What is read on the loop, where it needs no thread."""


class Task(NamedTuple):
    """A block with a row of work, as both were read."""

    block: bytes
    due_ns: int
    attempts: int
    suspects: tuple[int, ...]
    strays: tuple[int, ...]
    strays_number: int
    placed_ns: int
    ring_key: int
    size: int
    """Sealed bytes."""
    crc32c: int
    set_id: int
    policy: int
    died: int


class BackendFailed(Exception):
    """A backend does not do what it is asked, whatever the block."""

    def __init__(self, place: int, why: BaseException, *, storing: bool = False) -> None:
        """*storing*: it was asked to store something."""
        super().__init__(str(why))
        self.place = place
        self.why = why
        self._storing = storing

    @property
    def only_storing(self) -> bool:
        """What lies there can still be read and deleted."""
        if isinstance(self.why, backend_errors.ReadOnly):
            return True
        return self._storing and isinstance(self.why, backend_errors.Full | backend_errors.Corrupted)

    @property
    def asked_seconds(self) -> float | None:
        """How long it asked to be left alone, where it did."""
        return self.why.retry_after_s if isinstance(self.why, backend_errors.BackendError) else None


class ValueRejected(BackendFailed):
    """A backend says that what it was sent is not what it was sent: the block's fault, or its own."""


class CopyOps:
    """What touches copies."""

    def __init__(
        self,
        store: Tables,
        keys: BlockKeys,
        backends: Mapping[int, Backend],
        reads_cheaply: Callable[[int], bool] = lambda place: False,
        covers: Covers = no_fence,
    ) -> None:
        """*reads_cheaply*: whether reading from a backend costs less than putting there. *covers*: as of `Covers`."""
        self.covers = covers
        self._store = store
        self._keys = keys
        self._backends = backends
        self._reads_cheaply = reads_cheaply

    async def examine(self, task: Task, place: int, *, alone: bool = False) -> Buffer | None:
        """The whole copy there, verified; None if it is absent or damaged. *alone*: no other copy hangs on what is
        found. Raises `BackendFailed`."""
        try:
            copy = await self._read_whole(task, place, at_hand=alone and place not in task.suspects)
            await verify_copy(self._store, self._keys, task.block, task.ring_key, task.crc32c, copy)
        except (backend_errors.NotFound, backend_errors.Corrupted, errors.Corrupted):
            return None
        except backend_errors.BackendError as error:
            raise BackendFailed(place, error) from error
        return copy

    async def _read_whole(self, task: Task, place: int, *, at_hand: bool) -> Buffer:
        """All that lies there. *at_hand*: what is small is read without a thread where that can be; a file that is open
        here can be read so for a while after it was deleted, and says nothing about whether it stands."""
        backend, key = self._at(place), block_path(task.block)
        found = backend.get_now(key) if at_hand and task.size <= AT_HAND_BYTES else None
        return found if found is not None else await backend.get(key)

    async def absent_from(self, task: Task, places: Iterable[int]) -> set[int]:
        """Ask each of *places* for the block, and read one copy back whole. Answers those that do not have it.

        A place has it if it tells the right size and, where it tells an MD5, that of the copy that was read; where the
        MD5 differs, which says nothing by itself, its copy is read as well. Places that are cheap to read are read
        first. Raises `BackendFailed` if a place cannot be asked."""
        absent: set[int] = set()
        copy: Buffer | None = None
        for place in sorted(places, key=lambda place: (not self._reads_cheaply(place), place)):
            found = await self._stat(task, place)
            if found is None:
                absent.add(place)
                continue
            if copy is not None and (not found.md5 or found.md5 == await asyncio.to_thread(_md5, copy)):
                continue
            read = await self.examine(task, place)
            if read is None:
                absent.add(place)
            else:
                copy = read
        return absent

    async def _stat(self, task: Task, place: int) -> Stat | None:
        """What *place* tells of a value of the right size; None if it has none. Raises `BackendFailed`."""
        try:
            found = await self._at(place).stat(block_path(task.block))
        except (backend_errors.NotFound, backend_errors.Corrupted):
            return None
        except backend_errors.BackendError as error:
            raise BackendFailed(place, error) from error
        return found if found.size == task.size else None

    async def is_present(self, task: Task, copy: Buffer, place: int) -> bool:
        """Whether *copy* stands there already, as far as that can be told for less than putting it costs: by the MD5
        that the place tells, or by reading it where that crosses no line. Raises `BackendFailed`."""
        found = await self._stat(task, place)
        if found is None:
            return False
        if found.md5:
            return found.md5 == await asyncio.to_thread(_md5, copy)
        return self._reads_cheaply(place) and await self.examine(task, place) is not None

    async def put(self, task: Task, copy: Buffer, places: Iterable[int]) -> tuple[set[int], list[BackendFailed]]:
        """Put *copy* on each of *places*. Answers where it stands now, confirmed, and what went wrong elsewhere."""
        wanted = list(places)
        outcomes = await asyncio.gather(*(self._put(task, copy, place) for place in wanted))
        done = {place for place, outcome in zip(wanted, outcomes, strict=True) if outcome is None}
        return done, [outcome for outcome in outcomes if outcome is not None]

    async def _put(self, task: Task, copy: Buffer, place: int) -> BackendFailed | None:
        try:
            await self._at(place).put(block_path(task.block), [copy], task.crc32c)
        except backend_errors.Corrupted as error:
            return ValueRejected(place, error, storing=True)
        except backend_errors.BackendError as error:
            return BackendFailed(place, error, storing=True)
        except BackendFailed as error:
            return error
        return None

    async def delete(self, task: Task, places: Iterable[int]) -> None:
        """Delete what lies there. Raises `BackendFailed`."""
        for place in places:
            try:
                await self._at(place).delete(block_path(task.block))
            except backend_errors.BackendError as error:
                raise BackendFailed(place, error) from error

    def _at(self, place: int) -> Backend:
        backend = self._backends.get(place)
        if backend is None:
            raise BackendFailed(place, errors.Unavailable("the config does not name it"))
        return backend


def _md5(copy: Buffer) -> str:
    return hashlib.md5(copy, usedforsecurity=False).hexdigest()
