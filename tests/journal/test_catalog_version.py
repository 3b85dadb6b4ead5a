"""The catalog version changes with each commit that changes what processes cache, and with no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.bucket_cache import BucketCache
from gateway.identity.users import AddTenant, AddUser
from gateway.journal.columns import Checksum, pack_list
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.session_commands import COMMANDS as JOURNAL_COMMANDS
from gateway.journal.session_commands import FoundSite, OpenSession
from gateway.journal.sqlite.catalog_version import catalog_version_path
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.namespace.commands.buckets import DropBucket, MakeBucket
from gateway.namespace.commands.objects import DeleteObject, PutObject
from gateway.site.commands import COMMANDS


class Site:
    """A journal with a tenant and a user, its committer, and a reader."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(path)
        self.committer = InlineCommitter(self.store, {**JOURNAL_COMMANDS, **COMMANDS})
        self.run(FoundSite("0" * 32, "here"))
        self.tenant = self.run(AddTenant("default"))
        self.user = self.run(AddUser("root", "default", True, "", b"", ""))
        self.reader = ReadStore(path)

    def run(self, command: Any) -> Any:
        return self.committer.run(command)

    def make_bucket(self, name: str) -> None:
        self.run(MakeBucket(name, self.user, "root", self.tenant, "us-east-1", 1))

    def put(self, key: bytes) -> None:
        checksums = pack_list([Checksum("CRC64NVME", "FULL_OBJECT", "AAAAAAAAAAA=")])
        self.run(PutObject("bucket", key, self.user, True, 0, "0" * 32, (), (), 1, b"", checksums, b""))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "journal.db")
    yield site
    site.reader.close()
    site.store.close()


def test_users_keys_and_buckets_change_the_version(site: Site) -> None:
    versions = [site.reader.catalog_version()]
    for change in (
        lambda: site.make_bucket("bucket"),
        lambda: site.run(AddUser("ada", "default", False, "ADAKEY", b"sealed", "m")),
        lambda: site.run(AddTenant("other")),
        lambda: site.run(DropBucket("bucket", site.user, True, "root")),
    ):
        change()
        versions.append(site.reader.catalog_version())
    assert len(set(versions)) == len(versions)


def test_objects_and_sessions_do_not_change_the_version_although_buckets_count_their_objects(site: Site) -> None:
    site.make_bucket("bucket")
    version = site.reader.catalog_version()
    site.run(OpenSession("worker"))
    site.put(b"a/key")
    site.run(DeleteObject("bucket", b"a/key", site.user, True))
    assert site.reader.catalog_version() == version
    assert site.reader.query_one("SELECT number FROM head")[0] > 0


def test_a_cached_bucket_is_looked_up_again_after_it_was_deleted_or_made_anew(site: Site) -> None:
    cache, counted = BucketCache(site.reader), [0]
    assert cache.find("bucket") is None
    site.make_bucket("bucket")
    first = cache.find("bucket")
    site.reader.steps(counted)
    site.put(b"key")
    assert first is not None
    assert cache.find("bucket") is first
    assert counted[0] == 0, "a bucket was looked up again, although only its counts had changed"
    site.run(DeleteObject("bucket", b"key", site.user, True))
    site.run(DropBucket("bucket", site.user, True, "root"))
    assert cache.find("bucket") is None
    site.make_bucket("bucket")
    again = cache.find("bucket")
    assert again is not None
    assert again.id != first.id


def test_what_is_looked_up_in_a_snapshot_is_not_cached_since_the_snapshot_may_be_old(site: Site) -> None:
    cache = BucketCache(site.reader)
    site.make_bucket("bucket")
    with site.reader.snapshot():
        assert site.reader.head() > 0
        site.run(DropBucket("bucket", site.user, True, "root"))
        assert cache.find("bucket") is not None, "the snapshot is from before the deletion"
    assert cache.find("bucket") is None


def test_a_successor_of_a_committer_that_was_killed_before_it_raised_the_version_raises_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    site = Site(path)
    before = site.reader.catalog_version()
    site.store._catalog.increment = lambda: None  # type: ignore[method-assign]
    site.make_bucket("bucket")
    assert site.reader.catalog_version() == before
    site.store.close()
    successor = SqliteStore(path)
    assert site.reader.catalog_version() != before
    site.reader.close()
    successor.close()


def test_without_a_counter_nothing_is_cached_until_a_committer_makes_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    site = Site(path)
    site.store.close()
    Path(catalog_version_path(str(path))).unlink()
    reader = ReadStore(path)
    assert reader.catalog_version() != reader.catalog_version()
    successor = SqliteStore(path)
    assert reader.catalog_version() == reader.catalog_version()
    reader.close()
    site.reader.close()
    successor.close()
