"""Copies whose file is gone, and which this process can still read since it had them open, do not count as there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backends.base import Backend
from backends.local.backend import Local
from backends.testing.memory import Memory
from gateway.blocks.types import block_path
from gateway.reconcile.commands import SuspectCopy
from tests.reconcile.shores import Shores


@pytest.fixture
async def site(disk_path: Path) -> AsyncIterator[Shores]:
    disk = await Local.open(str(disk_path / "disk"), wal_bytes=0)
    places: list[Backend] = [disk, Memory("b1"), Memory("b2")]
    made = Shores(disk_path, *places)
    yield made
    made.close()
    await disk.close()


async def test_a_copy_that_was_deleted_while_it_was_open_here_is_made_again(site: Shores, disk_path: Path) -> None:
    site.keep("b0", "b1")
    await site.put(b"key", b"x" * 3_000)
    await site.move()
    ((block,),) = site.store.query("SELECT id FROM block")
    path = disk_path / "disk" / block_path(block)
    assert site.places[0].get_now(block_path(block)) is not None
    path.unlink()
    assert site.places[0].get_now(block_path(block)) is not None  # it is still open
    site.committer.run(SuspectCopy(block, site.ids[0], "absent"))
    await site.move()
    assert path.exists()
    assert site.work_rows() == []
