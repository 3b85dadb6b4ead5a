"""A served site looks after its disk by itself: what is deleted goes, also out of the middle of packs."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.schema import STEPS
from tests.endpoint import run_entrepot, started
from tests.files import block_files, files_below
from tests.new_sites import new_site
from tests.site.running import change_config, client, counted, kill_supervisor, until


def disk_bytes(folder: Path) -> int:
    """What everything below *folder* takes on the disk, also what the backend keeps for itself."""
    found = 0
    for each in files_below(folder):
        try:
            found += each.lstat().st_blocks * 512
        except FileNotFoundError:
            continue
    return found


@pytest.mark.slow
def test_after_nine_of_ten_small_objects_are_deleted_the_disk_holds_little_more_than_what_lives(tmp_path: Path) -> None:
    site = new_site(tmp_path / "site")
    change_config(site, "recheck_seconds = 3600.0", "recheck_seconds = 0.0")
    chance = random.Random(9)
    sizes = {f"{n:05}": chance.randint(1_000, 60_000) for n in range(2_000)}
    with started(site) as (endpoint, _):
        s3 = client(endpoint, max_pool=16)
        s3.create_bucket(Bucket="kept")
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: s3.put_object(Bucket="kept", Key=key, Body=body(key, sizes[key])), sizes))
        keys = list(sizes)
        chance.shuffle(keys)
        gone = keys[: len(keys) * 9 // 10]
        for at in range(0, len(gone), 1_000):
            some = [{"Key": key} for key in gone[at : at + 1_000]]
            assert not s3.delete_objects(Bucket="kept", Delete={"Objects": some}).get("Errors")
        began = time.monotonic()
        lives = {key: size for key, size in sizes.items() if key not in set(gone)}
        most = 1.3 * sum(lives.values())
        until(lambda: disk_bytes(site / "blocks") <= most, f"{disk_bytes(site / 'blocks')} bytes to become {most}")
        until(lambda: counted(endpoint, "entrepot_keeper_done_total", kind="extents moved") > 0, "packs written anew")
        print(f"after {time.monotonic() - began:.0f} s")
        for key, size in lives.items():
            assert s3.get_object(Bucket="kept", Key=key)["Body"].read() == body(key, size)
        waste = json.loads(run_entrepot("gc", str(site), "--dry-run", "--json").stdout)
        assert waste["freed"] == waste["sparse_blocks"] == 0
        assert run_entrepot("fsck", str(site), "--read").stdout.rstrip().endswith("clean")


def body(key: str, size: int) -> bytes:
    return random.Random(key).randbytes(size)


def test_what_gc_would_do_is_told_first_and_is_then_done(tmp_path: Path) -> None:
    """Beside nobody: without a keeper, what is deleted stays until somebody asks."""
    site = tmp_path / "site"
    with started(site) as (endpoint, process):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        for n in range(10):
            s3.put_object(Bucket="kept", Key=f"{n}", Body=bytes(200_000))
        s3.delete_objects(Bucket="kept", Delete={"Objects": [{"Key": f"{n}"} for n in range(9)]})
        kill_supervisor(endpoint, process)
    before = block_files(site / "blocks")
    would = json.loads(run_entrepot("gc", str(site), "--dry-run", "--json").stdout)
    assert would["freed"] or would["blocks"]
    assert block_files(site / "blocks") == before

    def collected() -> bool:
        left = json.loads(run_entrepot("gc", str(site), "--json").stdout)
        return left["freed"] == 0 and len(block_files(site / "blocks")) == 1

    until(collected, "the leases of those who were killed, and the collection")
    with started(site) as (endpoint, _):
        assert client(endpoint).get_object(Bucket="kept", Key="9")["Body"].read() == bytes(200_000)


def test_who_looks_at_all_tables_leaves_those_alone_that_another_version_serves(tmp_path: Path) -> None:
    """Entrepot was upgraded, and the site is still served as it was started. That is no damage, and no mistake."""
    site = tmp_path / "site"
    with started(site, ["--workers", "1"]):
        tables = sqlite3.connect(JournalPaths(site / "journal").database)
        tables.execute(f"PRAGMA user_version = {len(STEPS) - 1}")
        for command in (["fsck"], ["gc"], ["gc", "--dry-run"]):
            done = run_entrepot(*command, str(site), check=False)
            assert done.returncode == 1
            assert "another version serves the site" in done.stderr
        tables.execute(f"PRAGMA user_version = {len(STEPS)}")
        tables.close()
        assert run_entrepot("fsck", str(site)).returncode == 0
