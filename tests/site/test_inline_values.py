"""Small objects of a served site that are still rows of the journal's database: nothing treats them differently."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.timing import VARIABLE
from tests.endpoint import QUICK, Endpoint, run_entrepot, started
from tests.files import block_files
from tests.new_sites import new_site
from tests.site.running import VAULT, change_config, client, counted, processes, until

NEVER = {VARIABLE: f"{QUICK}; inline.flush_seconds=3600"}
SOON = {VARIABLE: f"{QUICK}; inline.flush_seconds=0.1"}
COUNT = 20


def rows(site: Path) -> int:
    base = sqlite3.connect(f"file:{site}/journal/journal.db?mode=ro", uri=True)
    try:
        return int(base.execute("SELECT count(*) FROM inline_value").fetchone()[0])
    finally:
        base.close()


def in_files(site: Path, backend: str = "blocks") -> int:
    return len(block_files(site / backend))


@contextmanager
def serving(site: Path, timing: dict[str, str] = NEVER) -> Iterator[Any]:
    """An S3 client of the served site."""
    with started(site, ["--workers", "1"], timing) as (endpoint, _):
        yield client(endpoint)


def fill(s3: Any, bucket: str = "small") -> None:
    """Put small objects one after the other. The first one of a process goes to the backend: the worker has not heard
    from its committer yet."""
    s3.create_bucket(Bucket=bucket)
    for number in range(COUNT):
        s3.put_object(Bucket=bucket, Key=f"k{number}", Body=b"body %d" % number)


def check(s3: Any, bucket: str = "small") -> None:
    for number in range(COUNT):
        assert s3.get_object(Bucket=bucket, Key=f"k{number}")["Body"].read() == b"body %d" % number


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A site that is not served, whose small objects are rows."""
    site = tmp_path / "site"
    with serving(site) as s3:
        fill(s3)
        check(s3)
    assert rows(site) >= COUNT - 2
    assert rows(site) + in_files(site) == COUNT
    return site


def test_values_become_files_once_they_are_old_enough(filled: Path) -> None:
    with serving(filled, SOON) as s3:
        until(lambda: rows(filled) == 0, "all values to be in files")
        assert in_files(filled) == COUNT
        check(s3)
    assert run_entrepot("fsck", str(filled), "--read", "--replay", check=False).returncode == 0


def test_fsck_finds_them_where_the_journal_says(filled: Path) -> None:
    checked = run_entrepot("fsck", str(filled), "--read", "--replay", "--json", check=False)
    assert (checked.returncode, json.loads(checked.stdout)["findings"]) == (0, []), checked.stdout


def test_gc_of_a_site_that_is_not_served_writes_all_of_them_to_files(filled: Path) -> None:
    run_entrepot("gc", str(filled))
    assert (rows(filled), in_files(filled)) == (0, COUNT)
    with serving(filled) as s3:
        check(s3)


def test_fsck_reports_one_that_is_gone_and_gc_one_that_nobody_names(filled: Path) -> None:
    base = sqlite3.connect(filled / "journal" / "journal.db")
    base.execute("DELETE FROM inline_value WHERE block = (SELECT min(block) FROM inline_value)")
    orphan = (1 << 40).to_bytes(8, "big") + bytes(16)
    copied = "SELECT ?, backend, number, crc32c, value FROM inline_value LIMIT 1"
    base.execute(f"INSERT INTO inline_value {copied}", (orphan,))
    base.commit()
    base.close()
    found = json.loads(run_entrepot("fsck", str(filled), "--json", check=False).stdout)["findings"]
    assert sorted(each["kind"] for each in found) == ["block-missing", "block-orphan"]
    run_entrepot("gc", str(filled))
    found = json.loads(run_entrepot("fsck", str(filled), "--json", check=False).stdout)["findings"]
    assert [each["kind"] for each in found] == ["block-missing"]


def test_fsck_finds_one_that_is_damaged(filled: Path) -> None:
    base = sqlite3.connect(filled / "journal" / "journal.db")
    last = "(SELECT max(block) FROM inline_value)"
    base.execute(f"UPDATE inline_value SET value = zeroblob(length(value)) WHERE block = {last}")
    base.commit()
    base.close()
    found = json.loads(run_entrepot("fsck", str(filled), "--read", "--json", check=False).stdout)["findings"]
    assert [each["kind"] for each in found] == ["block-damaged"]


