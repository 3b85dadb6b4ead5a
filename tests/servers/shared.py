"""One radosgw for all processes of a test run. The first test that asks for the server starts it. The server ends when
the last process that uses it has ended, whether by itself or by a kill.

Each process that uses the server holds a shared lock on `users.lock`. A separate process runs the server and waits for
an exclusive lock on that file, which it gets once nobody uses the server. Several tests use the server at the same
time, so each test uses buckets of its own. A test that disturbs the server or counts its connections puts the proxy
`between` in front of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.new_sites import TEMPLATES
from tests.servers.radosgw import radosgw, require
from tests.servers.running import S3Server, wait_until

ROOT = Path(__file__).parents[2]


@contextmanager
def shared_radosgw() -> Iterator[S3Server]:
    """This test run's radosgw, which stays up at least until the `with` block ends."""
    require()
    folder = shared_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "users.lock", fcntl.LOCK_SH):
        address = folder / "address.json"
        with _locked(folder / "starting.lock", fcntl.LOCK_EX):
            if not address.exists():
                _start(folder, address)
        yield S3Server(**json.loads(address.read_text()))


def shared_folder() -> Path:
    """The folder with the lock files, the log and the address of the shared radosgw; its data is in `data`."""
    return Path(os.environ[TEMPLATES]) / "radosgw"


def _start(folder: Path, address: Path) -> None:
    log = folder / "shared.log"
    command = [sys.executable, "-m", "tests.servers.shared", str(folder)]
    with log.open("ab") as out:
        runner = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    wait_until(address.exists, "radosgw", log, runner)


def main(folder: Path) -> None:
    """Run the server until no process uses it."""
    address, half = folder / "address.json", folder / "address.half"
    with radosgw(folder / "data") as server:
        half.write_text(json.dumps(asdict(server)))
        half.rename(address)
        with _locked(folder / "users.lock", fcntl.LOCK_EX):
            address.unlink()  # a process that waits for the lock will start another server


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, how)
        yield


if __name__ == "__main__":
    main(Path(sys.argv[1]))
