"""The check of the bytes: every copy of every living block is read, and every frame of what lives in it is opened.

Each copy is checked separately, for what a client would read from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from backends import errors as backend_errors
from backends.base import Backend
from gateway import errors
from gateway.blocks.fsck.findings import FsckReport, Severity
from gateway.blocks.fsck.inventory_check import Mend
from gateway.blocks.fsck.unreachable import Unreachable
from gateway.blocks.protocols import Progress, Tables
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.types import DAMAGED, block_path
from gateway.blocks.verify import verify_copy
from gateway.crypto.sealing import BlockKeys

READ_AT_ONCE = 4
"""Copies that are read at a time."""


class FrameChecker:
    """Reads every copy of every living block."""

    def __init__(
        self,
        store: Tables,
        backends: Mapping[int, Backend],
        keys: BlockKeys,
        report: FsckReport,
        mend: Mend | None,
        unreachable: dict[int, Unreachable],
    ) -> None:
        """*unreachable*: the backends whose inventory failed, by id. Those that fail here are added."""
        self._store = store
        self._backends = backends
        self._keys = keys
        self._report = report
        self._mend = mend
        self._unreachable = unreachable
        self._skipped = frozenset(unreachable)  # all of their blocks are counted as unchecked already
        self._lookup = Lookup(store, backends)
        self._slots = asyncio.Semaphore(READ_AT_ONCE)

    async def check(self, progress: Progress) -> None:
        """Check all copies."""
        (total,) = self._store.query("SELECT count(*) FROM block WHERE died = 0")[0]
        after, done = b"", 0
        while rows := self._store.query(
            "SELECT id, ring_key, crc32c, backends FROM block WHERE id > ? ORDER BY id LIMIT 64", (after,)
        ):
            await asyncio.gather(*(self._check_block(*row) for row in rows))
            after, done = rows[-1][0], done + len(rows)
            progress("frames", min(done, total), total)

    async def _check_block(self, block_id: bytes, ring_key: int, crc32c: int, set_id: int) -> None:
        for backend_id in self._lookup.members(set_id):
            if backend_id in self._skipped:
                continue
            async with self._slots:
                try:
                    await self._check_copy(block_id, ring_key, crc32c, backend_id)
                except (backend_errors.NotFound, KeyError):
                    continue  # the inventory has reported it
                except (backend_errors.Corrupted, errors.Corrupted) as error:
                    why = str(error)
                except backend_errors.BackendError as error:
                    self._record_failure(backend_id, error)
                    continue
                else:
                    continue
            if self._lives(block_id):
                where = f"{block_path(block_id)} on {self._backends[backend_id].name}"
                self._report.add(Severity.WRONG, "block-damaged", where, why)
                if self._mend is not None:
                    await self._mend(block_id, backend_id, DAMAGED)
                    self._report.to_mend.add((block_id, backend_id))

    async def _check_copy(self, block_id: bytes, ring_key: int, crc32c: int, backend_id: int) -> None:
        """Read and verify one copy. Raises if that fails, and `KeyError` for a backend that is not checked."""
        known = self._unreachable.get(backend_id)
        if known is not None and known.is_given_up:
            raise backend_errors.Unavailable(known.why)
        sealed = await self._backends[backend_id].get(block_path(block_id))
        if known is not None:
            known.failed_in_a_row = 0
        frames = await verify_copy(self._store, self._keys, block_id, ring_key, crc32c, sealed)
        self._report.counted["frames"] += frames

    def _record_failure(self, backend_id: int, error: backend_errors.BackendError) -> None:
        """Count a copy that could not be read, which says nothing about the copy."""
        known = self._unreachable.setdefault(backend_id, Unreachable(str(error), failed_in_a_row=0))
        known.blocks += 1
        known.failed_in_a_row += 1

    def _lives(self, block_id: bytes) -> bool:
        return bool(self._store.query("SELECT 1 FROM block WHERE id = ? AND died = 0", (block_id,)))
