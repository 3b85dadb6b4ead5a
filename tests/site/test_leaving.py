"""Backends that leave the config: what is said of those that are still needed, whoever took them out, and when."""

from __future__ import annotations

import http.client
import os
from pathlib import Path
from urllib.parse import urlsplit

from gateway.site.site import Site
from tests.endpoint import Endpoint, run_entrepot, started
from tests.new_sites import new_site
from tests.site.running import VAULT, client, counted, until
from tests.waiting import until_true


def test_a_site_whose_config_lost_a_backend_with_blocks_is_not_served_until_that_is_given_up(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    new_site(folder)
    config = folder / "entrepot.toml"
    before = config.read_text()
    config.write_text(before + VAULT)
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        client(endpoint).create_bucket(Bucket="far")
        client(endpoint).put_object(Bucket="far", Key="key", Body=b"x" * 10_000)
    config.write_text(before)
    refused = run_entrepot("serve", str(folder), "--listen", "127.0.0.1:0", check=False)
    assert refused.returncode == 1
    assert "backends.vault: is not in the config, and it holds 1 block(s): add it again" in refused.stderr
    run_entrepot("backend", "lost", "vault", "--forget", "--site", str(folder))
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        client(endpoint).put_object(Bucket="far", Key="key", Body=b"y" * 10_000)
        assert client(endpoint).get_object(Bucket="far", Key="key")["Body"].read() == b"y" * 10_000
        config.write_text(before + VAULT)
        assert f"{config}: backends.vault: was given up as lost, and the name of a lost backend is never" in reload(
            folder
        )


def reload(folder: Path) -> str:
    """What it was refused with; empty where it was not."""
    return run_entrepot("reload", str(folder), check=False).stderr


def half_a_put(endpoint: Endpoint, body: bytes) -> http.client.HTTPConnection:
    """A PUT of `far/slow` of which half the body was sent."""
    address = urlsplit(client(endpoint).generate_presigned_url("put_object", {"Bucket": "far", "Key": "slow"}))
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    connection.putrequest("PUT", f"{address.path}?{address.query}")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders()
    connection.send(body[: len(body) // 2])
    return connection


def test_a_backend_does_not_leave_while_a_request_that_began_long_ago_writes_there(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    new_site(folder)
    config = folder / "entrepot.toml"
    without = config.read_text()
    config.write_text(without + VAULT)
    body = os.urandom(4 << 20)
    with started(folder, ["--workers", "2"]) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="far")
        s3.put_object(Bucket="far", Key="quick", Body=b"x")
        s3.delete_object(Bucket="far", Key="quick")
        slow = half_a_put(endpoint, body)
        until(lambda: counted(endpoint, "entrepot_bytes_in_flight", direction="writing") > 0, "the first half")
        config.write_text(without + VAULT.replace('["vault"]', '["disk"]'))
        assert reload(folder) == ""
        config.write_text(without)
        until(lambda: "still holds" not in reload(folder), "the vault to be empty, as far as the journal knows")
        assert "backends.vault: requests under way still write there" in reload(folder)
        slow.send(body[len(body) // 2 :])
        assert slow.getresponse().status == 200
        assert "backends.vault: still holds 1 block(s)" in reload(folder)
        assert s3.get_object(Bucket="far", Key="slow")["Body"].read() == body
        s3.delete_object(Bucket="far", Key="slow")
        until(lambda: reload(folder) == "", "the vault to leave")


async def test_a_program_that_opened_the_site_itself_follows_what_is_in_force(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    new_site(folder)
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        async with await Site.open(folder) as site:
            config = folder / "entrepot.toml"
            config.write_text(config.read_text() + VAULT)
            assert reload(folder) == ""
            await until_true(lambda: "vault" in site.storage.topology.backends)
            client(endpoint).create_bucket(Bucket="far")
            client(endpoint).put_object(Bucket="far", Key="key", Body=b"x")
            blocks = site.store.query("SELECT backends FROM block")
            members = [site.storage.lookup.members(set_id) for (set_id,) in blocks]
            assert [[site.storage.backends[each].name for each in one] for one in members] == [["vault"]]
