"""The keys of a backend are replaced while the site is served: over a bucket of another Entrepot, which checks them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.endpoint import Endpoint, run_entrepot, started
from tests.new_sites import new_site
from tests.site.running import add_cloud, change_config, client, until, watch


@contextmanager
def served_over(cloud: Endpoint, folder: Path, key: dict[str, str]) -> Iterator[Endpoint]:
    """A site whose bucket `far` lies in a bucket of *cloud*."""
    new_site(folder)
    add_cloud(
        folder, cloud.url, ('"blocks"', f'"of-{key["access_key"].lower()}"'), ('"CLOUDKEY"', f'"{key["access_key"]}"'),
        ('secret_key_env = "CLOUD_SECRET"', 'secret_key_file = "cloud.secret"'), ("deadline_seconds = 3.0\n", ""),
    )  # fmt: skip
    (folder / "cloud.secret").write_text(key["secret_key"])
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        client(endpoint).create_bucket(Bucket="far")
        until(lambda: works(endpoint, "first"), "the bucket to be claimed")
        yield endpoint


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with started(tmp_path_factory.mktemp("cloud") / "site", ["--workers", "1"]) as (endpoint, _):
        yield endpoint


def new_key(cloud: Endpoint, *more: str) -> dict[str, str]:
    told: dict[str, str] = json.loads(
        run_entrepot("user", "key", "add", "root", "--site", str(cloud.dir), *more, "--json").stdout
    )
    return told


def remove_key(cloud: Endpoint, key: dict[str, str]) -> None:
    run_entrepot("user", "key", "remove", key["access_key"], "--site", str(cloud.dir))


def put(endpoint: Endpoint, key: str) -> None:
    client(endpoint, retries=0).put_object(Bucket="far", Key=key, Body=key.encode())


def read(endpoint: Endpoint, key: str) -> bytes:
    found: bytes = client(endpoint, retries=0).get_object(Bucket="far", Key=key)["Body"].read()
    return found


def works(endpoint: Endpoint, key: str) -> bool:
    try:
        put(endpoint, key)
        return read(endpoint, key) == key.encode()
    except ClientError:
        return False


def processes(endpoint: Endpoint) -> dict[str, Any]:
    return {name: facts["pid"] for name, facts in watch(endpoint, "/healthz")[1]["processes"].items()}


def test_another_access_key_is_taken_over_by_a_reload_once_it_was_seen_to_work(cloud: Endpoint, tmp_path: Path) -> None:
    old, new = new_key(cloud), new_key(cloud)
    with served_over(cloud, tmp_path / "site", old) as endpoint:
        before = processes(endpoint)
        (endpoint.dir / "new.secret").write_text(new["secret_key"])
        change_config(endpoint.dir, f'access_key = "{old["access_key"]}"', 'access_key = "NOBODYS"')
        change_config(endpoint.dir, '"cloud.secret"', '"new.secret"')
        refused = run_entrepot("reload", str(endpoint.dir), check=False)
        assert refused.returncode == 1
        assert "backends.bucket: " in refused.stderr
        assert new["secret_key"] not in refused.stderr
        put(endpoint, "second")
        change_config(endpoint.dir, '"NOBODYS"', f'"{new["access_key"]}"')
        change_config(endpoint.dir, "[policies.far]", "calls = 7\ndeadline_seconds = 30.0\n[policies.far]")
        assert run_entrepot("reload", str(endpoint.dir)).returncode == 0
        remove_key(cloud, old)
        put(endpoint, "third")
        assert [read(endpoint, key) for key in ("first", "second", "third")] == [b"first", b"second", b"third"]
        assert processes(endpoint) == before, "nothing was started again"
        assert run_entrepot("fsck", str(endpoint.dir), "--read").returncode == 0


def test_a_secret_that_is_replaced_in_its_file_is_used_by_itself(cloud: Endpoint, tmp_path: Path) -> None:
    old = new_key(cloud)
    with served_over(cloud, tmp_path / "site", old) as endpoint:
        before = processes(endpoint)
        secret = endpoint.dir / "cloud.secret"
        secret.write_text("x" * 40)
        until(lambda: "keeps its old connection" in endpoint.log.read_text(), "the line")
        put(endpoint, "second")
        (tmp_path / "given").write_text("y" * 40)
        remove_key(cloud, old)
        new_key(cloud, "--access-key", old["access_key"], "--secret-key-file", str(tmp_path / "given"))
        secret.write_text("y" * 40)
        until(lambda: works(endpoint, "third"), "the new secret to be used")
        assert [read(endpoint, key) for key in ("first", "second")] == [b"first", b"second"]
        assert processes(endpoint) == before
        assert "y" * 40 not in endpoint.log.read_text()
