"""moto: S3, IAM and STS in memory, as one process. It checks no signature unless it is told to; region by region."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.ports import free_port
from tests.servers.running import S3Server, absent, answers, process, wait_until


@contextmanager
def moto(folder: Path) -> Iterator[S3Server]:
    """A `moto_server` until the block ends; its log is in *folder*."""
    if find_spec("moto") is None:
        absent("moto", "it is among the test dependencies; run `make env`")
    folder.mkdir(parents=True, exist_ok=True)
    port, log = free_port(), folder / "moto.log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with process(command, log, clean) as running:
        wait_until(lambda: answers(port), "moto_server", log, running)
        yield S3Server(f"http://127.0.0.1:{port}", "motoaccesskey", "motosecretkey")


@contextmanager
def silent(folder: Path) -> Iterator[None]:
    """Have the server whose log is in *folder* say nothing until the block ends: connections are taken, and no more."""
    (pid,) = [int(found) for found in os.listdir("/proc") if found.isdigit() and _logs_to(found, folder / "moto.log")]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _logs_to(pid: str, log: Path) -> bool:
    try:
        return (
            Path(os.readlink(f"/proc/{pid}/fd/1")) == log
            and b"moto.server" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
    except OSError:
        return False
