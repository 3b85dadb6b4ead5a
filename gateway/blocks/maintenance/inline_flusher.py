"""The flusher: it writes inline values to files of their backends, and then drops their rows.

**The crash argument.** A row is dropped only after the put of its file has returned, so after the file is durable. A
kill in between leaves both, with the same bytes, and the next step writes the file once more. The command that drops
rows emits no record: to a replay, a follower and a backup the block is on its backend before and after.

Only values that are a few seconds old are written, so one that is overwritten or deleted sooner never gets a file. If
the backend no longer holds the block according to the journal, the row is left alone: it is an old copy, which the
mover deletes once that is safe (`gateway/reconcile/old_copies.py`). If the journal has forgotten the block, as after
its backend was given up as lost, the row is dropped.

Memory is bounded: a value is read when it is written, and `AT_ONCE` are written at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from backends.base import Backend
from gateway import failpoints
from gateway.blocks.inline.values import InlineValues
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Tables
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.types import block_path
from gateway.timing import Timing

ROWS = 256
"""Rows that one step handles."""
AT_ONCE = 64
"""Files that are written at a time; they share syncs."""

_OLD_VALUES = (
    "SELECT v.block, v.backend, b.backends FROM inline_value v LEFT JOIN block b ON b.id = v.block "
    "WHERE v.number <= ? AND v.block > ? ORDER BY v.block LIMIT ?"
)


class _Row(NamedTuple):
    block: bytes
    backend: int
    set_id: int | None
    """The set that holds the block; None if the journal has forgotten the block."""


class InlineFlusher(Worker):
    """Writes inline values to files."""

    name = "inline flusher"

    def __init__(
        self,
        store: Tables,
        values: InlineValues,
        lookup: Lookup,
        backends: Mapping[int, Backend],
        *,
        timing: Timing,
    ) -> None:
        super().__init__(store, timing)
        self._values = values
        self._lookup = lookup
        self._backends = backends
        self._flush_seconds = timing.inline.flush_seconds
        self._cursor = b""  # how far this pass has come: a block id
        self._flush_upto = -1  # values with a record number of at most this are old enough
        self._sampled_head = -1  # the journal's head at the last sample; the next sample makes it `_flush_upto`
        self._next_sample = 0.0
        self._failed: BaseException | None = None
        """The first error of this pass. It is raised at its end, so that it delays no other value of the pass."""
        self.flushed = 0
        """Values that were written to files so far."""

    async def step(self) -> bool:
        if not self._sample_head() and not self._cursor:
            return False
        rows = [_Row._make(row) for row in self.store.query(_OLD_VALUES, (self._flush_upto, self._cursor, ROWS))]
        self._cursor = rows[-1].block if len(rows) == ROWS else b""
        forgotten = [row.block for row in rows if row.set_id is None]
        if forgotten:
            await self._values.drop_rows(forgotten)
        to_flush = [row for row in rows if self._is_flushable(row)]
        with self._values.flushing(row.block for row in to_flush) as blocks:
            await self._flush([row for row in to_flush if row.block in blocks])
        if self._failed is not None and not self._cursor:
            failed, self._failed = self._failed, None
            raise failed
        return bool(self._cursor)

    def _sample_head(self) -> bool:
        """Sample the journal's head every `flush_seconds`. A value is old enough if it existed at the sample before the
        latest one. Returns whether a sample was taken."""
        now = self._clock.monotonic()
        if now < self._next_sample:
            return False
        self._flush_upto, self._sampled_head = self._sampled_head, self.store.head()
        self._next_sample = now + self._flush_seconds
        return True

    def flush_all(self) -> None:
        """Have the next pass write all values, whatever their age."""
        self._sampled_head, self._next_sample = self.store.head() + 1, 0.0

    def _is_flushable(self, row: _Row) -> bool:
        """Whether the journal says that this backend holds the block, and this process has opened the backend."""
        return (
            row.set_id is not None and row.backend in self._lookup.members(row.set_id) and row.backend in self._backends
        )

    async def _flush(self, rows: Sequence[_Row]) -> None:
        """Write the files of *rows*, and drop those rows whose files are durable. The others wait for the next pass."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def put(row: _Row) -> None:
            async with slots:
                stored = self._values.get(row.block, row.backend)
                if stored is not None:  # otherwise somebody has dropped it since
                    await self._backends[row.backend].put(block_path(row.block), [stored.value], stored.crc32c)

        outcomes = await asyncio.gather(*map(put, rows), return_exceptions=True)
        durable = [row.block for row, outcome in zip(rows, outcomes, strict=True) if outcome is None]
        if durable:
            failpoints.reach("inline-values-flushed")
            await self._values.drop_rows(durable)
            self.flushed += len(durable)
        self._failed = self._failed or next((outcome for outcome in outcomes if outcome is not None), None)
