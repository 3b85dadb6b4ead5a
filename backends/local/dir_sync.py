"""Make deletions durable in batches: while one sync runs, the folders of the next one gather (no timer).

The caller of a delete forgets the key afterwards. If a power cut then undid the deletion, nobody would ever look for
the value again. So a delete returns only after the folder that it changed is synced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

SyncFolders = Callable[[set[str]], Awaitable[None]]


class DirSyncBatcher:
    """Batches the folder syncs of one backend's deletions. For one event loop."""

    def __init__(self, sync: SyncFolders) -> None:
        """*sync* makes the names in a set of folders durable."""
        self._sync = sync
        self._folders: set[str] = set()
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def make_durable(self, folder: str) -> None:
        """Return once the removals in *folder* that were made before this call are durable."""
        self._folders.add(folder)
        if self._next is None:
            self._next = asyncio.create_task(self._sync_after(self._running))
            self._next.add_done_callback(_retrieve_exception)
        await asyncio.shield(self._next)

    async def close(self) -> None:
        """Wait for the syncs under way, whose callers may have been cancelled."""
        while under_way := [task for task in (self._running, self._next) if task is not None and not task.done()]:
            await asyncio.wait(under_way)

    async def _sync_after(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None and not previous.done():
            await asyncio.wait([previous])
        self._running, self._next = self._next, None
        folders, self._folders = self._folders, set()
        await self._sync(folders)


def _retrieve_exception(sync: asyncio.Task[None]) -> None:
    """Mark the exception of *sync* as retrieved. Its callers get it; where all were cancelled, asyncio would log it."""
    if not sync.cancelled():
        sync.exception()
