"""A new site for each test, opened in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.engine.engine import Engine
from gateway.engine.types import Caller
from gateway.site.site import Site
from gateway.timing import parse_timing

TIMING = parse_timing("journal.beat_seconds=0.02")
"""What was let go of is taken apart once the session has said that it reads no more of it."""


@pytest.fixture
async def site(new_folder: Path) -> AsyncIterator[Site]:
    async with await Site.open(new_folder, timing=TIMING) as opened:
        yield opened


@pytest.fixture
def engine(site: Site) -> Engine:
    return site.engine


@pytest.fixture
async def root(site: Site) -> Caller:
    row = site.store.query_one("SELECT k.access_key FROM access_key k JOIN user u ON u.name = k.user WHERE u.root = 1")
    found_root = site.engine.credential(row[0])
    assert found_root is not None
    await site.engine.create_bucket(found_root[1], "tree", "")
    return found_root[1]
