"""Backends that leave the config: what is said of those that are still needed, whoever took them out, and when."""

from __future__ import annotations

from pathlib import Path

from tests.endpoint import run_entrepot, started
from tests.site.running import client

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


def test_a_site_whose_config_lost_a_backend_with_blocks_is_not_served_until_that_is_given_up(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    run_entrepot("init", str(folder))
    config = folder / "entrepot.toml"
    before = config.read_text()
    config.write_text(before + VAULT)
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        client(endpoint).create_bucket(Bucket="far")
        client(endpoint).put_object(Bucket="far", Key="key", Body=b"x" * 10_000)
    config.write_text(before)
    refused = run_entrepot("serve", str(folder), "--listen", "127.0.0.1:0", check=False)
    assert refused.returncode == 1
    assert "backends.vault: is not in the config, and 1 block(s) lie there: put it back" in refused.stderr
    run_entrepot("backend", "lost", "vault", "--forget", "--site", str(folder))
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        client(endpoint).put_object(Bucket="far", Key="key", Body=b"y" * 10_000)
        assert client(endpoint).get_object(Bucket="far", Key="key")["Body"].read() == b"y" * 10_000
