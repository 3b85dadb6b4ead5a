"""Starting a foreign server for a test run, in a folder and on a port of its own, and what a test needs of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import pytest

START_WITHIN_S = 240
STOP_WITHIN_S = 60


@dataclass(frozen=True)
class S3Server:
    """Where an S3 answers, and who may speak to it."""

    url: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"
    stays: bool = False
    """It goes on when the run has ended, with whatever lies there."""

    def at(self, url: str) -> S3Server:
        """The same, reached at *url*."""
        return replace(self, url=url)


def absent(what: str, how: str) -> NoReturn:
    """*what* is not here: skip loudly, saying *how* to get it. In CI that is a failure, since CI installs it."""
    reason = f"{what} is not installed: {how}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}. CI runs every server that it can install.")
    pytest.skip(reason)


def answers(port: int) -> bool:
    """Whether somebody accepts connections on *port*."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(ready: Callable[[], bool], what: str, log: Path, *processes: subprocess.Popen[bytes]) -> None:
    """Wait until *ready*, or fail with the end of *log*; at once where one of *processes* has ended."""
    deadline = time.monotonic() + START_WITHIN_S
    while not ready():
        ended = [each.args for each in processes if each.poll() is not None]
        if ended or time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-4_000:] if log.exists() else "(no log)"
            raise AssertionError(f"{what}: did not start (ended: {ended})\n{said}")
        time.sleep(0.05)


@contextmanager
def process(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """*command* in a process group of its own, writing to *log*, until the block ends; nothing of it is left behind."""
    with log.open("ab") as out:
        running = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(environment), start_new_session=True
        )
    try:
        yield running
    finally:
        stop(running)


def stop(running: subprocess.Popen[bytes]) -> None:
    """Ask for the end, and insist."""
    if running.poll() is None:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
