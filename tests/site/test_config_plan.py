"""`config check --open` and `plan` say what a reload would do, and change nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.endpoint import Endpoint, run_entrepot, started
from tests.new_sites import new_site
from tests.servers.moto import moto
from tests.servers.running import S3Server
from tests.site.running import SECRET, add_cloud, change_config, client, until

ENVIRONMENT = {"CLOUD_SECRET": SECRET}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[S3Server]:
    with moto(tmp_path / "cloud") as server:
        yield server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Endpoint]:
    """A served site whose config is edited, but not reloaded: the edit is made in a copy of the file."""
    new_site(tmp_path / "site")
    with started(tmp_path / "site", ["--workers", "1"], environment=ENVIRONMENT) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="bucket")
        for n in range(3):
            s3.put_object(Bucket="bucket", Key=f"{n}", Body=bytes([n]) * 1_000_000)
        yield endpoint


def edited(endpoint: Endpoint, url: str, *changes: tuple[str, str]) -> Path:
    """A copy of the site's config with a cloud at *url*, and with *changes*."""
    folder = endpoint.dir.with_name("edited")
    folder.mkdir(exist_ok=True)
    (folder / "entrepot.toml").write_text((endpoint.dir / "entrepot.toml").read_text())
    add_cloud(folder, url)
    for line, instead in changes:
        change_config(folder, line, instead)
    return folder / "entrepot.toml"


def checked(endpoint: Endpoint, file: Path, environment: dict[str, str] | None = None) -> dict[str, Any]:
    done = run_entrepot(
        *("config", "check", str(file), "--site", str(endpoint.dir), "--open", "--json"),
        environment=ENVIRONMENT if environment is None else environment,
        check=False,
    )
    facts = json.loads(done.stdout)
    assert done.returncode == (0 if facts["ok"] else 1), done.stdout
    return dict(facts)


def backend(facts: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in facts["backends"] if each["backend"] == name]
    return dict(found)


def test_a_config_that_a_reload_adopts_is_planned_and_nothing_is_changed(served: Endpoint, cloud: S3Server) -> None:
    both = ('keep = ["disk"]', 'keep = ["disk", "bucket"]')
    file = edited(served, cloud.url, both)
    records = json.loads(run_entrepot("status", str(served.dir), "--json").stdout)["records"]
    facts = checked(served, file)
    assert facts["ok"] is True
    assert backend(facts, "bucket") == {
        "backend": "bucket", "is_new": True, "problem": "", "remark": "a reload creates the bucket blocks"
    }  # fmt: skip
    (made,) = facts["movement"]["makes"]
    assert (made["backend"], made["source"], made["copies"], made["lines"]) == ("bucket", "disk", 3, ["cloud-home"])
    planned = run_entrepot("plan", str(file), "--site", str(served.dir)).stdout
    assert planned.startswith("make 3 copies, ")
    assert json.loads(run_entrepot("status", str(served.dir), "--json").stdout)["records"] == records
    (served.dir / "entrepot.toml").write_text(file.read_text())
    run_entrepot("reload", str(served.dir))
    until(lambda: "bucket: in use, 3 block(s)" in run_entrepot("status", str(served.dir), check=False).stdout, "copies")
    assert backend(checked(served, file), "bucket")["is_new"] is False
    assert "all are where this config wants them" in run_entrepot("plan", "--site", str(served.dir)).stdout


def test_what_a_reload_would_refuse_is_said(served: Endpoint, cloud: S3Server) -> None:
    assert "CLOUD_SECRET is not set" in backend(checked(served, edited(served, cloud.url), {}), "bucket")["problem"]
    absent = edited(served, cloud.url, ("create_bucket = true", "create_bucket = false"))
    assert "there is no such bucket" in backend(checked(served, absent), "bucket")["problem"]
    away = edited(served, "http://127.0.0.1:9")
    assert backend(checked(served, away), "bucket")["problem"]
    restart = edited(served, cloud.url, ("workers = 0", "workers = 2"))
    assert checked(served, restart)["restart"] == ["server.workers"]
    gone = edited(served, cloud.url, ("[backends.disk]", "[backends.other]"), ('"disk"', '"other"'))
    assert any("backends.disk: is still written to" in each for each in checked(served, gone)["refused"])
    text = run_entrepot(
        *("config", "check", str(gone), "--site", str(served.dir), "--open"), environment=ENVIRONMENT, check=False
    ).stdout
    assert "a reload would FAIL" in text
    assert run_entrepot("config", "check", str(gone), "--open", check=False).returncode != 0


def test_a_backend_that_is_not_in_force_yet_is_tested(served: Endpoint, cloud: S3Server) -> None:
    file = edited(served, cloud.url)
    command = ("backend", "test", "bucket", "--site", str(served.dir), "--seconds", "0.1")
    refused = run_entrepot(*command, environment=ENVIRONMENT, check=False)
    assert "the config names no backend 'bucket'" in refused.stderr
    done = run_entrepot(*command, "--config", str(file), environment=ENVIRONMENT, check=False)
    assert (done.returncode, "there is no such bucket" in done.stdout) == (3, True)
    s3 = boto3.client(
        "s3",
        endpoint_url=cloud.url,
        aws_access_key_id="CLOUDKEY",
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    s3.create_bucket(Bucket="blocks")
    done = run_entrepot(*command, "--config", str(file), environment=ENVIRONMENT)
    assert "ok: the backend answers, and no other site has claimed it" in done.stdout
    assert "FAILED" not in done.stdout
    assert "Contents" not in s3.list_objects_v2(Bucket="blocks")
    s3.put_object(Bucket="blocks", Key="entrepot/.entrepot/marker", Body=b"another site's")
    done = run_entrepot(*command, "--config", str(file), environment=ENVIRONMENT, check=False)
    assert done.returncode == 3


def test_a_backend_that_lost_its_marker_is_found(served: Endpoint) -> None:
    (served.dir / "blocks" / ".entrepot" / "marker").unlink()
    facts = checked(served, served.dir / "entrepot.toml")
    assert "does not have this site's marker" in backend(facts, "disk")["problem"]


def test_the_folder_of_a_backend_is_moved_as_the_page_says(tmp_path: Path) -> None:
    site, moved = tmp_path / "site", tmp_path / "moved"
    with started(site, ["--workers", "1"]) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="key", Body=b"x" * 300_000)
    shutil.copytree(site / "blocks", moved)
    change_config(site, 'path = "blocks"', f'path = "{moved}"')
    assert "backend disk: ok" in run_entrepot("config", "check", "--open", "--site", str(site)).stdout
    shutil.rmtree(site / "blocks")
    with started(site, ["--workers", "1"]) as (endpoint, _):
        assert client(endpoint).get_object(Bucket="bucket", Key="key")["Body"].read() == b"x" * 300_000
    assert run_entrepot("fsck", str(site), "--read").returncode == 0
