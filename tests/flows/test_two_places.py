"""A second place: a policy asks for a copy there, it comes to be, the first place goes away, and everything is read."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.endpoint import Endpoint, run_entrepot, started
from tests.files import block_files
from tests.new_sites import new_site
from tests.site.running import change_config, client, counted, until

SECOND = """
[clusters.away]

[[lines]]
clusters = ["home", "away"]
latency_seconds = 0.001
bandwidth = "10 Gbit/s"

[backends.second]
type = "local"
cluster = "away"
path = "second"
"""
"""In another cluster, so that what can be read in the first place is read there, however fast either is."""
VALUES = {f"small-{n}": random.Random(n).randbytes(4_000 + n) for n in range(20)} | {
    "large": random.Random("large").randbytes(20 << 20)
}


def ask_for_second_copies(folder: Path) -> None:
    config = folder / "entrepot.toml"
    config.write_text(config.read_text() + SECOND)
    change_config(folder, 'name = "entrepot"', 'name = "entrepot"\ncluster = "home"')
    change_config(folder, 'keep = ["disk"]', 'keep = ["disk", "second"]')


def told(endpoint: Endpoint, *arguments: str) -> Any:
    return json.loads(run_entrepot(*arguments, "--json").stdout)


def status(endpoint: Endpoint) -> Any:
    return told(endpoint, "status", str(endpoint.dir))


def settled(endpoint: Endpoint) -> Any:
    found = status(endpoint)
    return found if found["settled"] and not found["backlog"] else None


def read_all(endpoint: Endpoint) -> None:
    s3 = client(endpoint)
    for key, value in VALUES.items():
        assert s3.get_object(Bucket="bucket", Key=key)["Body"].read() == value, key


def damage(place: Path, most: int) -> None:
    """One bit of so many blocks there."""
    for path in block_files(place)[:most]:
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.chmod(0o600)
        path.write_bytes(raw)


def all_mended(endpoint: Endpoint) -> bool:
    """Whoever reads says what is bad, a few a second."""
    read_all(endpoint)
    return run_entrepot("fsck", str(endpoint.dir), "--read", check=False).returncode == 0


def site_option(endpoint: Endpoint) -> tuple[str, str]:
    return ("--site", str(endpoint.dir))


def test_a_policy_that_asks_for_a_second_copy_gets_it_and_the_first_place_may_go(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    with started(folder, ["--workers", "2"]) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="bucket")
        for key, value in VALUES.items():
            s3.put_object(Bucket="bucket", Key=key, Body=value)
        assert settled(endpoint)

        # a second copy of all that there is, and of what comes
        ask_for_second_copies(folder)
        run_entrepot("reload", str(folder))
        s3.put_object(Bucket="bucket", Key="small-0", Body=VALUES["small-0"])
        until(lambda: settled(endpoint), "the second copies")

        def made_twice() -> int:
            """How many blocks both hold, once the one that was overwritten is deleted."""
            held = {use["name"]: use["blocks"] for use in status(endpoint)["placement"]}
            return int(held["disk"]) if held["disk"] == held["second"] > 3 else 0

        made = until(made_twice, "the same blocks in both places")
        until(lambda: counted(endpoint, "entrepot_keeper_done_total", kind="copies made") >= made, "their count")
        explained = told(endpoint, "explain", "s3://bucket/large", *site_option(endpoint))
        (group,) = explained["lies"]["groups"]
        assert (group["on"], group["should"]) == (["disk", "second"], ["disk", "second"])
        assert [each["backend"] for each in group["order"]] == ["disk", "second"]
        assert told(endpoint, "backend", "lost", "disk", *site_option(endpoint))["objects"] == []

        # what is damaged in one place is served from the other, and mended
        damage(folder / "blocks", 3)
        until(lambda: all_mended(endpoint), "all of them to be mended")
        until(lambda: counted(endpoint, "entrepot_keeper_done_total", kind="copies mended") > 0, "their count")

        # what nobody reads there is mended when it is looked for
        damage(folder / "second", 2)
        block_files(folder / "second")[-1].unlink()
        looked = run_entrepot("fsck", str(folder), "--read", "--mend", "--json", check=False)
        assert (looked.returncode, json.loads(looked.stdout)["to_mend"]) == (3, 3)
        until(lambda: run_entrepot("fsck", str(folder), "--read", check=False).returncode == 0, "them to be mended")

        # the first place drains, and leaves
        change_config(folder, 'path = "blocks"', 'drain = true\npath = "blocks"')
        change_config(folder, "recheck_seconds = 3600.0", "recheck_seconds = 1.0")
        change_config(folder, 'ack = ["disk"]', 'ack = ["second"]')
        run_entrepot("reload", str(folder))
        emptied = until(
            lambda: next(u for u in status(endpoint)["placement"] if u["name"] == "disk")["state"] == "empty",
            "the first place to be empty",
        )
        assert emptied
        assert not block_files(folder / "blocks")
        read_all(endpoint)
        run_entrepot("fsck", str(folder), "--read")


def test_a_place_that_is_lost_says_what_is_lost_with_it_and_the_rest_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="dir/only here", Body=b"x" * 1_000)
        alone = told(endpoint, "backend", "lost", "disk", *site_option(endpoint))
        assert (alone["objects"], alone["blocks"], alone["forgotten"]) == (["s3://bucket/dir/only here"], 1, False)
        ask_for_second_copies(folder)
        run_entrepot("reload", str(folder))
        for key, value in VALUES.items():
            s3.put_object(Bucket="bucket", Key=key, Body=value)
        until(lambda: settled(endpoint), "the second copies")
    (folder / "blocks").rename(tmp_path / "away")
    change_config(folder, 'ack = ["disk"]', 'ack = ["second"]')
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        read_all(endpoint)
        assert not (folder / "blocks").exists(), "nothing may stand where it would come back"
        forgotten = told(endpoint, "backend", "lost", "disk", "--forget", *site_option(endpoint))
        assert (forgotten["objects"], forgotten["forgotten"]) == ([], True)
        until(lambda: settled(endpoint), "the copies to be counted as gone")
        uses = {use["name"]: use for use in status(endpoint)["placement"]}
        assert (uses["disk"]["state"], uses["disk"]["blocks"]) == ("lost", 0)
        read_all(endpoint)


def test_a_backend_is_tried_for_what_it_promises_and_nothing_is_left_there(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    new_site(folder)
    tried = json.loads(
        run_entrepot("backend", "test", "disk", "--site", str(folder), "--seconds", "0.1", "--json").stdout
    )
    assert tried["kept"]
    assert len(tried["promises"]) == 12
    assert {(each["verb"], each["size"], each["at_once"]) for each in tried["speeds"]} >= {("put", 4096, 16)}
    assert not block_files(folder / "blocks")
    (listed,) = json.loads(run_entrepot("backend", "list", "--site", str(folder), "--json").stdout)
    assert (listed["name"], listed["state"], listed["blocks"]) == ("disk", "in use", 0)
    assert listed["health"].startswith("answers in")
