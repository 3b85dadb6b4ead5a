"""What the keeper deletes because it is old, while the wall clock is years ahead or behind, and afterwards."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.site_clock import CommitterClock, clock_reader
from gateway.namespace.commands.uploads import AbortUpload
from tests.blocks.site import COMMANDS, TIMING, Site
from tests.clocks import AheadClock

DATA = random.Random(9).randbytes(70_000)
YEARS = 10 * 365 * 24 * 3600 * 10**9
MINUTE = 60 * 10**9


@pytest.fixture
def clock() -> AheadClock:
    return AheadClock()


@pytest.fixture
def kept(tmp_path: Path, clock: AheadClock) -> Iterator[Site]:
    """A site by *clock*, with a committer that keeps the site's clock."""
    site = Site(tmp_path, timing=replace(TIMING, clock=clock))
    site_ns = CommitterClock(site._sqlite, clock_reader(clock)).now_ns
    site.committer = InlineCommitter(site._sqlite, COMMANDS, site_ns, timing=site.timing)
    yield site
    site.close()


@pytest.mark.parametrize("by_ns", [YEARS, -YEARS])
async def test_a_wrong_wall_clock_expires_nothing_and_keeps_nothing_for_years(
    kept: Site, clock: AheadClock, by_ns: int
) -> None:
    site = kept
    open_upload = await site.upload(b"open")
    await site.part(b"open", open_upload, 1, DATA)
    await site.journal.send(AbortUpload("b", b"ended", site.user, True, await site.upload(b"ended")))
    site.end(site.client())
    await site.work()
    assert sessions(site) == [2], "it was listed once, and waits for the last look"
    clock.ahead_seconds = by_ns / 1e9
    await site.work()
    assert (site.rows("upload"), site.rows("part"), sessions(site)) == (2, 1, [2])
    await site.part(b"meanwhile", await site.upload(b"meanwhile"), 1, DATA)
    site.end(site.client())
    await site.work()
    assert (site.rows("upload"), site.rows("part"), sessions(site)) == (3, 2, [2, 2])
    await site.put(b"meanwhile", DATA)
    clock.ahead_seconds = 0.0
    await site.put(b"afterwards", DATA)
    assert abs(modified(site, b"meanwhile") - by_ns - time.time_ns()) < MINUTE, "as the clock was then"
    assert abs(modified(site, b"afterwards") - time.time_ns()) < MINUTE
    await site.work()
    assert (site.rows("upload"), sessions(site)) == (3, [2, 2])
    site.expiry.expire_seconds = 0
    site.sweeper._upload_ns_max = 0
    await site.work()
    assert (site.rows("part"), sessions(site)) == (0, []), "what came and ended meanwhile is of its real age"
    assert site.rows("upload") == 3, "all are remembered a while"
    site.releaser._remember_ns = 0
    await site.work()
    assert site.rows("upload") == 0


def sessions(site: Site) -> list[int]:
    """The states of those that have ended."""
    return [state for (state,) in site.store.query("SELECT state FROM session WHERE state > 0")]


def modified(site: Site, key: bytes) -> int:
    ((at_ns,),) = site.store.query("SELECT modified_ns FROM entry WHERE name = ?", (key,))
    return int(at_ns)
