"""Processes under measurement: a gateway as `entrepot serve` starts it, and bare servers beside it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from gateway.timing import VARIABLE
from tests.endpoint import EXECUTED, started
from tests.ports import free_port

CORES = os.cpu_count() or 2
ELSEWHERE = 10
"""How nice those are who stand for other machines."""


@contextmanager
def bare(kind: str, processes: int = CORES) -> Iterator[str]:
    """The address of a bare server of this kind, on as many processes as the gateway has workers."""
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.ceilings", kind, str(port), str(processes)]
    server = subprocess.Popen(command)
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def wait_for(port: int) -> None:
    """Until somebody listens there."""
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


@dataclass(frozen=True)
class Target:
    """An S3 server under measurement, and the keys of a user who may do everything."""

    address: str
    access_key: str
    secret_key: str

    def client(self, **config: Any) -> Any:
        """A boto3 client that retries nothing."""
        return boto3.client(
            "s3",
            endpoint_url=self.address,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
            config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}, **config),
        )


@dataclass(frozen=True)
class Gateway(Target):
    """A running gateway, the folder of its site, and its supervisor's process."""

    folder: Path
    process: subprocess.Popen[bytes]

    def pids(self) -> list[int]:
        """The supervisor and all its children."""
        found, waiting = [], [self.process.pid]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            children = Path(f"/proc/{pid}/task/{pid}/children")
            if children.exists():
                waiting.extend(int(each) for each in children.read_text().split())
        return found


@contextmanager
def gateway(
    folder: Path, *options: str, environment: Mapping[str, str] | None = None, command: Sequence[str] = tuple(EXECUTED)
) -> Iterator[Gateway]:
    """`entrepot serve` over a new site in *folder* (or the one that is there), with the defaults and *options*, and the
    pauses of production."""
    variables = {VARIABLE: "scale=1"} | dict(environment or {})
    with started(folder / "site", options, variables, command) as (endpoint, process):
        yield Gateway(endpoint.url, endpoint.access_key, endpoint.secret_key, endpoint.dir, process)
