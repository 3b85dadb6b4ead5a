"""A whole site on a disk without a free byte: it reads and deletes, also when it is started there.

The room that deletions have is the journal's reserve: what somebody else writes into it once it was given back is gone.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gateway.timing import VARIABLE
from tests.backends.mounts import mounted
from tests.endpoint import Endpoint, run_entrepot, started
from tests.site.running import client, kill_supervisor, lines, until, watch

DISK_BYTES = 224 << 20
UNHURRIED = {VARIABLE: ""}
"""Production's timing: what is deleted gives its room back a while later."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A site's folder, which is a disk of its own; the log lies elsewhere."""
    with mounted(tmp_path / "site", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs"):
        run_entrepot("init", str(tmp_path / "site"))
        yield tmp_path / "site"


def fill(disk: Path) -> None:
    """Take every free byte."""
    ballast = os.open(disk / "ballast", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        while True:
            os.write(ballast, bytes(4096))
    except OSError as full:
        assert full.errno == errno.ENOSPC
    finally:
        os.close(ballast)


def refused(request: Callable[[], Any]) -> bool:
    """Whether a request is refused for want of room, rather than answered."""
    try:
        request()
    except ClientError as error:
        return bool(error.response["Error"]["Code"] == "InsufficientStorage")
    return False


def put_until_unready(endpoint: Endpoint, s3: Any, content: dict[str, bytes]) -> None:
    """Take the room that a restart gives back (what a killed process had begun), down to the last page.

    A refused object leaves less room than it has bytes, so smaller objects follow; otherwise the probe finds that room.
    A recovery may still be giving room back meanwhile, so it begins again while the site says that it is ready.
    """
    for _ in range(100):
        for size in [9 << 20, 1 << 20, 64 << 10, 4 << 10]:
            while is_stored(s3, size, content):
                assert sum(map(len, content.values())) < DISK_BYTES, "it stores more than the disk has"
        status, answer = watch(endpoint, "/readyz")
        if status == 503:
            assert answer["probe"]["ok"] is False
            return
        is_stored(s3, 1, content)
    raise AssertionError(f"it can store nothing, and says that it is ready: {answer}")


def is_stored(s3: Any, size: int, content: dict[str, bytes]) -> bool:
    """Put an object of *size* bytes, and enter it into *content*. Returns False if there is no room for it."""
    key, body = f"more {len(content)}", bytes([size % 251]) * size
    while key in content:
        key += "+"
    if refused(lambda: s3.put_object(Bucket="kept", Key=key, Body=body)):
        return False
    content[key] = body
    return True


def reads_and_deletes(endpoint: Endpoint, content: dict[str, bytes], deleted: list[str]) -> None:
    s3 = client(endpoint)
    put_until_unready(endpoint, s3, content)  # before deletions give space back
    assert len(s3.list_objects_v2(Bucket="kept")["Contents"]) == len(content)
    for key, body in content.items():
        assert s3.get_object(Bucket="kept", Key=key)["Body"].read() == body
    one, *others = deleted
    s3.delete_object(Bucket="kept", Key=one)
    answer = s3.delete_objects(Bucket="kept", Delete={"Objects": [{"Key": key} for key in others]})
    assert not answer.get("Errors")
    for key in deleted:
        del content[key]
    assert watch(endpoint, "/healthz")[0] == 200, "starting it again would not help"


def commands_work(site: Path) -> None:
    for command in (["status", str(site)], ["user", "list", "--site", str(site)], ["fsck", str(site), "--read"]):
        run_entrepot(*command)


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["stopped before", "killed before", "killed on it"])
def test_a_site_on_a_full_disk_is_started_reads_and_deletes(site: Path, ended: str) -> None:
    chance = random.Random(4)
    content = {f"small {n}": chance.randbytes(1000) for n in range(60)}
    content |= {f"large {n}": chance.randbytes(1 << 20) for n in range(20)}
    with started(site, environment=UNHURRIED) as (endpoint, process):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        for key, body in content.items():
            s3.put_object(Bucket="kept", Key=key, Body=body)
        if ended == "killed on it":
            fill(site)
            reads_and_deletes(endpoint, content, [f"small {n}" for n in range(10)])
            commands_work(site)
        if ended.startswith("killed"):
            kill_supervisor(endpoint, process)
    if ended.endswith("before"):
        fill(site)
    commands_work(site)  # with a committer of their own
    with started(site, environment=UNHURRIED) as (endpoint, _):
        reads_and_deletes(endpoint, content, [f"small {n}" for n in range(10, 20)])
        (site / "ballast").unlink()
        s3 = client(endpoint)
        until(lambda: not refused(lambda: s3.put_object(Bucket="kept", Key="new", Body=b"new")), "room")
        until(lambda: watch(endpoint, "/readyz")[0] == 200, "readiness")
        assert run_entrepot("fsck", str(site), "--read").stdout.rstrip().endswith(("clean", "wasted"))
        assert not [line for line in lines(endpoint) if line["level"] == "error" and line["event"] != "request"]
