"""Expiry: multipart uploads that no client can reach any more, or that no client has touched for long, are ended.

The uploads into a deleted bucket are ended without delay. A bucket may have a million of them, and is deleted by one
command all the same; its row in the table `gone` stays until all are ended.

**Why a kill at any point loses none.** The record that deletes the bucket makes that row, which says how many uploads
were open. So both are durable or neither is. From there on no client reaches these uploads: by the name it finds no
bucket, or a bucket with a greater id than theirs. Each slice ends its uploads, queues the release of their parts, and
lowers that number, all in one record; the row is deleted with the slice that brings the number to 0. The worker itself
remembers only how far it has come. One that starts again begins at the front, and skips uploads that have ended.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway import errors, failpoints
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Tables, WorkerJournal
from gateway.journal.columns import UploadAt
from gateway.journal.site_clock import SiteClock, clock_reader
from gateway.namespace.commands.uploads import AbortUpload, CutUploadsOff
from gateway.namespace.version_ids import encode_version_id
from gateway.timing import Timing

UPLOADS = 100
"""Expired uploads that one step aborts."""
LOOKED_AT = 250
"""Uploads of a deleted bucket that one step reads and may end. Each has its own row, and one for its parts."""
ROOT = 0
"""No user's id: the command is sent by the site itself."""


class _Cursor(NamedTuple):
    """How far the uploads of deleted buckets have been ended: up to this upload of this bucket."""

    bucket: int = 0
    key: bytes = b""
    upload: int = 0


class Expiry(Worker):
    """Ends open uploads whose bucket is deleted, and those that are older than `expire_seconds`."""

    name = "expiry"

    def __init__(self, store: Tables, journal: WorkerJournal, *, timing: Timing, expire_seconds: float) -> None:
        super().__init__(store, timing)
        self._journal = journal
        self._site_clock = SiteClock(store.query, clock_reader(timing.clock))
        self._cursor = _Cursor()
        self.expire_seconds = expire_seconds
        """The age at which an upload is aborted. May be changed at any time."""

    async def step(self) -> bool:
        return await self._cut_off() or await self._abort()

    async def _cut_off(self) -> bool:
        """End a slice of the uploads of the next deleted bucket. Returns False after the last bucket's last upload."""
        buckets = self.store.query(
            "SELECT id, name, before FROM gone WHERE id >= ? ORDER BY id LIMIT 1", (self._cursor.bucket,)
        )
        if not buckets:
            self._cursor = _Cursor()
            return False
        ((bucket, name, before),) = buckets
        _, *after = self._cursor if self._cursor.bucket == bucket else _Cursor()
        # A newer bucket may have the same name, and uploads of its own: they are skipped, in slices as well.
        rows = self.store.query(
            "SELECT key, id FROM upload WHERE bucket = ? AND state = 0 AND (key, id) > (?, ?) ORDER BY key, id LIMIT ?",
            (name, *after, LOOKED_AT),
        )
        uploads = tuple(UploadAt(key, upload) for key, upload in rows if bucket < upload < before)
        if uploads:
            failpoints.reach("uploads-ready")
            await self._journal.send(CutUploadsOff(bucket, uploads))
        self._cursor = _Cursor(bucket, *rows[-1]) if len(rows) == LOOKED_AT else _Cursor(bucket + 1)
        return True

    async def _abort(self) -> bool:
        """Abort a slice of the expired uploads, as their clients could. Returns whether any was aborted."""
        rows = self.store.query(
            "SELECT bucket, key, id FROM upload WHERE state = 0 AND site_ns < ? ORDER BY site_ns LIMIT ?",
            (self._site_clock.now_ns() - int(self.expire_seconds * 1e9), UPLOADS),
        )
        aborted = 0
        for bucket, key, upload in rows:
            try:
                await self._journal.send(AbortUpload(bucket, key, ROOT, True, encode_version_id(upload)))
                aborted += 1
            except errors.NotFound:
                continue  # it ended meanwhile, or its bucket was deleted
        return aborted > 0
