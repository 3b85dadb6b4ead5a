"""One radosgw for all processes of a test run. The first test that asks for it starts it; it ends when the last process
that uses it has ended, however that ended.

A process of its own runs the server and then waits for an exclusive lock on `users.lock`, of which each process that
uses the server holds a shared lock. Tests share the server with others that run at the same time: they use buckets of
their own, and put `between` before it where they disturb it or count connections.
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
    """This run's radosgw, for as long as the block lasts."""
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
    """Where the shared radosgw keeps its files, those of `radosgw()` in `data`."""
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
    """Run the server until nobody uses it."""
    address, half = folder / "address.json", folder / "address.half"
    with radosgw(folder / "data") as server:
        half.write_text(json.dumps(asdict(server)))
        half.rename(address)
        with _locked(folder / "users.lock", fcntl.LOCK_EX):
            address.unlink()  # who waits for the lock starts another


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, how)
        yield


if __name__ == "__main__":
    main(Path(sys.argv[1]))
