"""`entrepot backend test` on buckets: what is promised is tried by name, what differs is told, nothing is left there;
and one that cannot be used says why in one line."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from gateway.site.admin.backend_check import check_backend
from gateway.site.site import Site as OpenSite
from gateway.timing import parse_timing
from tests.endpoint import ENTREPOT, command_environment
from tests.new_sites import new_site
from tests.ports import free_port
from tests.servers.minio import can_start, minio
from tests.servers.running import S3Server

BUCKET = """
[backends.bucket]
type = "s3"
cluster = "home"
endpoint = "{url}"
region = "us-east-1"
bucket = "{bucket}"
prefix = "entrepot"
create_bucket = {create}
access_key = "{key}"
secret_key_env = "BUCKET_SECRET"
deadline_seconds = 60.0
"""
NAMED = [
    "it answers, and bears this site's marker",
    "what was put is there, whole",
    "a range is exactly what was asked for",
    "a range behind the end is refused",
    "the same value again is fine",
    "a value that is not its checksum's is refused, and leaves nothing",
    "an absent key is told from an empty value",
    "its size is known without reading it",
    "listings are in order, by prefix, and show what was put",
    "what was deleted is gone, and deleting it twice is fine",
    "it keeps all of that while many ask at once",
    "nothing of the trial is left there",
]
BY_ETAG = "its ETag is the MD5 of what it stored"
CONFIRMED = [
    ("moto", BY_ETAG),
    ("radosgw", BY_ETAG),
    *([("minio", "the server compares each with its CRC64NVME")] if can_start() else []),
]
Site = Callable[..., Path]


@pytest.fixture(scope="module")
def minio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with minio(tmp_path_factory.mktemp("minio")) as running:
        yield running


@pytest.fixture
def bucket() -> str:
    """One that no other test uses."""
    return f"blocks-{uuid.uuid4().hex}"


@pytest.fixture
def site(tmp_path: Path, bucket: str) -> Site:
    """A site whose config names a bucket on a server."""

    def made(server: S3Server, create: bool = True) -> Path:
        folder = tmp_path / "site"
        new_site(folder)
        with (folder / "entrepot.toml").open("a") as config:
            asked = BUCKET.format(url=server.url, bucket=bucket, key=server.access_key, create=str(create).lower())
            config.write(asked)
        return folder

    return made


def tried(folder: Path, secret: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ENTREPOT, "backend", "test", "bucket", "--site", str(folder), "--seconds", "0.1", *more],
        env=command_environment() | {"BUCKET_SECRET": secret},
        capture_output=True,
        text=True,
        timeout=600,
    )


def keys_in(server: S3Server, bucket: str) -> list[str]:
    client: Any = boto3.client(
        "s3",
        endpoint_url=server.url,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
    )
    return [line["Key"] for line in client.list_objects_v2(Bucket=bucket).get("Contents", ())]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "confirmed"), CONFIRMED)
def test_a_bucket_is_tried_for_every_promise_by_name_and_left_as_it_was(
    name: str, confirmed: str, site: Site, bucket: str, request: pytest.FixtureRequest
) -> None:
    server: S3Server = request.getfixturevalue(f"{name}_server")
    folder = site(server)
    done = tried(folder, server.secret_key, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kept"]
    assert [each["what"] for each in found["promises"]] == NAMED
    assert found["traits"]["conditional writes"] == "yes"
    assert found["traits"]["how puts are confirmed"] == confirmed
    assert found["traits"]["versions"] == "no"
    assert {(each["verb"], each["size"], each["at_once"]) for each in found["speeds"]} == {
        (verb, size, at_once) for verb in ("put", "get") for size in (4_096, 8 << 20) for at_once in (1, 4, 16)
    }
    for each in found["speeds"]:
        assert 0 < each["median_seconds"] <= each["worst_seconds"]
        assert each["bytes_per_second"] == pytest.approx(each["per_second"] * each["size"])
    assert keys_in(server, bucket) == ["entrepot/.entrepot/marker"]


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"NOT KEPT: {NAMED[0]}: ")
    return line


def test_a_server_that_is_not_there_is_told_in_one_line(site: Site) -> None:
    nobody = S3Server(f"http://127.0.0.1:{free_port()}", "who", "what")
    assert "nobody listens there" in only_line(tried(site(nobody), "secret"))


def test_a_bucket_that_is_not_there_is_told_in_one_line(site: Site, moto_server: S3Server, tmp_path: Path) -> None:
    folder = site(moto_server, create=False)
    assert "there is no such bucket; create it, or set create_bucket" in only_line(tried(folder, "secret"))


def test_wrong_keys_are_told_in_one_line(site: Site, radosgw_server: S3Server) -> None:
    told = only_line(tried(site(radosgw_server), "not/the+secret=key"))
    assert "the secret key does not belong to the access key" in told
    assert "not/the+secret=key" not in told


async def test_a_place_whose_listings_do_not_end_breaks_that_promise_alone(new_folder: Path) -> None:
    async with await OpenSite.open(new_folder, timing=parse_timing("inventory.thousand_keys_seconds=0.05")) as site:
        ((number,),) = site.store.query("SELECT id FROM backend")
        guarded: Any = site.storage.backends[number]
        guarded.replace_inner(Faulty(guarded.inner, FaultPlan([Fault(FaultKind.DELAY, "list", seconds=3_600)])))
        found = await check_backend(site, "disk", 0.1)
    assert {each.what: each.broken for each in found.promises if each.broken} == {
        "listings are in order, by prefix, and show what was put": (
            "a listing of a few keys did not end within 0.05 s; it had shown 0"
        )
    }
