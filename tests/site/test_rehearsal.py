"""A restore is a rehearsal unless it is told to take over. Nothing that the original wrote is deleted for some days."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from backends.local.backend import Local
from gateway.posix.fsspec.filesystem import EntrepotFileSystem
from tests.endpoint import run_entrepot, started
from tests.site.running import client, kill_supervisor, until, watch

BODIES = {"small": b"small", "large": bytes(range(256)) * 40_000}


def make(site: Path, saved: Path) -> None:
    """Make a site with some objects, back it up to *saved*, and then store `newer` and delete `small`."""
    with started(site) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        for key, body in BODIES.items():
            s3.put_object(Bucket="kept", Key=key, Body=body)
        run_entrepot("backup", str(site), str(saved))
        s3.put_object(Bucket="kept", Key="newer", Body=BODIES["large"] + b"newer")
        s3.delete_object(Bucket="kept", Key="small")


def restored(saved: Path, folder: Path, *options: str, check: bool = True) -> Any:
    key = saved.with_name("site") / "master.key"
    return run_entrepot("restore", str(saved), str(folder), "--master-key", str(key), *options, check=check)


def contents(s3: Any) -> dict[str, bytes]:
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket="kept").get("Contents", [])]
    return {key: s3.get_object(Bucket="kept", Key=key)["Body"].read() for key in keys}


async def marker_of(site: Path) -> Any:
    backend = await Local.open(str(site / "blocks"), make=False, wal_bytes=0)
    try:
        return await backend.marker()
    finally:
        await backend.close()


async def test_a_rehearsal_reads_the_backup_while_the_original_goes_on(tmp_path: Path) -> None:
    site, saved, anew = tmp_path / "site", tmp_path / "saved", tmp_path / "anew"
    make(site, saved)
    with started(site) as (endpoint, process):
        printed = restored(saved, anew).stdout
        assert printed.startswith("rehearsal of site ")
        assert "backend disk is used in incarnation 1, and was stamped last at " in printed
        before = await marker_of(site)
        with started(anew) as (copy, _):
            s3 = client(copy)
            assert contents(s3) == BODIES
            original = client(endpoint)
            for n in range(20):
                original.put_object(Bucket="kept", Key=f"later {n}", Body=BODIES["large"])
                time.sleep(0.2)  # longer than any process takes to look at its markers
            assert process.poll() is None
            assert contents(s3) == BODIES
            assert len(contents(original)) == 22
        assert (await marker_of(site)).without_fence == before.without_fence
        original.put_object(Bucket="kept", Key="last", Body=b"last")
    assert run_entrepot("fsck", str(site), "--read").returncode == 0


def test_a_rehearsal_refuses_every_change(tmp_path: Path) -> None:
    site, saved, anew = tmp_path / "site", tmp_path / "saved", tmp_path / "anew"
    make(site, saved)
    restored(saved, anew)
    blocks = sorted((site / "blocks").rglob("*"))
    with started(anew) as (endpoint, _):
        s3 = client(endpoint)
        for request in (
            lambda: s3.put_object(Bucket="kept", Key="new", Body=b"new"),
            lambda: s3.put_object(Bucket="kept", Key="new", Body=BODIES["large"]),
            lambda: s3.create_multipart_upload(Bucket="kept", Key="new"),
            lambda: s3.copy_object(Bucket="kept", Key="new", CopySource="kept/large"),
            lambda: s3.delete_object(Bucket="kept", Key="small"),
            lambda: s3.create_bucket(Bucket="new"),
            lambda: s3.delete_bucket(Bucket="kept"),
        ):
            with pytest.raises(ClientError, match=r"AccessDenied.*rehearsal of a restore") as refused:
                request()
            assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
        status, answer = watch(endpoint, "/readyz")
        assert (status, "rehearsal" in answer["probe"]["why"]) == (503, True), answer
        assert watch(endpoint, "/healthz")[0] == 200
        assert run_entrepot("status", str(anew)).stdout.startswith("REHEARSAL of a restore: read-only\n")
    for command in (
        ["gc", str(anew)],
        ["gc", str(anew), "--drop-newer"],
        ["fsck", str(anew), "--mend"],
        ["takeover", str(anew), "--yes"],
        ["backend", "claim", "disk", "--site", str(anew), "--anyway"],
        ["backend", "lost", "disk", "--site", str(anew), "--forget"],
        ["user", "add", "bob", "--site", str(anew)],
        ["keys", "rotate", "--site", str(anew)],
        ["backend", "test", "disk", "--site", str(anew)],
        ["backup", str(anew), str(tmp_path / "more")],
    ):
        refused = run_entrepot(*command, check=False)
        assert refused.returncode == 1, command
        assert "rehearsal of a restore" in refused.stderr, (command, refused.stderr)
    assert contents_in_process(anew) == BODIES
    assert sorted((site / "blocks").rglob("*")) == blocks
    assert run_entrepot("fsck", str(anew), "--read").returncode == 0


def contents_in_process(site: Path) -> dict[str, bytes]:
    files = EntrepotFileSystem(site=str(site), skip_instance_cache=True)
    try:
        with pytest.raises(OSError) as refused:
            files.pipe_file("kept/new", b"new")
        assert refused.value.errno == errno.EROFS
        return {key: files.cat_file(f"kept/{key}") for key in BODIES}
    finally:
        files.close()


def test_a_copy_of_a_rehearsal_is_one_too(tmp_path: Path) -> None:
    """Also one without the files whose names begin with a dot."""
    site, saved, anew, copy = tmp_path / "site", tmp_path / "saved", tmp_path / "anew", tmp_path / "copy"
    make(site, saved)
    restored(saved, anew)
    shutil.copytree(anew, copy, ignore=shutil.ignore_patterns(".*"))
    with started(site) as (_, process), started(copy) as (endpoint, _):
        with pytest.raises(ClientError, match="rehearsal of a restore"):
            client(endpoint).put_object(Bucket="kept", Key="new", Body=b"new")
        time.sleep(3)
        assert process.poll() is None


def everything_in(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, hashlib.md5(path.read_bytes()).digest()) for path in files}


def test_a_rehearsal_and_a_plan_write_nothing_to_the_original(tmp_path: Path) -> None:
    """Not even what a process that was killed has left in its logs."""
    site, saved, anew = tmp_path / "site", tmp_path / "saved", tmp_path / "anew"
    make(site, saved)
    with started(site) as (endpoint, process):
        client(endpoint).put_object(Bucket="kept", Key="last", Body=bytes(200_000))
        kill_supervisor(endpoint, process)
    before = everything_in(site / "blocks")
    assert restored(saved, anew, "--take-over").returncode == 0
    restored(saved, anew)
    run_entrepot("fsck", str(anew), "--read")
    with started(anew) as (copy, _):
        assert contents(client(copy)) == BODIES
    assert everything_in(site / "blocks") == before
    with started(site) as (endpoint, _):
        assert contents(client(endpoint))["last"] == bytes(200_000)


def test_a_restore_that_was_interrupted_is_finished_only_with_the_same_options(tmp_path: Path) -> None:
    site, saved, anew = tmp_path / "site", tmp_path / "saved", tmp_path / "anew"
    make(site, saved)
    key = site / "master.key"
    command = ["restore", str(saved), str(anew), "--master-key", str(key), "--take-over", "--yes"]
    killed = run_entrepot(*command, environment={"ENTREPOT_FAILPOINTS": "restore-made=kill"}, check=False)
    assert killed.returncode != 0
    for options in (["--keep-newer-days", "0"],):
        refused = run_entrepot(*command, *options, check=False)
        assert (refused.returncode, "of something else was interrupted" in refused.stderr) == (1, True)
    assert restored(saved, anew, check=False).returncode == 1
    assert "it deletes nothing before 2" in run_entrepot(*command).stdout


def test_a_restore_says_what_taking_over_would_do_and_does_it_only_with_yes(tmp_path: Path) -> None:
    site, saved, anew = tmp_path / "site", tmp_path / "saved", tmp_path / "anew"
    make(site, saved)
    with started(site) as (endpoint, _):
        said = restored(saved, anew, "--take-over").stdout
        assert said.startswith("nothing was done")
        assert "record(s) that are not in this backup" in said
        assert "backend disk has 2 block(s)" in said  # of `newer`, which is larger than 8 MiB
        assert not anew.exists()
        plan = json.loads(restored(saved, anew, "--take-over", "--json").stdout)
        assert (plan["done"], plan["newer"][0]["blocks"]) == (False, 2)
        assert plan["newer_records"] > 0
        client(endpoint).put_object(Bucket="kept", Key="still", Body=b"served")
    for options in (
        ["--yes"],
        ["--rehearse", "--take-over"],
        ["--claim-anyway", "disk"],
        ["--without", "disk"],
        ["--keep-newer-days", "1"],
        ["--take-over", "--without", "nosuch"],
    ):
        assert restored(saved, anew, *options, check=False).returncode == 1, options
    assert not anew.exists()
    refused = restored(saved, site, "--take-over", check=False)
    assert (refused.returncode, "is a site already" in refused.stdout) == (1, True)
    (site / "blocks").rename(tmp_path / "away")
    refused = restored(saved, anew, "--take-over", check=False)
    assert (refused.returncode, "blocks that should be there was found" in refused.stdout) == (1, True)
    assert "--claim-anyway disk" in refused.stdout
    (site / "blocks").mkdir()
    assert restored(saved, anew, "--take-over", check=False).returncode == 1
    assert restored(saved, anew, "--take-over", "--yes", check=False).returncode == 1
    assert list((site / "blocks").iterdir()) == []
    assert restored(saved, anew, "--take-over", "--claim-anyway", "disk").returncode == 0
    given_up = restored(saved, anew, "--take-over", "--without", "disk").stdout
    assert "backend disk is given up for good (--without)" in given_up


def test_what_was_written_after_the_backup_can_be_restored_after_a_takeover(tmp_path: Path) -> None:
    """The way back: a backup of the original's folder, which has ended, is restored in turn."""
    site, saved, anew = tmp_path / "site", tmp_path / "saved", tmp_path / "anew"
    make(site, saved)
    with started(site) as (endpoint, process):
        client(endpoint).put_object(Bucket="kept", Key="newest", Body=b"newest")
        restored(saved, anew, "--take-over", "--yes")
        until(lambda: process.poll() is not None, "the end of the original")
        with started(anew) as (copy, _):
            s3 = client(copy)
            assert contents(s3) == BODIES
            s3.delete_object(Bucket="kept", Key="large")
            s3.put_object(Bucket="kept", Key="small", Body=b"another")
            assert "deletes nothing before: " in run_entrepot("status", str(anew)).stdout
            time.sleep(4)  # sweeps of sessions that ended take a second or two
        run_entrepot("gc", str(anew))
    run_entrepot("backup", str(site), str(tmp_path / "newer"))
    back = tmp_path / "back"
    restored(tmp_path / "newer", back, "--take-over", "--yes")
    with started(back) as (endpoint, _):
        found = contents(client(endpoint))
    assert found == {"large": BODIES["large"], "newer": BODIES["large"] + b"newer", "newest": b"newest"}
    assert run_entrepot("fsck", str(back), "--read").returncode == 0


def test_newer_data_is_deleted_once_an_operator_gives_it_up(tmp_path: Path) -> None:
    site, saved, anew = tmp_path / "site", tmp_path / "saved", tmp_path / "anew"
    make(site, saved)
    with started(site) as (endpoint, _):  # in a session that the backup does not know
        client(endpoint).put_object(Bucket="kept", Key="newest", Body=BODIES["large"] + b"newest")
    restored(saved, anew, "--take-over", "--yes")
    for options in ([], ["--dry-run"], []):
        left = run_entrepot("gc", str(anew), *options).stdout
        assert "2 unnamed block(s)" in left, "of a session that was open in the backup"
        assert "2 orphan block(s)" in left
    assert run_entrepot("gc", str(anew), "--dry-run", "--drop-newer", check=False).returncode == 1
    left = run_entrepot("gc", str(anew), "--drop-newer").stdout
    assert "orphan" not in left
    assert "unnamed" not in left
    again = run_entrepot("gc", str(anew), "--drop-newer", check=False)
    assert (again.returncode, "nothing to drop" in again.stderr) == (1, True)
    assert contents_now(anew) == BODIES


def contents_now(site: Path) -> dict[str, bytes]:
    with started(site) as (endpoint, _):
        return contents(client(endpoint))
