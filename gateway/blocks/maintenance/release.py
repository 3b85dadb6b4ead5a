"""Takedown: what files, parts and uploads let go of loses its counts, in slices: deleting 5 TiB holds nobody up.

A reader may still be on its way through a body whose file is gone, looking its runs up one by one. So freed rows are
taken in cohorts: those that stand at some number, and only once every live session sees at least that number. Who
looks up from then on finds no file that leads to them. Backups do not hold it up: they have rows of their own, and the
sweeper keeps the blocks that those name.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from gateway import failpoints
from gateway.blocks.commands import ReleaseContent
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Tables, WorkerJournal
from gateway.journal.site_clock import SiteClock, moments
from gateway.journal.tables import Shape
from gateway.namespace.commands.uploads import DropParts, ForgetUpload
from gateway.timing import Timing

COHORT = 20_000
"""Freed rows that wait together."""
GATHERED = 500
"""Of which so many are looked up at once."""
SLICE_WEIGHT = 500
"""About how many rows one command touches."""
EXTENT_PACKED_BYTES = 30
"""What an extent takes in a run's row, about."""
PIECES = 64
"""Of a body's runs, how many are taken at once."""
PARTS = 500
UPLOADS = 100


class _Waiting(NamedTuple):
    id: int
    shape: int
    weight: int


class ContentReleaser(Worker):
    """Takes apart what was let go of, and forgets uploads that ended long ago."""

    name = "takedown"

    def __init__(self, store: Tables, journal: WorkerJournal, *, timing: Timing, remember_seconds: float) -> None:
        """*remember_seconds*: how long a completed upload is remembered, so that a repeat gets its answer."""
        super().__init__(store, timing)
        self._journal = journal
        self._site_clock = SiteClock(store.query, moments(timing.clock))
        self._remember_ns = int(remember_seconds * 1e9)
        self._cohort: deque[_Waiting] = deque()
        self._cohort_at = 0

    async def step(self) -> bool:
        if not self._cohort:
            await self._gather()
        if not self._cohort:
            self.held_back = False
            return await self._forget_uploads()
        self.held_back = await self._journal.horizons(pins=False) < self._cohort_at
        if self.held_back:
            return False
        if self._cohort[0].shape == Shape.NONE:
            await self._drop_parts(self._cohort.popleft())
        else:
            await self._take_apart()
        return True

    async def _gather(self) -> None:
        """The next cohort: all that waits, up to a number, looked up in slices."""
        while len(self._cohort) < COHORT:
            with self.store.snapshot():
                self._cohort_at = self.store.head()
                rows = self.store.query(
                    "SELECT f.id, f.shape, length(r.extents) FROM freed f "
                    "LEFT JOIN run r ON r.id = CASE WHEN f.shape = 1 THEN f.content END "
                    "WHERE f.id > ? ORDER BY f.id LIMIT ?",
                    (self._cohort[-1].id if self._cohort else 0, GATHERED),
                )
            for freed, shape, packed_bytes in rows:
                weight = PIECES * 4 if shape == Shape.BODY else 1 + (packed_bytes or 0) // EXTENT_PACKED_BYTES
                self._cohort.append(_Waiting(freed, shape, weight))
            if len(rows) < GATHERED:
                return
            await asyncio.sleep(0)

    async def _take_apart(self) -> None:
        taken: list[_Waiting] = []
        weight = 0
        while self._cohort and self._cohort[0].shape != Shape.NONE and (not taken or weight < SLICE_WEIGHT):
            taken.append(self._cohort.popleft())
            weight += taken[-1].weight
        failpoints.reach("takedown-ready")
        await self._journal.send(ReleaseContent(tuple((each.id, PIECES) for each in taken)))
        failpoints.reach("takedown-done")
        self._again([each for each in taken if each.shape == Shape.BODY])

    def _again(self, taken: list[_Waiting]) -> None:
        """Bodies are taken down in several slices: those that still stand come next."""
        for each in taken:
            if self.store.query("SELECT 1 FROM freed WHERE id = ?", (each.id,)):
                self._cohort.appendleft(each)

    async def _drop_parts(self, freed: _Waiting) -> None:
        """An ended upload's parts, which let go of their contents in turn."""
        found = self.store.query("SELECT bucket, key FROM upload WHERE id = ? AND state > 0 AND parts > 0", (freed.id,))
        if not found:
            return
        ((bucket, key),) = found
        rows = self.store.query("SELECT number FROM part WHERE upload = ? ORDER BY number LIMIT ?", (freed.id, PARTS))
        failpoints.reach("parts-ready")
        left = await self._journal.send(DropParts(bucket, key, freed.id, tuple(number for (number,) in rows)))
        if left:
            self._cohort.appendleft(freed)

    async def _forget_uploads(self) -> bool:
        rows = self.store.query(
            "SELECT bucket, key, id FROM upload WHERE state > 0 AND site_ns < ? AND parts = 0 LIMIT ?",
            (self._site_clock.now_ns() - self._remember_ns, UPLOADS),
        )
        for bucket, key, upload in rows:
            await self._journal.send(ForgetUpload(bucket, key, upload))
        return bool(rows)
