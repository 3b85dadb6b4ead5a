"""Two copies of a site's folder over the same backends: one of them ends, and neither loses what was acknowledged.

These tests need processes: what they are about is who else is alive.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.site.site import Site
from gateway.site.storage.agreement import HistoriesDiverged
from tests.endpoint import Endpoint, run_entrepot, started
from tests.files import block_files
from tests.flows.dying import kill_all
from tests.site.running import change_config, client, processes, until
from tests.site.test_write_targets import put as put_in_process

BUCKET = "tree"


def make(folder: Path) -> Path:
    """A site in *folder* whose blocks lie beside it, so that a copy of the folder uses the same ones."""
    run_entrepot("init", str(folder))
    change_config(folder, "lease_seconds = 10.0", "lease_seconds = 1.0")
    change_config(folder, 'path = "blocks"', f'path = "{folder.with_name("blocks")}"')
    shutil.move(folder / "blocks", folder.with_name("blocks"))
    return folder


def copy(folder: Path, name: str) -> Path:
    """The folder once more, as a snapshot would have it: also while the site is served."""
    return Path(
        shutil.copytree(folder, folder.with_name(name), ignore=shutil.ignore_patterns("*.sock", "*-shm", "run"))
    )


def look(site: Path, statement: str) -> Any:
    """What the journal of *site* answers to a query for one value."""
    with closing(sqlite3.connect(f"file:{site / 'journal' / 'journal.db'}?mode=ro", uri=True)) as base:
        return base.execute(statement).fetchone()[0]


@contextmanager
def keeper_stands_still(endpoint: Endpoint) -> Iterator[None]:
    """So that the backends do not hear how far the journal comes, as if all that happens took a moment."""
    keeper = processes(endpoint)["keeper"]["pid"]
    os.kill(keeper, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGCONT)


def put(endpoint: Endpoint, *names: str) -> None:
    s3 = client(endpoint)
    for name in names:
        s3.put_object(Bucket=BUCKET, Key=name, Body=name.encode() * 50_000)


def whole(endpoint: Endpoint, *names: str) -> bool:
    s3 = client(endpoint)
    return all(s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() == name.encode() * 50_000 for name in names)


def fence(site: Path) -> dict[str, Any]:
    """As the marker of the blocks beside *site* has it."""
    return dict(json.loads((site.with_name("blocks") / ".entrepot" / "marker").read_text())["fence"])


def refused(site: Path) -> str:
    """Why serving *site* fails."""
    done = run_entrepot("serve", str(site), "--listen", "127.0.0.1:0", "--workers", "1", check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return make(tmp_path / "site")


def test_an_older_copy_refuses_to_start_and_the_original_goes_on(site: Path) -> None:
    with started(site, ["--workers", "1"]) as (endpoint, process):
        client(endpoint).create_bucket(Bucket=BUCKET)
        put(endpoint, "before")
        older = copy(site, "older")
        put(endpoint, "after", "later")
        at = fence(site)["number"]
        until(lambda: fence(site)["number"] > at, "the marker to say how far the original has come")
        assert "another copy of this site's folder" in refused(older)
        for command in (("gc",), ("fsck", "--mend"), ("fsck",)):
            done = run_entrepot(command[0], str(older), *command[1:], check=False)
            assert (done.returncode, "another copy of this site's folder" in done.stderr) == (1, True), command
        put(endpoint, "more")
        assert whole(endpoint, "before", "after", "later", "more")
        assert process.poll() is None


def test_a_copy_that_starts_last_wins_and_nothing_that_the_original_acknowledged_is_deleted(site: Path) -> None:
    """The original has not said yet how far it came, so that nobody can know that the copy is older."""
    with started(site, ["--workers", "1"]) as (endpoint, process):
        client(endpoint).create_bucket(Bucket=BUCKET)
        put(endpoint, "before")
        until(lambda: fence(site)["number"] == look(site, "SELECT number FROM head"), "the marker to be up to date")
        younger = copy(site, "younger")
        with keeper_stands_still(endpoint):
            put(endpoint, *(f"after-{n}" for n in range(5)))
            blocks = set(block_files(site.with_name("blocks")))
            served = started(younger, ["--workers", "1"])
            copied, _ = served.__enter__()
        try:
            assert whole(copied, "before")
            assert process.wait(60) == 1
            assert "another copy of this site's folder" in endpoint.log.read_text()
            put(copied, "of the copy")
            unseen = "SELECT count(*) FROM session WHERE state = 1 AND seen = 0"
            until(lambda: look(younger, unseen), "the sessions of the original to be ended in the copy")
            client(copied).delete_object(Bucket=BUCKET, Key="before")
            run_entrepot("gc", str(younger))
            assert blocks <= set(block_files(site.with_name("blocks")))
        finally:
            served.__exit__(None, None, None)
    assert "takeover" in refused(site)


def takeover(site: Path, *options: str) -> dict[str, Any]:
    return dict(json.loads(run_entrepot("takeover", str(site), *options, "--json").stdout))


def test_a_newer_folder_that_was_put_back_goes_on_once_an_operator_says_so(site: Path) -> None:
    """The original was stopped, an older copy of its folder was started, and stopped; then the newer one is back."""
    with started(site, ["--workers", "1"]) as (endpoint, _):
        client(endpoint).create_bucket(Bucket=BUCKET)
        put(endpoint, "before")
        until(lambda: fence(site)["number"] == look(site, "SELECT number FROM head"), "the marker to be up to date")
        older = copy(site, "older")
        common = look(older, "SELECT number FROM head")
        with keeper_stands_still(endpoint):
            put(endpoint, "acknowledged")
            kill_all(site)
    told = takeover(site)
    assert (told["parted"], told["counter"]) == (False, 0)
    kill_all(site)
    with started(older, ["--workers", "1"]) as (endpoint, _):
        put(endpoint, "of the copy")
        assert fence(site)["counter"] > 1
    assert "another copy of this site's folder" in refused(site)
    kill_all(site)

    shown = takeover(site)
    assert (shown["parted"], shown["common"], shown["exact"], shown["counter"]) == (True, common, True, 0)
    assert 0 < shown["ours"] <= look(site, "SELECT number FROM head") - common
    assert "s3://tree/acknowledged" in shown["keys"]
    assert "s3://tree/before" not in shown["keys"]
    assert "another copy of this site's folder" in refused(site), "looking changes nothing"
    spelt = run_entrepot("takeover", str(site)).stdout
    assert f"the two histories diverge after record {common}" in spelt

    kept = set(block_files(site.with_name("blocks")))
    assert takeover(site, "--yes")["counter"] > fence(older)["counter"] - 1
    with started(site, ["--workers", "1"]) as (endpoint, _):
        assert whole(endpoint, "before", "acknowledged")
        run_entrepot("gc", str(site))
        assert kept <= set(block_files(site.with_name("blocks"))), "the other history may be wanted yet"
        assert "another copy of this site's folder" in refused(older)
        assert run_entrepot("takeover", str(site), check=False).returncode == 1, "it is served"
    assert run_entrepot("fsck", str(site), "--read", check=False).returncode == 0


SECOND = """
[backends.second]
type = "local"
cluster = "home"
path = "{path}"
"""


def test_a_backend_that_is_away_delays_no_start_and_keeps_everything_until_it_is_stamped(site: Path) -> None:
    second = site.with_name("second")
    config = site / "entrepot.toml"
    config.write_text(config.read_text() + SECOND.format(path=second))
    change_config(site, 'keep = ["disk"]', 'keep = ["disk", "second"]')
    with started(site, ["--workers", "1"]) as (endpoint, _):
        client(endpoint).create_bucket(Bucket=BUCKET)
        put(endpoint, "both")
        until(lambda: len(block_files(second)) == 1, "the copy")
    away = second.rename(site.with_name("away"))
    with started(site, ["--workers", "1"]) as (endpoint, _):
        counter = fence(site)["counter"]
        client(endpoint).delete_object(Bucket=BUCKET, Key="both")
        until(lambda: look(site, "SELECT count(*) FROM block WHERE died > 0"), "the block to be taken apart")
        marker = json.loads((away / ".entrepot" / "marker").read_text())
        assert marker["fence"]["counter"] < counter
        assert len(block_files(away)) == 1
        away.rename(second)
        until(lambda: not block_files(second), "it to be stamped, and then swept")
        assert json.loads((second / ".entrepot" / "marker").read_text())["fence"]["counter"] == counter


def test_a_library_client_in_the_copy_makes_the_original_end(site: Path) -> None:
    with started(site, ["--workers", "1"]) as (endpoint, process):
        client(endpoint).create_bucket(Bucket=BUCKET)
        until(lambda: fence(site)["number"] == look(site, "SELECT number FROM head"), "the marker to be up to date")
        younger = copy(site, "younger")
        with keeper_stands_still(endpoint):
            put(endpoint, "acknowledged")
            asyncio.run(write_in_process(younger))
        assert process.wait(60) == 1
    assert takeover(site, "--yes")["counter"]
    with started(site, ["--workers", "1"]) as (endpoint, _):
        assert whole(endpoint, "acknowledged")
    with pytest.raises(HistoriesDiverged):
        asyncio.run(write_in_process(younger))


async def write_in_process(folder: Path) -> None:
    async with await Site.open(folder) as opened:
        await put_in_process(opened, "of-the-copy", b"x")
