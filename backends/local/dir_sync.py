"""Deletions made durable together: while one sync runs, the folders of the next gather (natural batching, no timer).

Who deletes a value forgets it afterwards; were the deletion then undone by a power cut, nobody would ever look for the
value again. So a deletion is answered once the folder that it changed is synced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

Sync = Callable[[set[str]], Awaitable[None]]


class DirSyncBatcher:
    """The deletions of one backend. For one event loop."""

    def __init__(self, sync: Sync) -> None:
        """*sync* makes the names in some folders durable."""
        self._sync = sync
        self._folders: set[str] = set()
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def durable(self, folder: str) -> None:
        """Once this returns, a removal in *folder* that was made before it was called is durable."""
        self._folders.add(folder)
        if self._next is None:
            self._next = asyncio.create_task(self._sync_after(self._running))
            self._next.add_done_callback(_taken_note_of)
        await asyncio.shield(self._next)

    async def close(self) -> None:
        """Wait for the syncs under way, whose callers may have gone away."""
        while under_way := [task for task in (self._running, self._next) if task is not None and not task.done()]:
            await asyncio.wait(under_way)

    async def _sync_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        folders, self._folders = self._folders, set()
        await self._sync(folders)


def _taken_note_of(sync: asyncio.Task[None]) -> None:
    """Those who wait hear what went wrong; where all of them have gone away, nobody is left to hear it."""
    if not sync.cancelled():
        sync.exception()
