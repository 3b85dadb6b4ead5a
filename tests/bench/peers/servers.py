"""The servers that are compared: Entrepot, MinIO and versitygw, each on a folder of its own on the same disk.

Entrepot and MinIO answer a PUT once it is on stable storage; versitygw does not sync.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.server import Target, gateway, wait_for
from tests.ports import free_port
from tests.servers.minio import minio
from tests.servers.running import process

ENTREPOT, MINIO, VERSITYGW = "Entrepot", "MinIO", "versitygw"
BUILT = Path(__file__).parents[3] / ".make" / "bin"
ACCESS_KEY, SECRET_KEY = "versitygwaccess", "versitygwsecret"


@contextmanager
def servers(folder: Path, peers: Collection[str] = (MINIO, VERSITYGW)) -> Iterator[dict[str, Target]]:
    """Entrepot and *peers*, running at the same time, by name. The caller sends requests to one at a time."""
    with ExitStack() as stack:
        running: dict[str, Target] = {ENTREPOT: stack.enter_context(gateway(folder / "entrepot"))}
        if MINIO in peers:
            peer = stack.enter_context(minio(folder / "minio"))
            running[MINIO] = Target(peer.url, peer.access_key, peer.secret_key)
        if VERSITYGW in peers:
            running[VERSITYGW] = stack.enter_context(_versitygw(folder / "versitygw"))
        yield running


@contextmanager
def _versitygw(folder: Path) -> Iterator[Target]:
    """A versitygw over the POSIX file system. Raises `RuntimeError` if it was not built."""
    program = BUILT / "versitygw"
    if not program.exists() and shutil.which("versitygw") is None:
        raise RuntimeError("there is no versitygw: `make versitygw` builds it, where there is Go")
    data = folder / "data"
    data.mkdir(parents=True)
    port = free_port()
    command = [
        str(program) if program.exists() else "versitygw",
        "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(data),
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "VGW_", "ROOT_"))}
    with process(command, folder / "versitygw.log", environment):
        wait_for(port)
        yield Target(f"http://127.0.0.1:{port}", ACCESS_KEY, SECRET_KEY)
