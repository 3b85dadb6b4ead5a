"""A site that is opened and closed: whatever fails, nothing of it is held on to."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from backends.errors import Misconfigured as Unusable
from backends.local.backend import Local
from gateway.site.site import Site
from gateway.site.storage.block_storage import BlockStorage
from gateway.site.storage.marker_guard import MarkerGuard
from tests.new_sites import new_site
from tests.waiting import until_true


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A site that nobody serves."""
    return new_site(tmp_path / "site")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def fails(*_: Any, **__: Any) -> None:
    raise OSError("broken")


async def test_closing_goes_on_where_a_part_of_it_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = await Site.open(folder)
    (backend,) = site.storage.backends.values()
    monkeypatch.setattr(site.storage.writer, "close", fails)
    with pytest.raises(OSError, match="broken"):
        await site.close()
    assert not site.journal.connected
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        site.store.query("SELECT 1")
    with pytest.raises(Unusable, match="closed"):
        await backend.stat("key")
    assert site._restarting.done()
    await site.close()


async def test_a_backend_that_does_not_close_leaves_the_others_closed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await Site.open(folder)
    (broken,) = site.storage.backends.values()
    other = await Local.open(str(tmp_path / "other"))
    site.storage.backends[1 << 30] = MarkerGuard(other, 1 << 30, seconds=2.0, timing=site.timing)
    close = broken.close
    monkeypatch.setattr(broken, "close", fails)
    with pytest.raises(OSError, match="broken"):
        await site.close()
    with pytest.raises(Unusable, match="closed"):
        await other.stat("key")
    await close()


@pytest.mark.parametrize("step", ["open", "__init__"])
async def test_opening_that_fails_half_way_leaves_nothing_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with await Site.open(folder):  # what is made once a process, is
        pass
    tasks, before = len(asyncio.all_tasks()), descriptors()
    with monkeypatch.context() as broken:
        if step == "open":
            broken.setattr(BlockStorage, "open", fails)
        else:
            broken.setattr("gateway.site.site_view.site_row", lambda rows: 1 / 0)
        with pytest.raises((OSError, ZeroDivisionError)):
            await Site.open(folder)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == tasks
    await until_true(lambda: descriptors() <= before, "the descriptors to be closed, some by threads")
