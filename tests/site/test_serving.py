"""A site under its supervisor: what is killed comes back, what is stopped finishes, and nobody serves it twice."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import boto3
import pytest
from botocore.config import Config

from gateway.site.processes.control_channel import CONTROL_FD
from gateway.site.processes.keeper import NICENESS
from tests.endpoint import Endpoint, command_environment, run_entrepot, started
from tests.new_sites import new_site
from tests.site.running import change_config, client, counted, lines, processes, ready, until, watch


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Endpoint, Popen[bytes]]]:
    with started(tmp_path / "site") as running:
        yield running


def test_a_worker_that_is_killed_is_started_again(served: tuple[Endpoint, Popen[bytes]]) -> None:
    endpoint, _ = served
    s3 = client(endpoint)
    s3.create_bucket(Bucket="kept")
    s3.put_object(Bucket="kept", Key="a", Body=b"a")
    before = processes(endpoint)
    os.kill(before["worker 0"]["pid"], signal.SIGKILL)
    until(lambda: processes(endpoint)["worker 0"]["pid"] != before["worker 0"]["pid"], "another process")
    until(lambda: ready(endpoint), "readiness")
    for _ in range(8):  # on new connections, so that some of them meet the new worker
        assert client(endpoint).get_object(Bucket="kept", Key="a")["Body"].read() == b"a"
    assert processes(endpoint)["worker 0"]["restarts"] == 1
    assert counted(endpoint, "entrepot_process_restarts_total", process="worker 0") == 1


def test_the_keeper_gives_way_to_those_who_answer(served: tuple[Endpoint, Popen[bytes]]) -> None:
    endpoint, supervisor = served
    nice = {name: os.getpriority(os.PRIO_PROCESS, told["pid"]) for name, told in processes(endpoint).items()}
    usual = os.getpriority(os.PRIO_PROCESS, supervisor.pid)
    assert nice["keeper"] == min(19, usual + NICENESS)
    assert nice["worker 0"] == nice["committer"] == usual
    group = Path(f"/proc/{processes(endpoint)['keeper']['pid']}/autogroup")
    if group.exists() and group.read_text().strip():  # "/autogroup-123 nice 10", where sessions share the processors
        assert group.read_text().split()[-1] == str(NICENESS)


def test_the_committer_that_is_killed_is_succeeded_and_nothing_acknowledged_is_lost(
    served: tuple[Endpoint, Popen[bytes]],
) -> None:
    endpoint, _ = served
    s3 = client(endpoint)
    s3.create_bucket(Bucket="kept")

    def put(number: int) -> str:
        s3.put_object(Bucket="kept", Key=f"{number:03}", Body=b"x" * number)
        return f"{number:03}"

    with ThreadPoolExecutor(8) as pool:
        acknowledged = [pool.submit(put, number) for number in range(120)]
        until(lambda: any(each.done() for each in acknowledged), "the first answer")
        os.kill(processes(endpoint)["committer"]["pid"], signal.SIGKILL)
        keys = [each.result() for each in acknowledged]
    found = [each["Key"] for each in s3.list_objects_v2(Bucket="kept")["Contents"]]
    assert found == sorted(keys)
    until(lambda: ready(endpoint), "readiness")
    assert processes(endpoint)["committer"]["restarts"] == 1


def test_when_the_supervisor_is_killed_everybody_goes_and_the_next_finds_the_data(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with started(site) as (endpoint, process):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        s3.put_object(Bucket="kept", Key="a", Body=b"a" * 100_000)
        pids = [each["pid"] for each in processes(endpoint).values()]
        process.kill()
        process.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the processes to end")
    with started(site) as (endpoint, _):
        assert client(endpoint).get_object(Bucket="kept", Key="a")["Body"].read() == b"a" * 100_000


def test_a_process_whose_supervisor_went_while_it_started_does_not_call_that_a_failure(tmp_path: Path) -> None:
    site = tmp_path / "site"
    new_site(site)
    ours, theirs = socket.socketpair()
    ours.close()
    done = subprocess.run(
        [sys.executable, "-m", "gateway.site.processes.keeper", "keeper", str(site)],
        env=command_environment() | {CONTROL_FD: str(theirs.fileno())},
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    theirs.close()
    (line,) = map(json.loads, (done.stdout + done.stderr).splitlines())
    assert (line["level"], line["event"]) == ("warning", "ended"), line


def test_a_worker_whose_session_was_lost_goes_on_in_a_new_one(tmp_path: Path) -> None:
    site = tmp_path / "site"
    new_site(site)
    change_config(site, "lease_seconds = 10.0", "lease_seconds = 1.0")
    with started(site, ["--workers", "1"]) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        s3.put_object(Bucket="kept", Key="before", Body=b"before")
        worker = processes(endpoint)["worker 0"]["pid"]
        os.kill(worker, signal.SIGSTOP)
        until(lambda: any("is over" in line["event"] for line in lines(endpoint)), "the end of its session")
        os.kill(worker, signal.SIGCONT)
        s3.put_object(Bucket="kept", Key="after", Body=b"after")
        assert s3.get_object(Bucket="kept", Key="before")["Body"].read() == b"before"
        assert s3.get_object(Bucket="kept", Key="after")["Body"].read() == b"after"
        assert processes(endpoint)["worker 0"]["restarts"] == 0


def test_a_request_under_way_finishes_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    with started(tmp_path / "site") as (endpoint, process):
        client(endpoint).create_bucket(Bucket="kept")
        with slow_put(endpoint, "kept", "slow") as connection:
            process.kill()
            process.wait()
            time.sleep(0.5)
            connection.sendall(b"56789")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("missing", "said"),
    [("", "there is no site in this folder"), ("journal", "there is no journal in"), ("master.key", "master key file")],
)
def test_a_folder_that_is_no_whole_site_is_refused_at_once(tmp_path: Path, missing: str, said: str) -> None:
    """No process is started again and again meanwhile."""
    folder = tmp_path / "site"
    if missing:
        new_site(folder)
        gone = folder / missing
        gone.rename(tmp_path / "elsewhere")
    refused = run_entrepot("serve", str(folder), "--listen", "127.0.0.1:0", "--workers", "1", check=False)
    assert refused.returncode == 1
    assert said in refused.stderr.splitlines()[-1]
    assert refused.stderr.count('"process ended"') <= 1


def test_a_site_is_not_served_twice(served: tuple[Endpoint, Popen[bytes]]) -> None:
    endpoint, process = served
    refused = run_entrepot("serve", str(endpoint.dir), "--listen", "127.0.0.1:0", check=False)
    assert refused.returncode == 1
    assert f"is being served already at {endpoint.url} (process {process.pid})" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_address_that_is_taken_is_refused_with_a_sentence(tmp_path: Path) -> None:
    new_site(tmp_path / "site")
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = run_entrepot(
            "serve", str(tmp_path / "site"), "--listen", address, "--metrics", "127.0.0.1:0", check=False
        )
    assert refused.returncode == 1
    assert f"cannot listen on {address}: Address already in use" in refused.stderr


@contextmanager
def slow_put(endpoint: Endpoint, bucket: str, key: str) -> Iterator[socket.socket]:
    """A PUT of 10 bytes, of which 5 have been sent and 5 are awaited."""
    presigned = client(endpoint).generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": key})
    host, port = endpoint.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        target = presigned.removeprefix(endpoint.url)
        head = f"PUT {target} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 10\r\n\r\n"
        connection.sendall(head.encode() + b"01234")
        until(lambda: counted(endpoint, "entrepot_requests_in_flight") == 1, "the request to be under way")
        yield connection


def test_a_request_under_way_finishes_when_the_gateway_is_stopped(tmp_path: Path) -> None:
    with started(tmp_path / "site") as (endpoint, process):
        client(endpoint).create_bucket(Bucket="kept")
        with slow_put(endpoint, "kept", "slow") as connection:
            process.send_signal(signal.SIGTERM)
            until(lambda: any(line["event"] == "stopping" for line in lines(endpoint)), "the stop")
            time.sleep(0.2)
            connection.sendall(b"56789")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert process.wait(60) == 0
    with started(tmp_path / "site") as (endpoint, _):
        assert client(endpoint).get_object(Bucket="kept", Key="slow")["Body"].read() == b"0123456789"


def test_what_two_workers_count_is_told_as_one(served: tuple[Endpoint, Popen[bytes]]) -> None:
    endpoint, _ = served
    assert {"worker 0", "worker 1"} <= processes(endpoint).keys() or os.cpu_count() == 1
    client(endpoint).create_bucket(Bucket="kept")
    for number in range(24):
        with boto3_connection(endpoint) as s3:
            s3.put_object(Bucket="kept", Key=str(number), Body=b"x" * 100)
    for name, expected in (("entrepot_requests_total", 24), ("entrepot_request_seconds_count", 24)):
        until(lambda name=name, n=expected: counted(endpoint, name, operation="PutObject") == n, name)
    assert counted(endpoint, "entrepot_request_bytes_total") >= 2_400
    until(lambda: counted(endpoint, "entrepot_journal_commits_total") > 0, "the committer's report")
    until(lambda: counted(endpoint, "entrepot_journal_batch_commands_sum") >= 24, "the committer's report")
    assert counted(endpoint, "entrepot_backend_calls_total", verb="put", outcome="ok") > 0
    assert counted(endpoint, "entrepot_blocks_stored_total", kind="pack") > 0
    assert counted(endpoint, "entrepot_pack_bodies_sum") == 24
    assert counted(endpoint, "entrepot_loop_lag_seconds_count", process="worker") > 0
    workers = {line["process"] for line in lines(endpoint) if line.get("operation") == "PutObject"}
    assert len(workers) == 2 or os.cpu_count() == 1, "one worker had all connections, so this proved nothing"


class boto3_connection:
    """A client with a connection of its own, closed behind it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._s3 = boto3.client(
            "s3",
            endpoint_url=endpoint.url,
            aws_access_key_id=endpoint.access_key,
            aws_secret_access_key=endpoint.secret_key,
            region_name=endpoint.region,
            config=Config(s3={"addressing_style": "path"}),
        )

    def __enter__(self) -> object:
        return self._s3

    def __exit__(self, *_: object) -> None:
        self._s3.close()