def test_a_backup_contains_them_even_if_the_folder_of_the_backend_never_did(filled: Path, tmp_path: Path) -> None:
    saved, anew = tmp_path / "saved", tmp_path / "anew"
    run_entrepot("backup", str(filled), str(saved))
    shutil.rmtree(filled / "journal")
    run_entrepot("restore", "--take-over", "--yes", str(saved), str(anew), "--master-key", str(filled / "master.key"))
    with serving(anew, SOON) as s3:
        check(s3)
        until(lambda: rows(anew) == 0, "all values to be in files")
        check(s3)
    assert in_files(filled) == COUNT
    assert run_entrepot("fsck", str(anew), "--read", check=False).returncode == 0


def test_a_backend_that_drains_takes_them_along(filled: Path) -> None:
    with (filled / "entrepot.toml").open("a") as config:
        config.write(VAULT)
    change_config(filled, 'ack = ["disk"]', 'ack = ["vault"]')
    change_config(filled, 'keep = ["disk"]', 'keep = ["vault"]')
    change_config(filled, 'path = "blocks" ', 'drain = true\npath = "blocks" ')
    change_config(filled, "recheck_seconds = 3600.0", "recheck_seconds = 0.1")
    with serving(filled) as s3:
        until(lambda: rows(filled) + in_files(filled) == 0, "the backend to be empty")
        check(s3)
    assert in_files(filled, "vault") == COUNT
    assert run_entrepot("fsck", str(filled), "--read", check=False).returncode == 0


def test_they_are_read_while_the_folder_of_their_backend_is_away_and_copied_once_it_is_given_up(filled: Path) -> None:
    """The mover reads a lost backend that answers all the same. What was in its files is lost."""
    lost_in_files = in_files(filled)
    (filled / "blocks").rename(filled / "away")
    with (filled / "entrepot.toml").open("a") as config:
        config.write(VAULT)
    change_config(filled, 'ack = ["disk"]', 'ack = ["vault"]')
    change_config(filled, 'keep = ["disk"]', 'keep = ["vault"]')
    with serving(filled) as s3:
        assert s3.get_object(Bucket="small", Key=f"k{COUNT - 1}")["Body"].read() == b"body %d" % (COUNT - 1)
        run_entrepot("backend", "lost", "disk", "--forget", "--site", str(filled))
        until(lambda: in_files(filled, "vault") >= COUNT - lost_in_files, "the copies")
        assert s3.get_object(Bucket="small", Key=f"k{COUNT - 1}")["Body"].read() == b"body %d" % (COUNT - 1)


def test_all_processes_are_killed_and_nothing_is_lost(filled: Path) -> None:
    with started(filled, ["--workers", "1"], NEVER) as (endpoint, supervisor):
        s3 = client(endpoint)
        s3.put_object(Bucket="small", Key="warm", Body=b"x")
        s3.put_object(Bucket="small", Key="last", Body=b"written last")
        pids = [each["pid"] for each in processes(endpoint).values()]
        for pid in (supervisor.pid, *pids):
            with suppress(ProcessLookupError):  # some end by themselves once the supervisor is gone
                os.kill(pid, signal.SIGKILL)
        supervisor.wait()
    with serving(filled, SOON) as s3:
        assert s3.get_object(Bucket="small", Key="last")["Body"].read() == b"written last"
        check(s3)
        until(lambda: rows(filled) == 0, "all values to be in files")
        check(s3)
    assert run_entrepot("fsck", str(filled), "--read", check=False).returncode == 0


def test_deleted_ones_leave_nothing(filled: Path) -> None:
    with serving(filled) as s3:
        for number in range(COUNT):
            s3.delete_object(Bucket="small", Key=f"k{number}")
        until(lambda: rows(filled) + in_files(filled) == 0, "the bytes to be deleted")


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ('inline_bytes = "64 KiB"', "inline_bytes = 0"),
        ('ack = ["disk"]                # ', 'ack = ["disk", "vault"] # '),
    ],
    ids=["they are switched off", "two backends must have a copy"],
)
def test_nothing_goes_into_the_database_if(tmp_path: Path, line: str, instead: str) -> None:
    site = tmp_path / "site"
    new_site(site)
    with (site / "entrepot.toml").open("a") as config:
        config.write(VAULT)
    change_config(site, line, instead)
    change_config(site, 'keep = ["disk"]               # ', 'keep = ["disk", "vault"] # ')
    with serving(site) as s3:
        fill(s3)
        check(s3)
    assert (rows(site), in_files(site)) == (0, COUNT)


def test_the_metrics_count_those_that_wait(filled: Path) -> None:
    def waiting(endpoint: Endpoint) -> float:
        return counted(endpoint, "entrepot_backlog", kind="inline values")

    with started(filled, ["--workers", "1"], NEVER) as (endpoint, _):
        until(lambda: waiting(endpoint) == rows(filled), "the metric")
