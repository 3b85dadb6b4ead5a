"""`entrepot usage` and its metrics say what buckets and users store, as soon as a write was answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import run
from gateway.cli.output import format_bytes
from gateway.site.admin.usage import BucketUsage, LargestBuckets
from gateway.site.processes.usage_metrics import BUCKET_BYTES, BUCKET_OBJECTS, OTHERS, set_gauges
from tests.endpoint import run_entrepot, started
from tests.site.running import client, counted, until


def usage(site: Path, *options: str) -> list[dict[str, Any]]:
    return list(json.loads(run_entrepot("usage", str(site), "--json", *options).stdout))


def test_usage_is_exact_at_once_and_per_user(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with started(site, ["--workers", "1"]) as (endpoint, _):
        s3 = client(endpoint)
        for bucket, sizes in (("small", [10]), ("large", [1000, 2000, 0])):
            s3.create_bucket(Bucket=bucket)
            for number, size in enumerate(sizes):
                s3.put_object(Bucket=bucket, Key=f"k{number}", Body=bytes(size))
        s3.put_object(Bucket="large", Key="k0", Body=bytes(500))
        s3.create_multipart_upload(Bucket="large", Key="open")
        large = {"bucket": "large", "owner": "root", "objects": 3, "versions": 3, "bytes": 2500, "uploads": 1}
        small = {"bucket": "small", "owner": "root", "objects": 1, "versions": 1, "bytes": 10, "uploads": 0}
        assert usage(site) == [large, small]
        assert usage(site, "--bucket", "small") == [small]
        assert usage(site, "--user", "root") == [large, small]
        assert usage(site, "--users") == [
            {"user": "root", "buckets": 2, "objects": 4, "versions": 4, "bytes": 2510, "uploads": 1}
        ]
        shown = run_entrepot("usage", str(site)).stdout.splitlines()
        assert [line.split() for line in shown[:2]] == [
            ["BUCKET", "OWNER", "OBJECTS", "VERSIONS", "SIZE", "UPLOADS"],
            ["large", "root", "3", "3", "2.44", "KiB", "1"],
        ]
        assert "2500" in run_entrepot("usage", str(site), "--bytes").stdout
        until(lambda: counted(endpoint, "entrepot_bucket_bytes", bucket="large") == 2500, "the keeper's look")
        assert counted(endpoint, "entrepot_bucket_objects", bucket=OTHERS) == 0
        s3.delete_object(Bucket="large", Key="k1")
        assert usage(site, "--bucket", "large")[0]["bytes"] == 500


@pytest.mark.parametrize("option", ["--bucket", "--user"])
def test_a_name_that_does_not_exist_is_an_error(
    new_folder: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["usage", str(new_folder), option, "nothing"]) == 1
    assert "nothing" in capsys.readouterr().err


@pytest.mark.parametrize("other", [["--users"], ["--user", "root"]])
def test_options_that_contradict_each_other_are_refused(
    new_folder: Path, other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["usage", str(new_folder), "--bucket", "b", *other]) == 2
    assert "--bucket alone" in capsys.readouterr().err


def test_metrics_have_a_bounded_number_of_buckets() -> None:
    largest = [BucketUsage(name, "root", 1, 1, size, 0) for name, size in (("a", 5), ("b", 4))]
    set_gauges(LargestBuckets(largest, 7, 6))
    assert BUCKET_BYTES.values == {("a",): 5, ("b",): 4, (OTHERS,): 6}
    set_gauges(LargestBuckets(largest[:1], 8, 10))
    assert BUCKET_OBJECTS.values == {("a",): 1, (OTHERS,): 8}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1023 * 1024, "0.999 MiB"), (1 << 30, "1 GiB"),
        (1300 << 20, "1.27 GiB"), (1 << 63, "8 EiB"),
    ],
)  # fmt: skip
def test_sizes_are_written_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text
