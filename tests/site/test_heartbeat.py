"""A process whose event loop hangs is killed and started again; one that is held up otherwise is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from gateway.failpoints import FROM_VARIABLE, VARIABLE
from gateway.journal.heartbeat import Heartbeat, is_suspended
from gateway.timing.durations import ProcessesTiming
from gateway.timing.overrides import VARIABLE as TIMING
from tests.endpoint import Endpoint, run_entrepot, started
from tests.logs import logged
from tests.site.running import change_config, client, counted, processes, ready, until

QUICK = "processes.report_seconds=0.5; processes.hung_seconds=5"
TIMES = ProcessesTiming()
SILENT_TICKS, HUNG_TICKS, STARTING_TICKS = (
    round(seconds / TIMES.report_seconds)
    for seconds in (TIMES.silence_seconds, TIMES.hung_seconds, TIMES.hung_starting_seconds)
)
POINTS = {"keeper": "release-ready", "committer": "batch-answered", "worker 0": "command-ready"}
HANGING = "release-ready=hang;batch-answered=hang@6;command-ready=hang@40"
"""Late enough for the worker that the other two come to their points as well."""


def ticks(heartbeat: Heartbeat, count: int, *, suspended: bool = False) -> None:
    for _ in range(count):
        heartbeat.tick(suspended=suspended)


def test_a_process_that_misses_many_ticks_hangs_and_one_word_of_it_ends_the_count() -> None:
    heartbeat = Heartbeat(TIMES)
    ticks(heartbeat, HUNG_TICKS - 1)
    assert not heartbeat.is_hung(ready=True)
    heartbeat.record_report()
    ticks(heartbeat, HUNG_TICKS - 1)
    assert not heartbeat.is_hung(ready=True)
    ticks(heartbeat, 1)
    assert heartbeat.is_hung(ready=True)


def test_a_process_that_starts_has_longer() -> None:
    heartbeat = Heartbeat(TIMES)
    ticks(heartbeat, STARTING_TICKS - 1)
    assert not heartbeat.is_hung(ready=False)
    ticks(heartbeat, 1)
    assert heartbeat.is_hung(ready=False)


def test_a_process_that_may_not_run_is_not_well_but_does_not_hang() -> None:
    heartbeat = Heartbeat(TIMES)
    ticks(heartbeat, SILENT_TICKS, suspended=True)
    assert not heartbeat.is_responsive
    ticks(heartbeat, 10 * STARTING_TICKS, suspended=True)
    assert not heartbeat.is_hung(ready=True)
    ticks(heartbeat, HUNG_TICKS)
    assert heartbeat.is_hung(ready=True), "it may run again, and does not"


def test_a_process_that_was_stopped_is_told_from_one_that_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: is_suspended(process.pid), "the stop")
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: not is_suspended(process.pid), "its end")
        process.kill()
    assert not is_suspended(process.pid)


@pytest.mark.alone  # on a machine that does much else, more than those that hang are silent for long
def test_whoever_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    """The worker, the committer and the keeper: each comes to a point at which it stands still."""
    site, armed = tmp_path / "site", tmp_path / "armed"
    run_entrepot("init", str(site))
    change_config(site, "lease_seconds = 10.0", "lease_seconds = 1.0")
    environment = {TIMING: QUICK, VARIABLE: HANGING, FROM_VARIABLE: str(armed)}
    with started(site, ["--workers", "1"], environment) as (endpoint, _):
        client(endpoint).create_bucket(Bucket="kept")
        pids = {name: told["pid"] for name, told in processes(endpoint).items()}
        with overwriting(endpoint):
            armed.touch()
            for point in POINTS.values():
                until(
                    lambda point=point: f"failpoint {point}: hang" in endpoint.log.read_text(), f"{point} to be reached"
                )
            armed.unlink()
        for name, pid in pids.items():
            until(lambda name=name, pid=pid: processes(endpoint)[name]["pid"] != pid, f"another {name}")
            until(lambda name=name: counted(endpoint, "entrepot_process_hangs_total", process=name) >= 1, "its count")
        until(lambda: ready(endpoint), "readiness")
        client(endpoint).put_object(Bucket="kept", Key="after", Body=b"after")
        until(lambda: said_to_hang(endpoint) == set(pids), "the log's lines about all of them")


def said_to_hang(endpoint: Endpoint) -> set[str]:
    """The processes of which the log says that they hung."""
    lines = [json.loads(line) for line in logged(endpoint.log) if line.startswith("{")]  # failpoints speak otherwise
    return {line["name"] for line in lines if "its event loop hung" in line.get("why", "")}


class overwriting:
    """Clients that overwrite one key, again and again, whatever they are answered, until the block ends."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._s3 = boto3.client(
            "s3", endpoint_url=endpoint.url, aws_access_key_id=endpoint.access_key,
            aws_secret_access_key=endpoint.secret_key, region_name=endpoint.region,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}, read_timeout=2),
        )  # fmt: skip
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._overwrite) for _ in range(4)]

    def _overwrite(self) -> None:
        while not self._ending.is_set():
            with suppress(ClientError, BotoCoreError):
                self._s3.put_object(Bucket="kept", Key="a", Body=os.urandom(100))

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
