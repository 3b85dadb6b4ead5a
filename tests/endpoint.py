"""A whole Entrepot for tests: a site of its own, served by the real command in processes of its own.

`started()` is for tests that stop, kill or configure their server; those that only talk to one take the
`endpoint` fixture, which the whole run shares.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.timing import VARIABLE
from tests.fork_server import COMMAND_LINE, Forked
from tests.new_sites import ACCESS_KEY, SECRET_KEY, new_site

ROOT = Path(__file__).parent.parent
ENTREPOT = [sys.executable, "-c", COMMAND_LINE]
EXECUTED = [sys.executable, "-m", "gateway.cli.main"]
"""The same, whose processes are executed and not forked (`tests.fork_server`): none shares memory with another."""
QUICK = "scale=0.2"
"""The timing of served sites: background work looks again sooner than in production (`gateway.timing`)."""
CALM = "scale=3"
"""The timing of sites that many tests share: where nothing is asked of them, they take little processor time."""
START_WITHIN_S = 180
STOP_WITHIN_S = 180


@dataclass(frozen=True)
class Endpoint:
    """Where a server answers, and who may speak to it. *dir* holds its site, *log* what it wrote to stderr."""

    url: str
    access_key: str
    secret_key: str
    region: str
    dir: Path
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with AWS's own variables set to this endpoint, and no other credentials."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return clean | {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


def command_environment() -> dict[str, str]:
    """What `entrepot` is run with: this checkout's code, and root credentials that tests know."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "ENTREPOT_ROOT_ACCESS_KEY": ACCESS_KEY,
        "ENTREPOT_ROOT_SECRET_KEY": SECRET_KEY,
    }


def run_entrepot(
    *arguments: str, timeout_s: float = 600, check: bool = True, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one `entrepot` command to its end; its output is part of the error where *check* finds it failed."""
    command = [*ENTREPOT, *arguments]
    with Forked(
        command,
        env=command_environment() | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check and done.returncode:
        raise AssertionError(f"entrepot {' '.join(arguments)} → {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def announced(process: subprocess.Popen[bytes], out: Path, log: Path) -> str:
    """The URL on the `endpoint:` line that a starting server prints, once it has."""
    deadline = time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline:
        if found := re.search(r"^endpoint: (\S+)$", out.read_text(), re.MULTILINE):
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.02)
    said = f"{out.read_text()}\n{log.read_text()[-4000:]}"
    raise AssertionError(f"no endpoint after {START_WITHIN_S} s (exit status {process.poll()})\n{said}")


def stop(process: subprocess.Popen[bytes]) -> int:
    """Ask a server to stop and wait for it; its whole process group is killed where it does not."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


@contextmanager
def started(
    site: Path,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = tuple(ENTREPOT),
) -> Iterator[tuple[Endpoint, subprocess.Popen[bytes]]]:
    """Serve *site* (made first where it is not there) on a free port until the block ends."""
    if not site.exists():
        new_site(site)
    out, log = site.with_name(site.name + ".out"), site.with_name(site.name + ".log")
    with out.open("wb") as out_file, log.open("ab") as log_file:
        process = Forked(
            [*command, "serve", str(site), "--listen", "127.0.0.1:0", *options],
            env=command_environment() | {VARIABLE: QUICK} | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=log_file,
            start_new_session=True,
        )
    try:
        url = announced(process, out, log)
        yield Endpoint(url, ACCESS_KEY, SECRET_KEY, "us-east-1", site, log), process
    finally:
        if process.poll() is None:
            status = stop(process)
            # a test that kills a server may leave the block before the server's end is known here
            assert status in (0, -signal.SIGKILL), f"the server ended with {status}\n{log.read_text()[-4000:]}"
