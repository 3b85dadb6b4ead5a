"""Deletions that are made durable together, and callers who go away meanwhile."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from backends.local.dir_sync import DirSyncBatcher


async def test_a_sync_that_fails_when_all_its_callers_have_gone_is_no_unheard_error() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    go_on = asyncio.Event()

    async def sync(folders: set[str]) -> None:
        await go_on.wait()
        raise OSError("broken")

    removals = DirSyncBatcher(sync)
    callers = [asyncio.create_task(removals.make_durable("a")) for _ in range(2)]
    await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    go_on.set()
    await removals.close()
    del removals, callers, caller
    gc.collect()
    await asyncio.sleep(0)
    assert told == []


async def test_who_still_waits_hears_of_a_sync_that_fails() -> None:
    async def sync(folders: set[str]) -> None:
        raise OSError("broken")

    removals = DirSyncBatcher(sync)
    gone = asyncio.create_task(removals.make_durable("a"))
    stays = asyncio.create_task(removals.make_durable("a"))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(OSError, match="broken"):
        await stays


async def test_closing_waits_for_the_sync_that_begins_behind_the_one_under_way() -> None:
    synced: list[set[str]] = []
    go_on = asyncio.Event()

    async def sync(folders: set[str]) -> None:
        await go_on.wait()
        synced.append(folders)

    removals = DirSyncBatcher(sync)
    first = asyncio.create_task(removals.make_durable("a"))
    await asyncio.sleep(0)
    second = asyncio.create_task(removals.make_durable("b"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(removals.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert synced == [{"a"}, {"b"}]
    await asyncio.gather(first, second)
