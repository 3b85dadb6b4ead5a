"""radosgw, Ceph's S3: one monitor, one OSD that keeps its objects in memory, one gateway. A real production server.

Debian: radosgw ceph-mon ceph-osd ceph-common (`tests/install-clients`). Everything lies in one folder, nothing asks
for authentication but S3 itself, and the three processes end with the block.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.servers.running import S3Server, absent, answers, process, wait_until

PROGRAMS = ("radosgw", "ceph-mon", "ceph-osd", "ceph", "monmaptool", "radosgw-admin")
COMMAND_WITHIN_S = 180
DOMAIN = "s3.test"  # for bucket.s3.test; it has no address, so tests go there through a proxy
ACCESS_KEY, SECRET_KEY = "RGWTESTACCESSKEY0000", "rgw/test+secret=key0123456789abcdefghijkl"
QUOTA_ACCESS_KEY, QUOTA_OBJECTS = "RGWQUOTAACCESSKEY000", 3

_CONF = """\
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{mon_port}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
ms bind msgr2 = false
ms bind ipv6 = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon data avail crit = 0
mon data avail warn = 0
mon allow pool size one = true
mon allow pool delete = true
mon warn on pool no redundancy = false
run dir = {folder}/run
crash dir = {folder}/crash
admin socket = {folder}/run/$name.asok
pid file = {folder}/run/$name.pid
log file = {folder}/$name.log
keyring = {folder}/keyring

[mon]
mon data = {folder}/mon
mon initial members = a
mon cluster log file = {folder}/cluster.log

[osd]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 4294967296

[client.rgw]
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw dns name = {DOMAIN}
rgw enable usage log = false
rgw bucket quota ttl = 0
rgw user quota bucket sync interval = 1
rgw thread pool size = 64
"""


def require() -> None:
    """Skip the test where a program of Ceph is not installed."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        absent("radosgw", f"no {', '.join(missing)}; run tests/install-clients")


@contextmanager
def radosgw(folder: Path) -> Iterator[S3Server]:
    """A cluster of one in *folder* with the user whose keys stand above, until the block ends."""
    require()
    for name in ("run", "crash", "mon", "osd", "rgw"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    fsid, port, mon_port = str(uuid.uuid4()), free_port(), free_port()
    conf = folder / "ceph.conf"
    conf.write_text(_CONF.format(fsid=fsid, folder=folder, port=port, mon_port=mon_port, DOMAIN=DOMAIN))
    (folder / "keyring").touch()
    cluster = _Cluster(folder, os.environ | {"CEPH_CONF": str(conf)})
    with ExitStack() as stack:
        _start_monitor(cluster, stack, fsid, mon_port)
        _start_osd(cluster, stack)
        gateway = stack.enter_context(cluster.start("radosgw", "client.rgw"))
        wait_until(lambda: answers(port), "radosgw", cluster.log, gateway)
        _make_users(cluster)
        yield S3Server(f"http://127.0.0.1:{port}", ACCESS_KEY, SECRET_KEY, region="")


class _Cluster:
    """Where it lies, and how its commands are run."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment, self.log = folder, environment, folder / "out.log"

    def start(self, program: str, name: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """One of its servers, until the block ends."""
        return process([program, "--foreground", "--name", name], self.log, self.environment)

    def run(self, *command: str, tries: int = 1) -> str:
        """One command to its end. What it prints is part of the error where it fails *tries* times."""
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": COMMAND_WITHIN_S}
        for _ in range(tries):
            done = subprocess.run(command, env=self.environment, check=False, **options)
            if done.returncode == 0:
                return str(done.stdout)
        raise AssertionError(f"{command} → {done.returncode}\n{done.stdout}\n{done.stderr}")

    def ceph(self, *command: str) -> str:
        """A question or an order to the monitor, which now and then refuses a client that has not its map yet."""
        return self.run("ceph", "--connect-timeout", str(COMMAND_WITHIN_S), *command, tries=5)


def _start_monitor(cluster: _Cluster, stack: ExitStack, fsid: str, port: int) -> None:
    monmap = str(cluster.folder / "monmap")
    cluster.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v1:127.0.0.1:{port}]", monmap)
    cluster.run("ceph-mon", "--mkfs", "--id", "a", "--monmap", monmap)
    monitor = stack.enter_context(cluster.start("ceph-mon", "mon.a"))
    wait_until(lambda: answers(port), "ceph-mon", cluster.log, monitor)


def _start_osd(cluster: _Cluster, stack: ExitStack) -> None:
    """The OSD may end once before it has the monitor's map: then it is started again."""
    osd_fsid = str(uuid.uuid4())
    cluster.ceph("osd", "new", osd_fsid, "0")
    cluster.ceph("osd", "crush", "add", "osd.0", "1.0", "root=default", "host=h")
    cluster.run("ceph-osd", "--mkfs", "--id", "0", "--osd-uuid", osd_fsid)
    running = [stack.enter_context(cluster.start("ceph-osd", "osd.0"))]

    def up() -> bool:
        if running[-1].poll() is not None and len(running) < 5:
            running.append(stack.enter_context(cluster.start("ceph-osd", "osd.0")))
        return bool(json.loads(cluster.ceph("osd", "stat", "--format", "json"))["num_up_osds"])

    wait_until(up, "ceph-osd", cluster.log)


def _make_users(cluster: _Cluster) -> None:
    """One who may do everything with what is its own, and one whose quota is a few objects."""
    admin = ("radosgw-admin", "--name", "client.rgw")
    for uid, access_key in (("tester", ACCESS_KEY), ("narrow", QUOTA_ACCESS_KEY)):
        keys = ("--access-key", access_key, "--secret-key", SECRET_KEY)
        cluster.run(*admin, "user", "create", "--uid", uid, "--display-name", uid, *keys)
    quota = ("--quota-scope", "user", "--uid", "narrow")
    cluster.run(*admin, "quota", "set", *quota, "--max-objects", str(QUOTA_OBJECTS))
    cluster.run(*admin, "quota", "enable", *quota)
