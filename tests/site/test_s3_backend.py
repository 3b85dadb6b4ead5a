"""A served site whose blocks lie in a bucket: where its secret does not turn up, and what a cloud that is away does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.endpoint import Endpoint, run_entrepot, started
from tests.files import block_files
from tests.new_sites import new_site
from tests.servers.moto import moto
from tests.servers.running import S3Server
from tests.site.running import SECRET, add_cloud, change_config, client, until, watch


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[S3Server]:
    with moto(tmp_path / "cloud") as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, cloud: S3Server) -> Path:
    new_site(tmp_path / "site")
    add_cloud(tmp_path / "site", cloud.url)
    return tmp_path / "site"


def everything_said(endpoint: Endpoint) -> str:
    shown = [run_entrepot(*words).stdout for words in (
        ("config", "show", "--site", str(endpoint.dir)),
        ("config", "show", "--site", str(endpoint.dir), "--effective", "--json"),
        ("status", str(endpoint.dir)),
    )]  # fmt: skip
    watched = [str(watch(endpoint, path)) for path in ("/metrics", "/healthz", "/readyz")]
    run = [path.read_text(errors="replace") for path in (endpoint.dir / "run").iterdir()]
    return "\n".join([endpoint.log.read_text(), *shown, *watched, *run])


def test_blocks_lie_in_the_bucket_and_its_secret_nowhere(folder: Path) -> None:
    with started(folder, environment={"CLOUD_SECRET": SECRET}) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="far")
        for key, size in (("small", 10), ("large", 9 << 20)):
            s3.put_object(Bucket="far", Key=key, Body=b"x" * size)
            assert s3.get_object(Bucket="far", Key=key)["Body"].read() == b"x" * size
        assert watch(endpoint, "/readyz")[0] == 200
        assert SECRET not in everything_said(endpoint)
        assert "CLOUD_SECRET" in everything_said(endpoint)
    local = [path for path in block_files(folder / "blocks") if path.stat().st_size > 8 << 20]
    assert local == []


def test_a_variable_that_is_not_set_is_told_by_name(folder: Path) -> None:
    with started(folder) as (endpoint, _):
        until(lambda: "the variable CLOUD_SECRET is not set" in endpoint.log.read_text(), "the line")
        s3 = client(endpoint, retries=0)
        s3.create_bucket(Bucket="near")
        s3.put_object(Bucket="near", Key="a", Body=b"a")
        s3.create_bucket(Bucket="far")
        with pytest.raises(ClientError) as failed:
            s3.put_object(Bucket="far", Key="a", Body=b"a")
        assert failed.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503


def test_a_backend_that_comes_late_is_claimed_and_used_without_a_restart(folder: Path, tmp_path: Path) -> None:
    change_config(folder, 'secret_key_env = "CLOUD_SECRET"', 'secret_key_file = "cloud.secret"')
    with started(folder) as (endpoint, _):
        s3 = client(endpoint, retries=0)
        s3.create_bucket(Bucket="far")
        with pytest.raises(ClientError):
            s3.put_object(Bucket="far", Key="a", Body=b"a")
        (folder / "cloud.secret").write_text(f"{SECRET}\n")

        def stored() -> bool:
            try:
                s3.put_object(Bucket="far", Key="a", Body=b"a")
            except ClientError:
                return False
            return True

        until(stored, "the bucket to be claimed")
        assert s3.get_object(Bucket="far", Key="a")["Body"].read() == b"a"


def test_a_cloud_that_is_away_breaks_only_what_needs_it_also_for_a_worker_that_starts(
    folder: Path, tmp_path: Path
) -> None:
    with started(folder, ["--workers", "1"], environment={"CLOUD_SECRET": SECRET}) as (endpoint, _):
        s3 = client(endpoint, retries=0)
        for bucket in ("near", "far"):
            s3.create_bucket(Bucket=bucket)
            s3.put_object(Bucket=bucket, Key="a", Body=b"a" * 1000)
        (pid,) = [int(found) for found in os.listdir("/proc") if found.isdigit() and is_moto(found, tmp_path)]
        os.kill(pid, signal.SIGSTOP)
        try:
            facts = watch(endpoint, "/healthz")[1]["processes"]["worker 0"]
            os.kill(facts["pid"], signal.SIGKILL)
            until(lambda: watch(endpoint, "/healthz")[1]["processes"]["worker 0"]["restarts"] > facts["restarts"], "it")
            until(lambda: watch(endpoint, "/healthz")[0] == 200, "all well")
            s3 = client(endpoint)
            assert s3.get_object(Bucket="near", Key="a")["Body"].read() == b"a" * 1000
            s3.put_object(Bucket="near", Key="b", Body=b"b")
            with pytest.raises(ClientError) as failed:
                client(endpoint, retries=0).put_object(Bucket="far", Key="b", Body=b"b")
            assert failed.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        finally:
            os.kill(pid, signal.SIGCONT)

        def there() -> bool:
            try:
                return bool(s3.get_object(Bucket="far", Key="a")["Body"].read() == b"a" * 1000)
            except ClientError:
                return False

        until(there, "the cloud to be there again")
        s3.put_object(Bucket="far", Key="b", Body=b"b")


def is_moto(pid: str, tmp_path: Path) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        log = os.readlink(f"/proc/{pid}/fd/1")
    except OSError:
        return False
    return b"moto.server" in command and log.startswith(str(tmp_path))
