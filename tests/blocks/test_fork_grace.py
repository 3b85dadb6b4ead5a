"""Blocks that another copy of this journal may still name: the sweeper and `gc` keep them for the grace period."""

from __future__ import annotations

from backends.base import crc32c_of
from gateway.blocks.maintenance.gc import collect
from gateway.blocks.maintenance.sweeper import Sweeper
from gateway.blocks.types import block_path
from gateway.crypto.sealing import new_block_id
from gateway.journal.session_commands import EndSession
from gateway.journal.site_clock import SiteClock, clock_reader
from gateway.journal.whereabouts import FORK_PIN
from tests.blocks.site import Site


async def left(site: Site, session: int) -> None:
    """A block of *session* that this journal does not name."""
    await site.places[0].put(block_path(new_block_id(session)), [b"left"], crc32c_of([b"left"]))


def sweeper(site: Site, grace_seconds: float) -> Sweeper:
    return Sweeper(site.store, site.worker_journal, site.backends, timing=site.timing, fork_grace_seconds=grace_seconds)


async def test_the_blocks_of_an_unseen_session_stay_until_the_grace_period_is_over(site: Site) -> None:
    client = site.client()
    await left(site, client.session)
    site.clients.remove(client)
    site.committer.run(EndSession(client.session, seen=False))
    while await sweeper(site, 3_600).step():
        pass
    assert len(await site.stored()) == 1
    while await sweeper(site, 0).step():
        pass
    assert await site.stored() == {}


async def test_gc_leaves_the_blocks_of_unknown_sessions_alone_while_another_copy_may_name_them(site: Site) -> None:
    await left(site, site.journal.session + 1_000)
    database = site._sqlite
    now_ns = SiteClock(site.store.query, clock_reader(site.timing.clock)).now_ns()
    database.pin(f"{FORK_PIN} 7", 7, now_ns + 3_600 * 10**9, now_ns)
    await collect(site.store, site.worker_journal, site.backends, site.workers, site.timing)
    assert len(await site.stored()) == 1
    database.pin(f"{FORK_PIN} 7", 7, now_ns - 1, now_ns)
    await collect(site.store, site.worker_journal, site.backends, site.workers, site.timing)
    assert await site.stored() == {}
