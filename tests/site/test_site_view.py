"""Commands that only read leave nothing in the journal, and need no committer."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from tests.endpoint import run_entrepot, started
from tests.new_sites import new_site
from tests.site.running import client

READING = [
    ["status"],
    ["user", "list", "--site"],
    ["user", "key", "list", "--site"],
    ["keys", "list", "--site"],
    ["explain", "s3://bucket/key", "--site"],
]


def head(site: Path) -> int:
    store = ReadStore(JournalPaths(site / "journal").database)
    try:
        return store.head()
    finally:
        store.close()


def test_a_served_site_has_no_more_records_after_commands_that_read(tmp_path: Path) -> None:
    with started(tmp_path / "site") as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="key", Body=b"x")
        before = head(endpoint.dir)
        for command in READING:
            run_entrepot(*command, str(endpoint.dir))
        assert head(endpoint.dir) == before


def test_a_site_that_is_not_served_is_read_without_a_committer(tmp_path: Path) -> None:
    site = tmp_path / "site"
    new_site(site)
    run_entrepot("user", "add", "ada", "--site", str(site))
    before = hashlib.md5((site / "journal" / "journal.db").read_bytes()).digest()
    for command in READING[:-1]:
        run_entrepot(*command, str(site))
    assert not (site / "journal" / "committer.log").exists() or (site / "journal" / "committer.log").stat().st_size == 0
    assert hashlib.md5((site / "journal" / "journal.db").read_bytes()).digest() == before
