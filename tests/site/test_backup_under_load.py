"""A site that is backed up while clients write to it, and restored while it is still served."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from gateway.journal.sqlite.read_store import ReadStore
from tests.endpoint import Endpoint, run_entrepot, started
from tests.new_sites import new_site
from tests.site.running import change_config, client, counted, until

CLIENTS = 8
KEYS = 40
PAUSE_SECONDS = 0.05
"""Between two puts of a client, since the disk of this test may be memory, which the load fills."""
CONSTANT_KEYS, AT_ONCE = 400, 32
"""How many objects are never overwritten, and how many of them are put at a time, so that they share packs. Nine in ten
of them are deleted after the backup."""
IDS = ("file", "dir", "run", "body", "session")


def body(key: str, generation: int) -> bytes:
    """Return what put number *generation* of *key* stores. One key of each client has a large body."""
    size = (9 << 20) if key.endswith("-0") else 3_000
    return (f"{key} {generation} ".encode() * (size // 8))[:size]


class Load:
    """Clients that overwrite their keys in turn, and note for each key which put was begun and acknowledged last."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._stop = threading.Event()
        self.begun: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self._pool = ThreadPoolExecutor(CLIENTS)
        self._clients = [self._pool.submit(self._put, number) for number in range(CLIENTS)]

    def _put(self, number: int) -> None:
        s3 = client(self._endpoint)
        generation = 0
        while not self._stop.is_set():
            generation += 1
            for n in range(KEYS // CLIENTS):
                key = f"{number}-{n}"
                self.begun[key] = generation
                s3.put_object(Bucket="kept", Key=key, Body=body(key, generation))
                self.acknowledged[key] = generation
                self._stop.wait(PAUSE_SECONDS)

    def wait(self, generations: int) -> None:
        done = len(self.acknowledged) + generations * KEYS
        until(lambda: sum(self.acknowledged.values()) >= done or self._failed(), "the load")

    def _failed(self) -> bool:
        return any(each.done() and each.exception() for each in self._clients)

    def stop(self) -> None:
        self._stop.set()
        for each in self._clients:
            each.result()
        self._pool.shutdown()


def ids(site: Path) -> set[int]:
    store = ReadStore(site / "journal" / "journal.db")
    try:
        return {row[0] for table in IDS for row in store.query(f"SELECT id FROM {table}")}
    finally:
        store.close()


@pytest.mark.slow
def test_what_was_acknowledged_before_a_backup_under_load_is_in_the_restored_site(tmp_path: Path) -> None:
    site, saved, anew = tmp_path / "site", tmp_path / "saved", tmp_path / "anew"
    new_site(site)
    change_config(site, "recheck_seconds = 3600.0", "recheck_seconds = 0.0")
    with started(site) as (endpoint, process):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        put_at_once(endpoint)
        load = Load(endpoint)
        load.wait(3)
        before = dict(load.acknowledged)
        manifest = json.loads(run_entrepot("backup", str(site), str(saved), "--json").stdout)
        after = dict(load.begun)
        overwrite_and_delete(endpoint, load)
        load.stop()
        restored = restore_beside(process, endpoint, saved, anew)
    assert restored["incarnation"] == manifest["incarnation"] + 1
    with started(anew) as (endpoint, _):
        s3 = client(endpoint)
        for n in range(CONSTANT_KEYS):
            assert s3.get_object(Bucket="kept", Key=f"still {n}")["Body"].read() == body("still", n)
        for key, least in before.items():
            data = s3.get_object(Bucket="kept", Key=key)["Body"].read()
            assert any(data == body(key, each) for each in range(least, after[key] + 1)), key
        load = Load(endpoint)
        load.wait(2)
        load.stop()
        for key, generation in load.acknowledged.items():
            assert s3.get_object(Bucket="kept", Key=key)["Body"].read() == body(key, generation)
        assert run_entrepot("fsck", str(anew), "--read", check=False).returncode == 0
    drawn = {each for each in ids(anew) if each >> 48 == restored["incarnation"]}
    assert drawn, "the new incarnation drew ids"
    assert not drawn & ids(site)


def put_at_once(endpoint: Endpoint) -> None:
    s3 = client(endpoint, max_pool=AT_ONCE)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(
            pool.map(
                lambda n: s3.put_object(Bucket="kept", Key=f"still {n}", Body=body("still", n)), range(CONSTANT_KEYS)
            )
        )


def overwrite_and_delete(endpoint: Endpoint, load: Load) -> None:
    """Overwrite and delete objects after the backup, until blocks have died and a pack was compacted."""
    s3 = client(endpoint)
    for n in range(CONSTANT_KEYS):
        if n % 10:
            s3.delete_object(Bucket="kept", Key=f"still {n}")
    load.wait(3)
    until(lambda: counted(endpoint, "entrepot_keeper_done_total", kind="extents moved") > 0, "a compaction")
    until(lambda: counted(endpoint, "entrepot_backlog", kind="dead blocks") > 0, "blocks that died")


def restore_beside(process: Popen[bytes], endpoint: Endpoint, saved: Path, anew: Path) -> Any:
    """Restore the backup while the original site is served, which then ends and says why. Return the command's JSON."""
    key = str(endpoint.dir / "master.key")
    restored = json.loads(
        run_entrepot("restore", "--take-over", "--yes", str(saved), str(anew), "--master-key", key, "--json").stdout
    )
    assert process.wait(60) == 1
    last_line = endpoint.log.read_text().splitlines()[-1]
    assert last_line.startswith("entrepot: the keeper cannot run: backend 'disk': it belongs to site ")
    assert f"incarnation {restored['incarnation']}" in last_line
    return restored
