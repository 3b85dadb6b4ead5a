"""Operations on the copies of one block: reading and verifying a copy, putting it on other backends, deleting strays.

Only a copy that was verified frame by frame is copied on. A new copy counts once its backend has confirmed its CRC32C.
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
"""Blocks of at most this size are read on the event loop, if the backend needs no thread for that."""


class WorkItem(NamedTuple):
    """A block and its row of work, as they were read."""

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
    """A call of a backend failed for a reason that has nothing to do with the block."""

    def __init__(self, place: int, why: BaseException, *, storing: bool = False) -> None:
        """*why*: what the call raised. *storing*: the call was a put."""
        super().__init__(str(why))
        self.place = place
        self.why = why
        self._storing = storing

    @property
    def affects_only_puts(self) -> bool:
        """Whether the backend can still be read and emptied."""
        if isinstance(self.why, backend_errors.ReadOnly):
            return True
        return self._storing and isinstance(self.why, backend_errors.Full | backend_errors.Corrupted)

    @property
    def asked_seconds(self) -> float | None:
        """How long the backend asked to be left alone; None if it did not."""
        return self.why.retry_after_s if isinstance(self.why, backend_errors.BackendError) else None


class ValueRejected(BackendFailed):
    """A backend reports that a value it received differs from its checksum: the fault of the block or of the
    backend."""


class CopyOps:
    """Reads, puts and deletes copies."""

    def __init__(
        self,
        store: Tables,
        keys: BlockKeys,
        backends: Mapping[int, Backend],
        reads_cheaply: Callable[[int], bool] = lambda place: False,
        covers: Covers = no_fence,
    ) -> None:
        """*reads_cheaply*: whether reading from a backend costs less than a put there. *covers*: see `Covers`."""
        self.covers = covers
        self._store = store
        self._keys = keys
        self._backends = backends
        self._reads_cheaply = reads_cheaply

    async def examine(self, task: WorkItem, place: int, *, allow_open_file: bool = False) -> Buffer | None:
        """Return the whole copy on *place*, verified; None if it is absent or damaged. *allow_open_file*: a small copy
        may be read through a file that is open already. Set it only if the result need not prove that the copy still
        exists. Raises `BackendFailed`."""
        try:
            copy = await self._read_whole(task, place, at_hand=allow_open_file and place not in task.suspects)
            await verify_copy(self._store, self._keys, task.block, task.ring_key, task.crc32c, copy)
        except (backend_errors.NotFound, backend_errors.Corrupted, errors.Corrupted):
            return None
        except backend_errors.BackendError as error:
            raise BackendFailed(place, error) from error
        return copy

    async def _read_whole(self, task: WorkItem, place: int, *, at_hand: bool) -> Buffer:
        """Return all bytes of the copy. *at_hand*: read a small copy without a thread if possible. That may read a file
        which was deleted a while ago and is still open in this process, so it does not prove that the copy exists."""
        backend, key = self._at(place), block_path(task.block)
        copy = backend.get_now(key) if at_hand and task.size <= AT_HAND_BYTES else None
        return copy if copy is not None else await backend.get(key)

    async def absent_from(self, task: WorkItem, places: Iterable[int]) -> set[int]:
        """Check each of *places* for the block, and read one copy back whole. Returns those that do not have it.

        A place has the block if it reports the right size and, if it reports an MD5, the MD5 of the copy that was read.
        If the MD5 differs, its copy is read, too, since some servers report something else as the MD5. Places that are
        cheap to read are read first. Raises `BackendFailed` if a place cannot be checked."""
        absent: set[int] = set()
        copy: Buffer | None = None
        for place in sorted(places, key=lambda place: (not self._reads_cheaply(place), place)):
            stat = await self._stat(task, place)
            if stat is None:
                absent.add(place)
                continue
            if copy is not None and (not stat.md5 or stat.md5 == await asyncio.to_thread(_md5, copy)):
                continue
            value = await self.examine(task, place)
            if value is None:
                absent.add(place)
            else:
                copy = value
        return absent

    async def _stat(self, task: WorkItem, place: int) -> Stat | None:
        """Return the `Stat` of the copy on *place*; None if there is none of the right size. Raises `BackendFailed`."""
        try:
            stat = await self._at(place).stat(block_path(task.block))
        except (backend_errors.NotFound, backend_errors.Corrupted):
            return None
        except backend_errors.BackendError as error:
            raise BackendFailed(place, error) from error
        return stat if stat.size == task.size else None

    async def is_present(self, task: WorkItem, copy: Buffer, place: int) -> bool:
        """Whether *copy* is on *place* already, as far as finding out costs less than a put: by the MD5 that the place
        reports, or by reading the copy if that is cheap. Raises `BackendFailed`."""
        stat = await self._stat(task, place)
        if stat is None:
            return False
        if stat.md5:
            return stat.md5 == await asyncio.to_thread(_md5, copy)
        return self._reads_cheaply(place) and await self.examine(task, place) is not None

    async def put(self, task: WorkItem, copy: Buffer, places: Iterable[int]) -> tuple[set[int], list[BackendFailed]]:
        """Put *copy* on each of *places*. Returns the places that confirmed it, and the failures of the others."""
        wanted = list(places)
        outcomes = await asyncio.gather(*(self._put(task, copy, place) for place in wanted))
        done = {place for place, outcome in zip(wanted, outcomes, strict=True) if outcome is None}
        return done, [outcome for outcome in outcomes if outcome is not None]

    async def _put(self, task: WorkItem, copy: Buffer, place: int) -> BackendFailed | None:
        try:
            await self._at(place).put(block_path(task.block), [copy], task.crc32c)
        except backend_errors.Corrupted as error:
            return ValueRejected(place, error, storing=True)
        except backend_errors.BackendError as error:
            return BackendFailed(place, error, storing=True)
        except BackendFailed as error:
            return error
        return None

    async def delete(self, task: WorkItem, places: Iterable[int]) -> None:
        """Delete the block's copies on *places*. Raises `BackendFailed`."""
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
