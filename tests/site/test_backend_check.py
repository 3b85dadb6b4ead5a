"""`entrepot backend test`: each guarantee of a bucket is checked, differences between servers are reported, and nothing
is left. A bucket that cannot be used gives the reason in one line."""

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
CHECKS = [
    "the backend answers and has this site's marker",
    "a value is stored whole",
    "a range read returns exactly the requested bytes",
    "a range beyond the end is refused",
    "storing the same value again succeeds",
    "a value with a wrong checksum is refused and not stored",
    "an absent key is not read as an empty value",
    "the size of a value is known without reading it",
    "listings are sorted and contain what was stored, by prefix",
    "a deleted value is absent, and deleting it again succeeds",
    "all of this holds under concurrent calls",
    "no test value is left",
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
    """The name of a bucket that no other test uses."""
    return f"blocks-{uuid.uuid4().hex}"


@pytest.fixture
def site(tmp_path: Path, bucket: str) -> Site:
    """A site whose config names a bucket on a server."""

    def make(server: S3Server, create: bool = True) -> Path:
        folder = tmp_path / "site"
        new_site(folder)
        with (folder / "entrepot.toml").open("a") as config:
            section = BUCKET.format(url=server.url, bucket=bucket, key=server.access_key, create=str(create).lower())
            config.write(section)
        return folder

    return make


def run_backend_test(folder: Path, secret: str, *more: str) -> subprocess.CompletedProcess[str]:
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
def test_every_guarantee_of_a_bucket_is_checked_and_no_value_is_left(
    name: str, confirmed: str, site: Site, bucket: str, request: pytest.FixtureRequest
) -> None:
    server: S3Server = request.getfixturevalue(f"{name}_server")
    folder = site(server)
    done = run_backend_test(folder, server.secret_key, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["kept"]
    assert [each["what"] for each in result["promises"]] == CHECKS
    assert result["traits"]["conditional writes"] == "yes"
    assert result["traits"]["how puts are confirmed"] == confirmed
    assert result["traits"]["versions"] == "no"
    assert {(each["verb"], each["size"], each["at_once"]) for each in result["speeds"]} == {
        (verb, size, at_once) for verb in ("put", "get") for size in (4_096, 8 << 20) for at_once in (1, 4, 16)
    }
    for each in result["speeds"]:
        assert 0 < each["median_seconds"] <= each["worst_seconds"]
        assert each["bytes_per_second"] == pytest.approx(each["per_second"] * each["size"])
    assert keys_in(server, bucket) == ["entrepot/.entrepot/marker"]


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"FAILED: {CHECKS[0]}: ")
    return line


def test_an_unreachable_server_is_reported_in_one_line(site: Site) -> None:
    nobody = S3Server(f"http://127.0.0.1:{free_port()}", "who", "what")
    assert "nobody listens there" in only_line(run_backend_test(site(nobody), "secret"))


def test_a_missing_bucket_is_reported_in_one_line(site: Site, moto_server: S3Server, tmp_path: Path) -> None:
    folder = site(moto_server, create=False)
    assert "there is no such bucket; create it, or set create_bucket" in only_line(run_backend_test(folder, "secret"))


def test_wrong_keys_are_reported_in_one_line(site: Site, radosgw_server: S3Server) -> None:
    line = only_line(run_backend_test(site(radosgw_server), "not/the+secret=key"))
    assert "the secret key does not belong to the access key" in line
    assert "not/the+secret=key" not in line


async def test_an_endless_listing_fails_only_the_check_of_listings(new_folder: Path) -> None:
    async with await OpenSite.open(new_folder, timing=parse_timing("inventory.thousand_keys_seconds=0.05")) as site:
        ((number,),) = site.store.query("SELECT id FROM backend")
        guarded: Any = site.storage.backends[number]
        guarded.replace_inner(Faulty(guarded.inner, FaultPlan([Fault(FaultKind.DELAY, "list", seconds=3_600)])))
        result = await check_backend(site, "disk", 0.1)
    assert {each.guarantee: each.failure for each in result.checks if each.failure} == {
        "listings are sorted and contain what was stored, by prefix": (
            "a listing of a few keys did not end within 0.05 s; it returned 0"
        )
    }
