"""Rotating and renewing keys under a running gateway, and secrets that appear nowhere."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from gateway.crypto import master
from gateway.errors import EntrepotError
from gateway.site.admin import key_rotation
from gateway.site.admin.key_rotation import (
    list_ring_keys,
    renew_ring_key,
    renew_ring_key_if_mode_changed,
    rotate_master_key,
)
from gateway.site.admin.users import add_user
from gateway.site.site import Site
from tests.endpoint import started
from tests.new_sites import ACCESS_KEY, new_site
from tests.site.running import change_config, client, entrepot, loud_site, ready


def test_rotating_and_renewing_under_load_lose_nothing_and_leak_nothing(tmp_path: Path) -> None:
    site = loud_site(tmp_path / "site")
    with started(site) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        s3.put_object(Bucket="kept", Key="old", Body=b"old" * 1_000)
        rotated = entrepot(endpoint, "keys", "rotate")
        assert (rotated["ring_keys"], rotated["secrets"]) == (1, 1)
        assert client(endpoint).get_object(Bucket="kept", Key="old")["Body"].read() == b"old" * 1_000
        made = entrepot(endpoint, "user", "add", "ada")  # sealed under a master key that the workers did not start with
        ada = client(endpoint, made["access_key"], made["secret_key"])
        assert ada.list_buckets()["Buckets"] == []
        renewed = entrepot(endpoint, "keys", "renew")
        s3.put_object(Bucket="kept", Key="new", Body=b"new")
        old, new = entrepot(endpoint, "keys", "list")
        assert (old["blocks"], new["blocks"]) == (1, 1)
        assert (new["id"], new["active"], old["active"]) == (renewed["ring_key"], True, False)
        assert s3.get_object(Bucket="kept", Key="old")["Body"].read() == b"old" * 1_000
        assert ready(endpoint)
        presigned = s3.generate_presigned_url("get_object", Params={"Bucket": "kept", "Key": "new"})
        _fetch(presigned)
        with pytest.raises(s3.exceptions.ClientError):
            client(endpoint, endpoint.access_key, "wrong/secret/of/somebody").list_buckets()
    log = endpoint.log.read_text()
    assert '"path":"/kept/new"' in log
    secrets = [endpoint.secret_key, made["secret_key"], "wrong/secret/of/somebody"]
    secrets += [presigned.split("X-Amz-Signature=")[1][:64], "X-Amz-Signature", "Credential="]
    secrets += [line.split()[2] for line in (site / "master.key").read_text().splitlines()]
    for secret in secrets:
        assert secret not in log


def _fetch(url: str) -> bytes:
    import urllib.request

    with urllib.request.urlopen(url, timeout=600) as answer:
        return bytes(answer.read())


async def test_a_rotation_that_was_cut_short_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_site(tmp_path / "site")
    async with await Site.open(tmp_path / "site", with_storage=False) as site:
        for number in range(5):
            await add_user(site, f"user{number}")
        monkeypatch.setattr(key_rotation, "BATCH_KEYS", 2)
        sent = []

        def stop_after_two(done: int, of: int) -> None:
            sent.append((done, of))
            if len(sent) == 2:
                raise EntrepotError("killed")

        with pytest.raises(EntrepotError, match="killed"):
            await rotate_master_key(site, stop_after_two)
        assert sent == [(1, 7), (3, 7)]
    async with await Site.open(tmp_path / "site", with_storage=False) as site:
        assert len(site.keyring.masters) == 2
        done = await rotate_master_key(site)
        assert (done.finished_earlier, done.secrets) == (True, 4)
        assert len(site.keyring.masters) == 2
        assert site.store.query("SELECT DISTINCT master FROM access_key") == [(done.master,)]
        fresh = await rotate_master_key(site)
        assert (fresh.finished_earlier, fresh.ring_keys, fresh.secrets) == (False, 1, 6)


async def test_another_mode_in_the_config_takes_a_new_ring_key(tmp_path: Path) -> None:
    new_site(tmp_path / "site")
    change_config(tmp_path / "site", 'mode = "aes-256-gcm"', 'mode = "tagged"')
    async with await Site.open(tmp_path / "site", with_storage=False) as site:
        assert await renew_ring_key_if_mode_changed(site)
        assert not await renew_ring_key_if_mode_changed(site)
        assert [(each.mode, each.active) for each in list_ring_keys(site)] == [
            ("aes-256-gcm", False),
            ("tagged", True),
        ]


async def test_of_two_that_renew_at_once_one_ring_key_comes(tmp_path: Path) -> None:
    import asyncio

    new_site(tmp_path / "site")
    async with await Site.open(tmp_path / "site", with_storage=False) as site:
        made = await asyncio.gather(renew_ring_key(site), renew_ring_key(site))
        assert len(set(made)) == 1
        assert len(list_ring_keys(site)) == 2


async def test_a_site_without_its_master_key_says_which_file_is_missing(tmp_path: Path) -> None:
    new_site(tmp_path / "site")
    (tmp_path / "site" / "master.key").unlink()
    with pytest.raises(EntrepotError, match=r"master\.key"):
        await Site.open(tmp_path / "site")


async def test_another_sites_master_key_opens_nothing(tmp_path: Path) -> None:
    new_site(tmp_path / "site")
    key = tmp_path / "site" / "master.key"
    held = master.load(key).current
    other = base64.b64encode(bytes(32)).decode()
    key.write_text(f"{master.WORD} {held.id} {other}\n")
    async with await Site.open(tmp_path / "site", with_storage=False) as site:
        with pytest.raises(EntrepotError, match="does not open"):
            site.credentials.find(ACCESS_KEY)
