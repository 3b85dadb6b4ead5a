"""Uploads that end without their clients: those that nobody touched for long, and those of deleted buckets."""

from __future__ import annotations

import random
import sqlite3

import pytest

from gateway.blocks.fsck.fsck import check_site
from gateway.blocks.maintenance import expiry
from gateway.blocks.maintenance.release import ContentReleaser
from gateway.namespace.commands.buckets import DropBucket, MakeBucket
from gateway.namespace.commands.uploads import CutUploadsOff
from tests.blocks.site import Site

DATA = random.Random(6).randbytes(5 << 20)


async def test_untouched_uploads_expire_and_ended_ones_are_forgotten(site: Site) -> None:
    upload = await site.upload(b"k")
    await site.part(b"k", upload, 1, DATA)
    await site.work()
    assert site.rows("part") == 1
    site.expiry.expire_seconds = 0
    await site.work()
    assert site.rows("part") == 0
    assert site.rows("upload") == 1, "it is remembered a while"
    site.workers.append(ContentReleaser(site.store, site.worker_journal, timing=site.timing, remember_seconds=0))
    await site.work()
    assert site.rows("upload") == 0
    assert await site.stored() == {}


async def leave(site: Site, *uploads: int) -> None:
    """Make uploads with a part each, and have the bucket go."""
    with sqlite3.connect(site.path) as base:
        base.execute("INSERT INTO ring_key VALUES (5, 1, x'', '', 0)")
    base.close()
    for n in uploads:
        await site.part(b"k%d" % n, await site.upload(b"k%d" % n), 1, DATA[:9000])
    await site.journal.send(DropBucket("b", site.user, True, "alice"))


async def test_uploads_into_a_deleted_bucket_are_ended_and_leave_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "LOOKED_AT", 2)
    await leave(site, *range(5))
    assert (site.rows("upload"), site.rows("part"), site.rows("gone")) == (5, 5, 1), "it was not held up"
    while any([await worker.step() for worker in site.workers]):
        assert (await check_site(site.path, site.store, site.backends)).findings == []
    sent = [command for command in site.worker_journal.sent if isinstance(command, CutUploadsOff)]
    assert [len(command.uploads) for command in sent] == [2, 2, 1]
    site.workers.append(ContentReleaser(site.store, site.worker_journal, timing=site.timing, remember_seconds=0))
    await site.work()
    assert {table: site.rows(table) for table in ("upload", "part", "gone", "freed", "run", "block")} == dict.fromkeys(
        ("upload", "part", "gone", "freed", "run", "block"), 0
    )
    assert await site.stored() == {}


async def test_after_a_kill_between_slices_the_next_worker_ends_the_other_uploads(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "LOOKED_AT", 2)
    await leave(site, *range(7))
    for _ in range(4):
        successor = expiry.Expiry(site.store, site.worker_journal, timing=site.timing, expire_seconds=3600)
        assert await successor.step()
        assert (await check_site(site.path, site.store, site.backends)).findings == []
    assert site.rows("gone") == 0
    await site.work()
    assert (site.rows("part"), await site.stored()) == (0, {})


async def test_two_workers_that_end_the_same_uploads_do_no_harm(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "LOOKED_AT", 1)
    await leave(site, *range(3))
    other = expiry.Expiry(site.store, site.worker_journal, timing=site.timing, expire_seconds=3600)
    while any([await other.step(), await site.expiry.step()]):
        pass
    assert site.rows("gone") == 0
    await site.work()
    assert (await check_site(site.path, site.store, site.backends)).findings == []


async def test_uploads_into_a_new_bucket_of_the_same_name_are_skipped(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "LOOKED_AT", 2)
    await leave(site, 4, 5)
    site.committer.run(MakeBucket("b", site.user, "alice", 1, "us-east-1", site.policy))
    uploads = [await site.upload(b"k%d" % n) for n in range(9)]
    etag = await site.part(b"k4", uploads[4], 1, b"new")
    await site.work()
    assert (site.rows("gone"), site.rows("part")) == (0, 1)
    await site.complete(b"k4", uploads[4], [etag])
    assert await site.get(b"k4") == b"new"
    assert (await check_site(site.path, site.store, site.backends)).findings == []


async def test_old_uploads_expire_beside_a_bucket_whose_count_is_damaged(site: Site) -> None:
    with sqlite3.connect(site.path) as base:
        base.execute("INSERT INTO gone VALUES (1, 'never', 2, 7)")
    base.close()
    await leave(site, 1)
    site.committer.run(MakeBucket("b", site.user, "alice", 1, "us-east-1", site.policy))
    await site.upload(b"old")
    site.expiry.expire_seconds = 0
    await site.work()
    assert (await check_site(site.path, site.store, site.backends)).kinds == {"gone-uploads": 1}
    assert site.store.query("SELECT count(*) FROM upload WHERE state = 0") == [(0,)]
