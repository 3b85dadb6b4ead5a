"""Expiry: multipart uploads that nobody can come back to, or came back to, end without their clients.

Those of a bucket that is gone are cut off at once. A bucket may have a million of them, and goes all the same with one
command; what is left to do stands in its row of `gone` until it is done.

**Why a kill at any point loses none.** The record that takes the bucket away makes that row, with how many uploads were
open: both are durable or neither is, and from there on no client reaches these uploads, since by the name it finds no
bucket, or one with a greater id than theirs. Each slice ends its uploads, has their parts wait to be dropped, and
lowers that number in one record; the row goes with the slice that brings it to none. What this worker remembers is only
how far it has come: one that starts again begins at the front, and an upload that has ended is passed over.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway import errors, failpoints
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Tables, WorkerJournal
from gateway.journal.columns import UploadAt
from gateway.journal.site_clock import SiteClock, moments
from gateway.namespace.commands.uploads import AbortUpload, CutUploadsOff
from gateway.namespace.version_ids import spell
from gateway.timing import Timing

UPLOADS = 100
LOOKED_AT = 250
"""Uploads that one slice looks at, and may cut off: each has its row, and one for its parts."""
ROOT = 0
"""No user's id: the command is the site's own."""


class _Place(NamedTuple):
    """How far the cutting off has come: behind this upload of this bucket, or of one with a greater id."""

    bucket: int = 0
    key: bytes = b""
    upload: int = 0


class Expiry(Worker):
    """Ends open uploads whose bucket is gone, and those that are older than a while."""

    name = "expiry"

    def __init__(self, store: Tables, journal: WorkerJournal, *, timing: Timing, expire_seconds: float) -> None:
        super().__init__(store, timing)
        self._journal = journal
        self._site_clock = SiteClock(store.query, moments(timing.clock))
        self._place = _Place()
        self.expire_seconds = expire_seconds
        """May be changed at any time."""

    async def step(self) -> bool:
        return await self._cut_off() or await self._abort()

    async def _cut_off(self) -> bool:
        """A slice of the uploads of the first bucket that is gone; False behind the last one's last."""
        buckets = self.store.query(
            "SELECT id, name, before FROM gone WHERE id >= ? ORDER BY id LIMIT 1", (self._place.bucket,)
        )
        if not buckets:
            self._place = _Place()
            return False
        ((bucket, name, before),) = buckets
        _, *behind = self._place if self._place.bucket == bucket else _Place()
        # the name may be another bucket's, with uploads of its own: they are stepped over, in slices as well
        rows = self.store.query(
            "SELECT key, id FROM upload WHERE bucket = ? AND state = 0 AND (key, id) > (?, ?) ORDER BY key, id LIMIT ?",
            (name, *behind, LOOKED_AT),
        )
        found = tuple(UploadAt(key, upload) for key, upload in rows if bucket < upload < before)
        if found:
            failpoints.reach("uploads-ready")
            await self._journal.send(CutUploadsOff(bucket, found))
        self._place = _Place(bucket, *rows[-1]) if len(rows) == LOOKED_AT else _Place(bucket + 1)
        return True

    async def _abort(self) -> bool:
        """Abort some that nobody came back to, as a client would."""
        rows = self.store.query(
            "SELECT bucket, key, id FROM upload WHERE state = 0 AND site_ns < ? ORDER BY site_ns LIMIT ?",
            (self._site_clock.now_ns() - int(self.expire_seconds * 1e9), UPLOADS),
        )
        ended = 0
        for bucket, key, upload in rows:
            try:
                await self._journal.send(AbortUpload(bucket, key, ROOT, True, spell(upload)))
                ended += 1
            except errors.NotFound:
                continue  # it ended meanwhile, or its bucket went
        return ended > 0
