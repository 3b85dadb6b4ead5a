"""What the tests share that end a served site by force: a small, quick site, and the end of all its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from gateway.site.storage.atomic_files import write_file
from gateway.timing import VARIABLE
from tests.endpoint import QUICK, ROOT, Endpoint
from tests.new_sites import new_site

SMALL_LOGS = """
import backends.local.wal, backends.local.backend, backends.local.files, gateway.journal.server.reserve
import gateway.journal.sqlite.store
backends.local.wal.GROUP_BYTES_MAX = 300 << 10
backends.local.files.SYNC_ALL_FROM = 4
backends.local.backend.WAL_BYTES = {log_bytes}
backends.local.wal.LOG_BYTES_MIN = backends.local.backend.LOG_BYTES_MIN = {log_bytes}
gateway.journal.server.reserve.CHECKPOINT_BYTES = gateway.journal.sqlite.store.CHECKPOINT_BYTES = {wal_bytes}
"""
"""Python runs this in each process before anything else: small logs. Sizes are no part of a `Timing`."""


def quick(
    folder: Path, *, turn_seconds: float = 0.5, log_bytes: int = 1 << 20, wal_bytes: int = 64 << 20
) -> dict[str, str]:
    """The environment of processes with small logs that turn over often. *folder* is made for it."""
    folder.mkdir()
    text = SMALL_LOGS.format(log_bytes=log_bytes, wal_bytes=wal_bytes)
    (folder / "sitecustomize.py").write_text(text)
    timing = f"{QUICK}; drivers.log_turn_seconds={turn_seconds}"
    return {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", VARIABLE: timing}


def make_site(folder: Path, *, workers: int) -> None:
    """Make a site of so many gateway processes, whose leases end soon and which keeps old copies for a second."""
    new_site(folder)
    set_quick(folder, workers=workers)


def set_quick(folder: Path, *, workers: int) -> None:
    """Give a new site so many gateway processes, leases that end soon, and a second for which it keeps old copies."""
    config = folder / "entrepot.toml"
    text = config.read_text()
    assert "workers = 0 " in text
    assert "lease_seconds = 10.0" in text
    text = text.replace("workers = 0 ", f"workers = {workers} ").replace("lease_seconds = 10.0", "lease_seconds = 1.0")
    write_file(config, text.replace("recheck_seconds = 3600.0", "recheck_seconds = 1.0"))


def processes_of(folder: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Every process whose command line names the site's *folder*, of whatever life of the site, with the arguments.
    Forked processes are children of the fork server, so the supervisor's children in /proc do not tell."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(folder) in command and int(entry.name) != os.getpid():
                yield int(entry.name), command


def ticks_at_start(pid: int) -> int:
    """When a process began, in clock ticks since the machine's start (`man 5 proc_pid_stat`); 0: it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


def kill_all(folder: Path, process: subprocess.Popen[bytes] | None = None) -> None:
    """SIGKILL to every process of the site; returns once they are gone. The supervisor goes first, so that it starts
    nobody again."""
    if process is not None:
        process.kill()
        process.wait()
    while found := list(processes_of(folder)):
        for pid, _ in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def once(endpoint: Endpoint) -> Any:
    """An S3 client as root that sends each request once."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint.url,
        aws_access_key_id=endpoint.access_key,
        aws_secret_access_key=endpoint.secret_key,
        region_name=endpoint.region,
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=32, s3={"addressing_style": "path"}),
    )