def test_readiness_is_a_probe_of_committer_and_backend(served: tuple[Endpoint, Popen[bytes]]) -> None:
    endpoint, _ = served
    status, told = watch(endpoint, "/readyz")
    assert (status, told["ok"], told["probe"]["ok"]) == (200, True, True)
    assert told["probe"]["committer_seconds"] > 0
    committer = processes(endpoint)["committer"]["pid"]
    os.kill(committer, signal.SIGSTOP)
    try:
        until(lambda: not ready(endpoint), "the probe to fail")
    finally:
        os.kill(committer, signal.SIGCONT)
    until(lambda: ready(endpoint), "readiness")
    assert watch(endpoint, "/healthz")[0] == 200


def test_a_request_is_one_line_of_json(served: tuple[Endpoint, Popen[bytes]]) -> None:
    endpoint, _ = served
    s3 = client(endpoint)
    answer = s3.create_bucket(Bucket="logged")
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="logged", Key="none")

    def logged() -> list[dict[str, object]]:
        return [line for line in lines(endpoint) if line["event"] == "request"]

    until(lambda: len(logged()) == 2, "both lines")
    made, missed = logged()
    assert made["id"] == answer["ResponseMetadata"]["RequestId"]
    assert (made["operation"], made["method"], made["path"], made["status"]) == ("CreateBucket", "PUT", "/logged", 200)
    assert (missed["operation"], missed["status"], missed["error"]) == ("GetObject", 404, "NoSuchKey")
    assert made["user"] == missed["user"] == "root"
    assert isinstance(made["seconds"], float)
