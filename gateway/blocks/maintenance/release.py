"""Releasing the content of deleted files, parts and uploads: their reference counts are lowered in slices.

So deleting 5 TiB keeps nobody waiting. A reader may still be reading a body whose file is deleted, and looks its runs
up one by one. So the releaser reads up to `COHORT` queued releases, and notes the number of the journal's last record.
It releases them once the horizon of every live session is at least that number: a look-up that begins after that finds
no file that refers to them. Backups do not delay this, since a backup has rows of its own; the sweeper keeps the blocks
that those rows name.

The queue is the table `freed` (`RELEASE_QUEUE`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from gateway import failpoints
from gateway.blocks.commands.release_content import ReleaseContent
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Tables, WorkerJournal
from gateway.journal.site_clock import SiteClock, clock_reader
from gateway.journal.tables import Shape
from gateway.namespace.commands.uploads import DropParts, ForgetUpload
from gateway.timing import Timing

COHORT = 20_000
"""Queued releases that wait together for readers."""
GATHERED = 500
"""How many of them one query reads."""
SLICE_WEIGHT = 500
"""About how many rows one command touches."""
EXTENT_PACKED_BYTES = 30
"""About how many bytes an extent takes in a run's row."""
PIECES = 64
"""How many of a body's runs one command releases."""
PARTS = 500
"""How many parts of an ended upload one command drops."""
UPLOADS = 100
"""How many ended uploads one step forgets."""


class _Queued(NamedTuple):
    """A row of the queue."""

    id: int
    shape: int
    weight: int
    """About how many rows its release touches."""

    @property
    def is_upload(self) -> bool:
        """Whether it is an ended upload, whose parts are to be dropped, and not content."""
        return self.shape == Shape.NONE


class ContentReleaser(Worker):
    """Releases the content of what was deleted, and forgets uploads that ended long ago."""

    name = "releaser"

    def __init__(self, store: Tables, journal: WorkerJournal, *, timing: Timing, remember_seconds: float) -> None:
        """*remember_seconds*: how long a completed upload is remembered, so that a repeated completion is answered."""
        super().__init__(store, timing)
        self._journal = journal
        self._site_clock = SiteClock(store.query, clock_reader(timing.clock))
        self._remember_ns = int(remember_seconds * 1e9)
        self._cohort: deque[_Queued] = deque()
        self._cohort_at = 0  # the record number at which all of the cohort were in the queue

    async def step(self) -> bool:
        if not self._cohort:
            await self._gather()
        if not self._cohort:
            self.held_back = False
            return await self._forget_uploads()
        self.held_back = await self._journal.horizons(pins=False) < self._cohort_at
        if self.held_back:
            return False
        if self._cohort[0].is_upload:
            await self._drop_parts(self._cohort.popleft())
        else:
            await self._release()
        return True

    async def _gather(self) -> None:
        """Read the next cohort in slices."""
        while len(self._cohort) < COHORT:
            with self.store.snapshot():
                self._cohort_at = self.store.head()
                rows = self.store.query(
                    "SELECT f.id, f.shape, length(r.extents) FROM freed f "
                    "LEFT JOIN run r ON r.id = CASE WHEN f.shape = 1 THEN f.content END "
                    "WHERE f.id > ? ORDER BY f.id LIMIT ?",
                    (self._cohort[-1].id if self._cohort else 0, GATHERED),
                )
            for queued, shape, packed_bytes in rows:
                weight = PIECES * 4 if shape == Shape.BODY else 1 + (packed_bytes or 0) // EXTENT_PACKED_BYTES
                self._cohort.append(_Queued(queued, shape, weight))
            if len(rows) < GATHERED:
                return
            await asyncio.sleep(0)

    async def _release(self) -> None:
        """Release the next slice of the cohort."""
        released: list[_Queued] = []
        weight = 0
        while self._cohort and not self._cohort[0].is_upload and (not released or weight < SLICE_WEIGHT):
            released.append(self._cohort.popleft())
            weight += released[-1].weight
        failpoints.reach("release-ready")
        await self._journal.send(ReleaseContent(tuple((each.id, PIECES) for each in released)))
        failpoints.reach("release-done")
        self._requeue([each for each in released if each.shape == Shape.BODY])

    def _requeue(self, released: list[_Queued]) -> None:
        """Put those that are still in the queue in front: a body is released in several slices."""
        for each in released:
            if self.store.query("SELECT 1 FROM freed WHERE id = ?", (each.id,)):
                self._cohort.appendleft(each)

    async def _drop_parts(self, queued: _Queued) -> None:
        """Drop a slice of an ended upload's parts, each of which queues a release of its own content."""
        uploads = self.store.query(
            "SELECT bucket, key FROM upload WHERE id = ? AND state > 0 AND parts > 0", (queued.id,)
        )
        if not uploads:
            return
        ((bucket, key),) = uploads
        rows = self.store.query("SELECT number FROM part WHERE upload = ? ORDER BY number LIMIT ?", (queued.id, PARTS))
        failpoints.reach("parts-ready")
        left = await self._journal.send(DropParts(bucket, key, queued.id, tuple(number for (number,) in rows)))
        if left:
            self._cohort.appendleft(queued)

    async def _forget_uploads(self) -> bool:
        """Forget a slice of the uploads that ended long ago and have no parts. Returns whether there were any."""
        rows = self.store.query(
            "SELECT bucket, key, id FROM upload WHERE state > 0 AND site_ns < ? AND parts = 0 LIMIT ?",
            (self._site_clock.now_ns() - self._remember_ns, UPLOADS),
        )
        for bucket, key, upload in rows:
            await self._journal.send(ForgetUpload(bucket, key, upload))
        return bool(rows)
