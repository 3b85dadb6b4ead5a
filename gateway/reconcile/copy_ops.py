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
from gateway.blocks.maintenance.confirmation import ExpectedBlock, confirm_copies
from gateway.blocks.protocols import Covers, Tables, no_fence
from gateway.blocks.types import Target, block_path
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

    def __init__(self, backend_id: int, why: BaseException, *, storing: bool = False) -> None:
        """*why*: what the call raised. *storing*: the call was a put."""
        super().__init__(str(why))
        self.backend_id = backend_id
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
        reads_cheaply: Callable[[int], bool] = lambda backend_id: False,
        covers: Covers = no_fence,
    ) -> None:
        """*reads_cheaply*: whether reading from a backend costs less than a put there. *covers*: see `Covers`."""
        self.covers = covers
        self._store = store
        self._keys = keys
        self._backends = backends
        self._reads_cheaply = reads_cheaply

    async def examine(self, item: WorkItem, backend_id: int, *, allow_open_file: bool = False) -> Buffer | None:
        """Return the whole copy on a backend, verified; None if it is absent or damaged. *allow_open_file*: a small
        copy may be read through a file that is open already. Set it only if the result need not prove that the copy
        still exists. Raises `BackendFailed`."""
        try:
            copy = await self._read_whole(item, backend_id, at_hand=allow_open_file and backend_id not in item.suspects)
            await verify_copy(self._store, self._keys, item.block, item.ring_key, item.crc32c, copy)
        except (backend_errors.NotFound, backend_errors.Corrupted, errors.Corrupted):
            return None
        except backend_errors.BackendError as error:
            raise BackendFailed(backend_id, error) from error
        return copy

    async def _read_whole(self, item: WorkItem, backend_id: int, *, at_hand: bool) -> Buffer:
        """Return all bytes of the copy. *at_hand*: read a small copy without a thread if possible. That may read a file
        which was deleted a while ago and is still open in this process, so it does not prove that the copy exists."""
        backend, key = self._at(backend_id), block_path(item.block)
        copy = backend.get_now(key) if at_hand and item.size <= AT_HAND_BYTES else None
        return copy if copy is not None else await backend.get(key)

    async def absent_from(self, item: WorkItem, backend_ids: Iterable[int]) -> frozenset[int]:
        """Ask each of these backends for the block, and read one copy back whole (`confirm_copies`). Returns those that
        do not have it. Backends that are cheap to read are read first. Raises `BackendFailed` if one cannot be
        asked."""
        order = sorted(backend_ids, key=lambda backend_id: (not self._reads_cheaply(backend_id), backend_id))
        targets = [Target(self._at(backend_id), backend_id) for backend_id in order]
        confirmation = await confirm_copies(ExpectedBlock(item.block, item.size, item.crc32c), targets)
        for backend_id, error in confirmation.failed.items():
            raise BackendFailed(backend_id, error) from error
        return confirmation.absent

    async def _stat(self, item: WorkItem, backend_id: int) -> Stat | None:
        """Return the `Stat` of the copy on a backend; None if there is none of the right size. Raises
        `BackendFailed`."""
        try:
            stat = await self._at(backend_id).stat(block_path(item.block))
        except (backend_errors.NotFound, backend_errors.Corrupted):
            return None
        except backend_errors.BackendError as error:
            raise BackendFailed(backend_id, error) from error
        return stat if stat.size == item.size else None

    async def is_present(self, item: WorkItem, copy: Buffer, backend_id: int) -> bool:
        """Whether *copy* is on a backend already, as far as finding out costs less than a put: by the MD5 that the
        backend reports, or by reading the copy if that is cheap. Raises `BackendFailed`."""
        stat = await self._stat(item, backend_id)
        if stat is None:
            return False
        if stat.md5:
            return stat.md5 == await asyncio.to_thread(_md5, copy)
        return self._reads_cheaply(backend_id) and await self.examine(item, backend_id) is not None

    async def put(
        self, item: WorkItem, copy: Buffer, backend_ids: Iterable[int]
    ) -> tuple[set[int], list[BackendFailed]]:
        """Put *copy* on each of these backends. Returns those that confirmed it, and the failures of the others."""
        wanted = list(backend_ids)
        outcomes = await asyncio.gather(*(self._put(item, copy, backend_id) for backend_id in wanted))
        done = {backend_id for backend_id, outcome in zip(wanted, outcomes, strict=True) if outcome is None}
        return done, [outcome for outcome in outcomes if outcome is not None]

    async def _put(self, item: WorkItem, copy: Buffer, backend_id: int) -> BackendFailed | None:
        try:
            await self._at(backend_id).put(block_path(item.block), [copy], item.crc32c)
        except backend_errors.Corrupted as error:
            return ValueRejected(backend_id, error, storing=True)
        except backend_errors.BackendError as error:
            return BackendFailed(backend_id, error, storing=True)
        except BackendFailed as error:
            return error
        return None

    async def delete(self, item: WorkItem, backend_ids: Iterable[int]) -> None:
        """Delete the block's copies on these backends. Raises `BackendFailed`."""
        for backend_id in backend_ids:
            try:
                await self._at(backend_id).delete(block_path(item.block))
            except backend_errors.BackendError as error:
                raise BackendFailed(backend_id, error) from error

    def _at(self, backend_id: int) -> Backend:
        backend = self._backends.get(backend_id)
        if backend is None:
            raise BackendFailed(backend_id, errors.Unavailable("the config does not name it"))
        return backend


def _md5(copy: Buffer) -> str:
    return hashlib.md5(copy, usedforsecurity=False).hexdigest()
