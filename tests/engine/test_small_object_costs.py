"""What a PUT and a GET of 4 KiB cost, in counts that do not depend on time: system calls, SQLite's pages and steps.

Each count is compared with the one that was last recorded here, and may be a fifth higher. Whoever makes an operation
cheaper records the new count, so that it stays cheap.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.engine.engine import Engine
from gateway.engine.types import Caller
from gateway.identity.users import AddTenant, AddUser
from gateway.journal.columns import Checksum, Extent, pack_list
from gateway.journal.records.bytes import NewBlock
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.session_commands import COMMANDS as JOURNAL_COMMANDS
from gateway.journal.session_commands import FoundSite, OpenSession
from gateway.journal.sqlite.store import SqliteStore
from gateway.namespace.commands.buckets import MakeBucket
from gateway.namespace.commands.objects import PutObject
from gateway.site.commands import COMMANDS
from gateway.site.site import Site
from gateway.timing import VARIABLE
from tests.bench.presigned import Presigner
from tests.bench.server import Gateway, gateway
from tests.endpoint import run_entrepot
from tests.engine.bodies import get, put

MARGIN = 1.2
RECORDED = {
    "system calls of a PUT": 100,
    "system calls of a GET": 8,
    "system calls of a GET of an inline value": 13,
    "pages of a PUT's commit": 12.5,
    "steps of a PUT's commit": 440,
    "steps of a PUT's look-ups": 1,
    "steps of a GET's look-ups": 79,
}
OBJECT_BYTES = 4096
WARM, MEASURED, GETS_MEASURED = 200, 200, 1_000
WAL_FRAME_BYTES = 24 + 4096


def check(what: str, count: float) -> None:
    print(f"{what}: {count:.1f}", file=sys.stderr)
    assert count <= RECORDED[what] * MARGIN, f"{what}: {count:.1f}, where {RECORDED[what]} were recorded"


# --- system calls: of workers and committer, by strace ---------------------------------------------------------------


class Client:
    """Sends presigned requests over one connection, one after the other."""

    def __init__(self, site: Gateway) -> None:
        self._sign = Presigner(site, "bucket")
        self._connection = http.client.HTTPConnection(urlsplit(site.address).netloc)

    def send(self, method: str, first: int, count: int) -> None:
        """PUT as many objects as *count*, from number *first* on, or GET those of `WARM` in turn."""
        body = os.urandom(OBJECT_BYTES) if method == "PUT" else None
        for number in range(first, first + count):
            key = f"folder/{number if method == 'PUT' else number % WARM}"
            self._connection.request(method, self._sign(method, key), body)
            response = self._connection.getresponse()
            data = response.read()
            assert response.status == 200, data
            assert method == "PUT" or len(data) == OBJECT_BYTES


def _is_counted(pid: int) -> bool:
    """Whether a process works for requests; the others only look around now and then."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"worker" in command or b"committer" in command


def system_calls(site: Gateway, client: Client, method: str, first: int, count: int) -> float:
    """How many system calls a request takes, in the workers and the committer together."""
    pids = [pid for pid in site.pids() if _is_counted(pid)]
    assert len(pids) >= 2, pids
    with tempfile.NamedTemporaryFile("r") as summary:
        tracer = subprocess.Popen(
            ["strace", "-f", "-c", "-U", "name,calls", "-o", summary.name, *(f"--attach={pid}" for pid in pids)],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert tracer.stderr is not None
        for _ in pids:
            line = tracer.stderr.readline()
            assert "attached" in line, line
        client.send(method, first, count)
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=60)
        lines = [line.split() for line in summary.read().splitlines()]
    return next(int(line[-1]) for line in lines if line and line[0] == "total") / count


def why_not(folder: Path) -> str:
    """Why the system calls of a site in *folder* cannot be counted; empty if they can."""
    if shutil.which("strace") is None:
        return "there is no strace: tests/install-clients installs it"
    tried = subprocess.run(["strace", "-c", "true"], capture_output=True, text=True, timeout=60, check=False)
    if tried.returncode:
        return f"strace may not trace here: {tried.stderr.strip()[-300:]}"
    probe = folder / "probe"
    probe.write_bytes(b"x")
    with probe.open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            pass
        except OSError:
            return f"the file system of {folder} has no reads that do not wait (RWF_NOWAIT), so a GET takes another way"
    return ""


