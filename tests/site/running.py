"""What the tests of a served site share: clients, waiting, and looking at its processes."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from prometheus_client.parser import text_string_to_metric_families

from gateway.site.serve_lock import read_serving
from tests.endpoint import Endpoint, run_entrepot
from tests.logs import logged
from tests.new_sites import new_site

T = TypeVar("T")
WAIT_SECONDS = 150.0
VAULT = """
[backends.vault]
type = "local"
cluster = "home"
path = "vault"
[policies.far]
ack = ["vault"]
keep = ["vault"]
[[rules]]
policy = "far"
bucket = "far"
"""
"""Another backend, and a policy that puts what goes into the bucket `far` there; to be added to a config."""
SECRET = "cloud/secret+key=0123456789abcdefghijklm"
CLOUD = """
[clusters.cloud]
[[lines]]
clusters = ["home", "cloud"]
latency_seconds = 0.03
bandwidth = "1 Gbit/s"
[backends.bucket]
type = "s3"
cluster = "cloud"
endpoint = "{url}"
region = "us-east-1"
bucket = "blocks"
prefix = "entrepot"
create_bucket = true
access_key = "CLOUDKEY"
secret_key_env = "CLOUD_SECRET"
deadline_seconds = 3.0
[policies.far]
ack = ["bucket"]
keep = ["bucket"]
[[rules]]
policy = "far"
bucket = "far"
"""
"""As `VAULT`, with a bucket in a cloud for what goes there; by `add_cloud`."""


def client(
    endpoint: Endpoint, access_key: str = "", secret_key: str = "", retries: int = 8, max_pool: int = 10, **options: Any
) -> Any:
    """An S3 client as root, or as somebody else; it tries again as SDKs do."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint.url,
        aws_access_key_id=access_key or endpoint.access_key,
        aws_secret_access_key=secret_key or endpoint.secret_key,
        region_name=endpoint.region,
        config=Config(
            signature_version="s3v4",
            retries={"max_attempts": retries, "mode": "standard"},
            max_pool_connections=max_pool,
            s3={"addressing_style": "path"},
        ),
        **options,
    )


def change_config(site: Path, line: str, instead: str) -> None:
    """Put *instead* where *line* stands in the config of the site in that folder."""
    config = site / "entrepot.toml"
    text = config.read_text()
    assert line in text, line
    config.write_text(text.replace(line, instead))


def add_cloud(site: Path, url: str, *changes: tuple[str, str]) -> None:
    """Add `CLOUD` at *url* to the config of the site in that folder, with the second of each of *changes* where the
    first stands in it."""
    change_config(site, "domains = []", 'domains = []\ncluster = "home"')
    more = CLOUD.format(url=url)
    for line, instead in changes:
        assert line in more, line
        more = more.replace(line, instead)
    with (site / "entrepot.toml").open("a") as config:
        config.write(more)


def loud_site(folder: Path) -> Path:
    """A new site in *folder* that logs whatever there is to say."""
    new_site(folder)
    change_config(folder, 'level = "info"', 'level = "debug"')
    return folder


def until(look: Callable[[], T], what: str) -> T:
    """What *look* answers, once that is true. A long wait, so that no test fails on a clock."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {WAIT_SECONDS} s for {what}")
        time.sleep(0.05)


def watch(endpoint: Endpoint, path: str) -> tuple[int, Any]:
    """Status and answer of the address for those who watch."""
    serving = read_serving(endpoint.dir)
    assert serving is not None
    try:
        with urllib.request.urlopen(f"{serving['metrics']}{path}", timeout=600) as answer:
            status, raw = answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        status, raw = refused.code, refused.read()
    return status, raw.decode() if path == "/metrics" else json.loads(raw)


def ready(endpoint: Endpoint) -> bool:
    return watch(endpoint, "/readyz")[0] == 200


def processes(endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    """The processes under the supervisor, by name."""
    return dict(watch(endpoint, "/healthz")[1]["processes"])


def kill_supervisor(endpoint: Endpoint, supervisor: subprocess.Popen[bytes]) -> None:
    """Kill the supervisor alone, and wait until the processes under it have noticed that and have ended."""
    pids = [each["pid"] for each in processes(endpoint).values()]
    supervisor.kill()
    supervisor.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the processes to end")


def counted(endpoint: Endpoint, name: str, **labels: str) -> float:
    """The sum of a metric over everything that has these labels."""
    families = text_string_to_metric_families(watch(endpoint, "/metrics")[1])
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(each.value for each in samples if labels.items() <= each.labels.items())


def lines(endpoint: Endpoint) -> list[dict[str, Any]]:
    """The log so far."""
    return [json.loads(line) for line in logged(endpoint.log)]


def entrepot(endpoint: Endpoint, *arguments: str) -> Any:
    """What a command answers with `--json`, on this endpoint's site."""
    return json.loads(run_entrepot(*arguments, "--site", str(endpoint.dir), "--json").stdout)
