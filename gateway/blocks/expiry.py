"""Expiry: multipart uploads that nobody came back to are aborted, as a client would."""

from __future__ import annotations

import time

from gateway import errors
from gateway.blocks.working import Journal, Tables, Worker
from gateway.namespace.uploads import AbortUpload
from gateway.namespace.versions import spell

UPLOADS = 100
ROOT = 0
"""No user's id: the command is the site's own."""


class Expiry(Worker):
    """Aborts open uploads that are older than a while."""

    name = "expiry"

    def __init__(self, store: Tables, journal: Journal, *, expire_seconds: float) -> None:
        super().__init__(store)
        self._journal = journal
        self.expire_seconds = expire_seconds
        """May be changed at any time."""

    async def step(self) -> bool:
        rows = self.store.query(
            "SELECT bucket, key, id FROM upload WHERE state = 0 AND made_ns < ? ORDER BY made_ns LIMIT ?",
            (time.time_ns() - int(self.expire_seconds * 1e9), UPLOADS),
        )
        ended = 0
        for bucket, key, upload in rows:
            try:
                await self._journal.send(AbortUpload(bucket, key, ROOT, True, spell(upload)))
                ended += 1
            except errors.NotFound:
                continue  # completed or aborted meanwhile
        return ended > 0