@pytest.mark.slow
def test_a_small_put_and_a_small_get_take_no_more_system_calls_than_recorded(disk_path: Path) -> None:
    if reason := why_not(disk_path):
        pytest.skip(reason)
    calls = {}
    with gateway(disk_path, environment={VARIABLE: "scale=1; inline.flush_seconds=3600"}) as site:
        site.client().create_bucket(Bucket="bucket")
        client = Client(site)
        client.send("PUT", 0, WARM)
        client.send("GET", 0, WARM)
        calls["system calls of a PUT"] = system_calls(site, client, "PUT", WARM, MEASURED)
        calls["system calls of a GET of an inline value"] = system_calls(site, client, "GET", 0, GETS_MEASURED)
    run_entrepot("gc", str(disk_path / "site"))  # writes the values to files
    with gateway(disk_path) as site:
        client = Client(site)
        client.send("GET", 0, WARM)
        calls["system calls of a GET"] = system_calls(site, client, "GET", 0, GETS_MEASURED)
    for what, count in calls.items():
        check(what, count)


# --- the committer's pages and steps ---------------------------------------------------------------------------------


def _put(session: int, user: int, number: int) -> PutObject:
    """A PUT of a single object into a block of its own, as a client that sends one after the other causes it."""
    block = session.to_bytes(8, "big") + number.to_bytes(16, "big")
    return PutObject(
        "bucket", b"folder/%08d" % number, user, True, OBJECT_BYTES, "0" * 32,
        (Extent(block, 16, 0, OBJECT_BYTES),), (NewBlock(block, 1, OBJECT_BYTES + 64, 1, 1),),
        1, b"", pack_list([Checksum("CRC64NVME", "FULL_OBJECT", "AAAAAAAAAAA=")]), b"",
    )  # fmt: skip


def test_the_commit_of_a_small_put_writes_no_more_pages_and_takes_no_more_steps_than_recorded(tmp_path: Path) -> None:
    path, steps = tmp_path / "journal.db", [0]
    store = SqliteStore(path)
    committer = InlineCommitter(store, {**JOURNAL_COMMANDS, **COMMANDS})
    committer.run(FoundSite("0" * 32, "here"))
    tenant = committer.run(AddTenant("default"))
    user = committer.run(AddUser("root", "default", True, "", b"", ""))
    session = committer.run(OpenSession("worker"))
    committer.run(MakeBucket("bucket", user, "root", tenant, "us-east-1", 1))
    for number in range(WARM):
        committer.run(_put(session, user, number), session)
    store.steps(steps)
    before = os.path.getsize(f"{path}-wal")
    for number in range(WARM, WARM + MEASURED):
        committer.run(_put(session, user, number), session)
    written = os.path.getsize(f"{path}-wal") - before
    store.close()
    check("pages of a PUT's commit", written / WAL_FRAME_BYTES / MEASURED)
    check("steps of a PUT's commit", steps[0] / MEASURED)


# --- the steps of what a worker looks up ------------------------------------------------------------------------------


async def test_what_a_small_put_and_a_small_get_look_up_takes_no_more_steps_than_recorded(
    site: Site, engine: Engine, root: Caller
) -> None:
    row = site.store.query_one("SELECT k.access_key FROM access_key k JOIN user u ON u.name = k.user WHERE u.root = 1")
    keys = [b"folder/%d" % number for number in range(20)]
    await put(engine, root, b"folder/first", os.urandom(OBJECT_BYTES))
    steps = [0]
    site.store.steps(steps)
    for key in keys:
        engine.credential(row[0])
        await put(engine, root, key, os.urandom(OBJECT_BYTES))
    check("steps of a PUT's look-ups", steps[0] / len(keys))
    steps[0] = 0
    for key in keys:
        engine.credential(row[0])
        await get(engine, root, key)
    check("steps of a GET's look-ups", steps[0] / len(keys))
