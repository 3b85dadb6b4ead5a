"""The committer of a served site is killed while workers, commands and a client in process use it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from subprocess import Popen

import pytest
from botocore.exceptions import ClientError

from gateway.errors import CommitterGone
from gateway.site.admin.users import add_user
from gateway.site.site import Site
from tests.endpoint import Endpoint, run_entrepot, started
from tests.site.running import client, entrepot, processes, until

KILLS = 6
SUCCESSOR_SECONDS = 2.0
Loop = Callable[[], None]


class Everybody:
    """Who uses the site, until `stop`; each writes down what it was answered. Nobody tries anything twice."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._stop = threading.Event()
        self.uploads: list[str] = []
        self.users: list[str] = []
        self.unknown = 0
        pool = ThreadPoolExecutor(8)
        loops: list[Loop] = [*[self._begin_uploads] * 5, self._add_users_by_command, self._add_users_in_process]
        self.running: list[Future[None]] = [pool.submit(each) for each in loops]
        pool.shutdown(wait=False)

    def _begin_uploads(self) -> None:
        """Each is a row of its own: one that was begun twice would show."""
        s3 = client(self._endpoint, retries=0)
        while not self._stop.is_set():
            try:
                self.uploads.append(s3.create_multipart_upload(Bucket="kept", Key="k")["UploadId"])
            except ClientError as error:
                # ten seconds without an answer, on a machine that has no time: whether it was done is not known
                assert error.response["Error"]["Code"] == "ServiceUnavailable"
                self.unknown += 1

    def _add_users_by_command(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            name = f"command-{number}"
            done = run_entrepot("user", "add", name, "--site", str(self._endpoint.dir), check=False)
            if done.returncode == 0:
                self.users.append(name)
            else:
                assert "commit" in done.stderr, done.stderr
                self.unknown += 1

    def _add_users_in_process(self) -> None:
        async def add() -> None:
            async with await Site.open(self._endpoint.dir) as site:
                number = 0
                while not self._stop.is_set():
                    name = f"process-{number}"
                    number += 1
                    try:
                        await add_user(site, name)
                    except CommitterGone:
                        self.unknown += 1
                    else:
                        self.users.append(name)

        asyncio.run(add())

    @property
    def failed(self) -> bool:
        return any(each.done() and each.exception() is not None for each in self.running)

    def stop(self) -> None:
        self._stop.set()
        for each in self.running:
            each.result(120)


def kill_who_commits(site: Path) -> bool:
    """Whoever holds the lock: the supervisor's committer, or that of a client which was faster."""
    try:
        os.kill(int((site / "journal" / "lock").read_text()), signal.SIGKILL)
    except (ValueError, ProcessLookupError):
        return False
    return True


def kill_and_wait(endpoint: Endpoint, everybody: Everybody) -> float:
    """Seconds until somebody was answered by the successor."""
    begun = len(everybody.uploads)
    until(lambda: kill_who_commits(endpoint.dir), "somebody to kill")
    began = time.monotonic()
    until(lambda: len(everybody.uploads) > begun + 5 or everybody.failed, "an answer")  # 5 may have been on their way
    return time.monotonic() - began


@pytest.mark.slow
def test_workers_commands_and_clients_in_process_are_answered_once_whoever_commits(tmp_path: Path) -> None:
    with started(tmp_path / "site") as (endpoint, process):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        everybody = Everybody(endpoint)
        until(lambda: everybody.users and everybody.uploads, "the first answers")
        taken = []
        for _ in range(KILLS):
            taken.append(kill_and_wait(endpoint, everybody))
            time.sleep(0.3)
        everybody.stop()
        print("seconds until the next answer:", [round(each, 1) for each in taken], "unknown:", everybody.unknown)
        assert min(taken) < SUCCESSOR_SECONDS or os.getloadavg()[0] > 2, taken
        pages = s3.get_paginator("list_multipart_uploads").paginate(Bucket="kept")
        found = [each["UploadId"] for page in pages for each in page.get("Uploads", [])]
        assert set(everybody.uploads) <= set(found), "what was acknowledged is lost"
        names = {each["name"] for each in entrepot(endpoint, "user", "list")}
        assert {*everybody.users, "root"} <= names, "what was acknowledged is lost"
        more = len(found) - len(everybody.uploads) + len(names) - len(everybody.users) - 1
        assert more <= everybody.unknown, "something was done twice, or its answer was lost"
        assert_one_supervisor(endpoint, process)
        assert run_entrepot("fsck", str(endpoint.dir)).stdout.rstrip().endswith(("clean", "wasted"))


def assert_one_supervisor(endpoint: Endpoint, process: Popen[bytes]) -> None:
    assert process.poll() is None
    assert all(each["well"] for each in processes(endpoint).values())
    assert processes(endpoint)["worker 0"]["restarts"] == 0
