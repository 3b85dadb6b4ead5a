"""A backend that does not answer is reported within seconds, with or without traffic, and so is its return."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.timing import Timing
from tests.endpoint import Endpoint, run_entrepot, started
from tests.new_sites import new_site
from tests.servers.between import Forward, Heard, Reply, between, honest, refusal
from tests.servers.moto import moto
from tests.servers.running import S3Server
from tests.site.running import SECRET, add_cloud, client, counted, lines, until, watch
from tests.site.test_s3_backend import is_moto


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[S3Server]:
    with moto(tmp_path / "cloud") as server:
        yield server


def test_the_longest_time_until_a_report_is_ten_seconds() -> None:
    timing = Timing()
    between = max(timing.markers.local_seconds, timing.markers.distant_seconds)
    assert between + timing.markers.answer_seconds + timing.processes.report_seconds <= 10


def reported(endpoint: Endpoint, backend: str) -> str:
    """The line of `status` on that backend, once it says that it is unavailable everywhere."""

    def said() -> str:
        state = watch(endpoint, "/healthz")[1]
        if state["backends"][backend]["up"] or counted(endpoint, "entrepot_backend_up", backend=backend):
            return ""
        done = run_entrepot("status", str(endpoint.dir), check=False)
        (line,) = [each for each in done.stdout.splitlines() if each.startswith(f"backend {backend}: ")]
        return line if done.returncode == 3 else ""

    return until(said, "the report of an outage")


def test_a_bucket_that_hangs_is_reported_without_traffic(tmp_path: Path, cloud: S3Server) -> None:
    new_site(tmp_path / "site")
    add_cloud(tmp_path / "site", cloud.url)
    with started(tmp_path / "site", ["--workers", "1"], environment={"CLOUD_SECRET": SECRET}) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="far")
        s3.put_object(Bucket="far", Key="a", Body=b"a" * 1000)
        assert counted(endpoint, "entrepot_backend_up", backend="bucket") == 1
        assert watch(endpoint, "/healthz")[1]["backends"] == {"disk": {"up": True}, "bucket": {"up": True}}
        (pid,) = [int(found) for found in os.listdir("/proc") if found.isdigit() and is_moto(found, tmp_path)]
        os.kill(pid, signal.SIGSTOP)
        try:
            line = reported(endpoint, "bucket")
            assert "UNAVAILABLE since 2" in line
            assert ": no answer" in line
            assert "in use, " in line
            explained = run_entrepot("explain", "s3://far/a", "--site", str(endpoint.dir)).stdout
            assert "1. bucket: " in explained
            assert "; UNAVAILABLE since 2" in explained
            assert watch(endpoint, "/healthz")[0] == 200, "starting it again would not help"
            assert watch(endpoint, "/healthz")[1]["backends"]["disk"] == {"up": True}
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: watch(endpoint, "/healthz")[1]["backends"]["bucket"]["up"], "the bucket's return")
        facts = json.loads(run_entrepot("status", str(endpoint.dir), "--json").stdout)
        assert facts["backend_troubles"] == {}
        assert s3.get_object(Bucket="far", Key="a")["Body"].read() == b"a" * 1000


def test_a_folder_that_is_gone_is_reported_and_so_is_its_return(tmp_path: Path) -> None:
    with started(tmp_path / "site", ["--workers", "1"]) as (endpoint, _):
        blocks = endpoint.dir / "blocks"
        shutil.move(blocks, endpoint.dir / "elsewhere")
        line = reported(endpoint, "disk")
        assert "UNAVAILABLE since 2" in line
        shutil.move(endpoint.dir / "elsewhere", blocks)
        until(lambda: watch(endpoint, "/healthz")[1]["backends"]["disk"]["up"], "its return, in each process")
        assert "UNAVAILABLE" not in run_entrepot("status", str(endpoint.dir)).stdout


async def test_a_bucket_that_cannot_be_created_is_reported_with_the_reason(tmp_path: Path, cloud: S3Server) -> None:
    """And not only that it does not exist."""

    async def creates_nothing(request: Heard, forward: Forward) -> Reply:
        if request.method == "PUT" and request.target.rstrip("/") == "/blocks":
            return refusal("403 Forbidden", "AccessDenied", "you create nothing here")
        return await forward(request)

    new_site(tmp_path / "site")

    def check(url: str) -> None:
        add_cloud(tmp_path / "site", url)
        with started(tmp_path / "site", ["--workers", "1"], environment={"CLOUD_SECRET": SECRET}) as (endpoint, _):
            line = until(lambda: _line_with(endpoint, "it could not be claimed"), "the reason")
            assert "these credentials may not do this" in line
            assert [each for each in lines(endpoint) if "could not be claimed: " in str(each)]
            stands.rule = honest
            until(lambda: watch(endpoint, "/healthz")[1]["backends"]["bucket"]["up"], "the bucket")
            assert "UNAVAILABLE" not in run_entrepot("status", str(endpoint.dir)).stdout

    async with between(cloud) as stands:
        stands.rule = creates_nothing
        await asyncio.to_thread(check, stands.server.url)


def _line_with(endpoint: Endpoint, text: str) -> str:
    shown = run_entrepot("status", str(endpoint.dir), check=False).stdout
    return next((line for line in shown.splitlines() if line.startswith("backend bucket: ") and text in line), "")


def test_a_site_that_starts_without_its_backend_reports_it(tmp_path: Path, cloud: S3Server) -> None:
    new_site(tmp_path / "site")
    add_cloud(tmp_path / "site", cloud.url)
    with started(tmp_path / "site", ["--workers", "1"], environment={"CLOUD_SECRET": SECRET}) as (endpoint, _):
        client(endpoint).create_bucket(Bucket="far")
    (pid,) = [int(found) for found in os.listdir("/proc") if found.isdigit() and is_moto(found, tmp_path)]
    os.kill(pid, signal.SIGSTOP)
    try:
        with started(tmp_path / "site", ["--workers", "1"], environment={"CLOUD_SECRET": SECRET}) as (endpoint, _):
            assert ": no answer in time" in reported(endpoint, "bucket")
    finally:
        os.kill(pid, signal.SIGCONT)
