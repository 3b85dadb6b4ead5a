"""`entrepot backup`, also of a served site, and the restore of what it made as a new incarnation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from gateway.config import default_text, load_text
from gateway.errors import Misconfigured
from gateway.site.admin.backup import with_absolute_backend_paths
from gateway.site.admin.restore import restore
from tests.endpoint import run_entrepot, started
from tests.new_sites import new_site
from tests.site.running import client


def test_what_a_backup_names_is_readable_from_the_restored_site(tmp_path: Path) -> None:
    site, saved, anew = tmp_path / "site", tmp_path / "saved", tmp_path / "anew"
    with started(site) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        s3.put_object(Bucket="kept", Key="small", Body=b"small")
        s3.put_object(Bucket="kept", Key="large", Body=bytes(9 << 20))
        manifest = json.loads(run_entrepot("backup", str(site), str(saved), "--json").stdout)
        s3.delete_object(Bucket="kept", Key="small")
        s3.put_object(Bucket="kept", Key="large", Body=b"overwritten")
        s3.put_object(Bucket="kept", Key="later", Body=b"later")
    assert (saved / "entrepot.toml").exists()
    assert not list(saved.glob("*key*"))
    restored = json.loads(
        run_entrepot(
            "restore", "--take-over", "--yes", str(saved), str(anew), "--master-key", str(site / "master.key"), "--json"
        ).stdout
    )
    assert (restored["site"], restored["incarnation"]) == (manifest["site"], manifest["incarnation"] + 1)
    with started(anew) as (endpoint, _):
        s3 = client(endpoint)
        assert s3.get_object(Bucket="kept", Key="small")["Body"].read() == b"small"
        assert s3.get_object(Bucket="kept", Key="large")["Body"].read() == bytes(9 << 20)
        with pytest.raises(ClientError, match="NoSuchKey"):
            s3.get_object(Bucket="kept", Key="later")
        s3.put_object(Bucket="kept", Key="after", Body=b"after")
        assert s3.get_object(Bucket="kept", Key="after")["Body"].read() == b"after"
    checked = run_entrepot("fsck", str(anew), "--read", "--json", check=False)
    assert checked.returncode == 0, checked.stdout
    shut_out = run_entrepot("serve", str(site), "--listen", "127.0.0.1:0", check=False)
    assert shut_out.returncode == 1
    assert "incarnation 2" in shut_out.stderr


def test_a_backup_needs_an_empty_folder_apart_from_the_blocks_and_a_restore_needs_the_right_master_key(
    tmp_path: Path,
) -> None:
    site, saved = tmp_path / "site", tmp_path / "saved"
    new_site(site)
    run_entrepot("init", str(tmp_path / "other"))
    run_entrepot("backup", str(site), str(saved))
    again = run_entrepot("backup", str(site), str(saved), check=False)
    assert (again.returncode, "is not empty" in again.stderr) == (1, True)
    for inside in ("blocks", "blocks/saved"):
        refused = run_entrepot("backup", str(site), str(site / inside), check=False)
        assert (refused.returncode, "is inside the folder of backend 'disk'" in refused.stderr) == (1, True), (
            refused.stderr
        )
        assert not list((site / "blocks").glob("saved*"))
    missing = run_entrepot(
        "restore",
        "--take-over",
        "--yes",
        str(saved),
        str(tmp_path / "anew"),
        "--master-key",
        str(tmp_path / "none"),
        check=False,
    )
    assert (missing.returncode, missing.stderr) == (1, f"entrepot: {tmp_path}/none: No such file or directory\n")
    assert not (tmp_path / "anew").exists()
    wrong = run_entrepot(
        "restore",
        "--take-over",
        "--yes",
        str(saved),
        str(tmp_path / "anew"),
        "--master-key",
        str(tmp_path / "other" / "master.key"),
        check=False,
    )
    assert wrong.returncode == 1
    assert "master key" in wrong.stderr
    right = run_entrepot(
        "restore", "--take-over", "--yes", str(saved), str(tmp_path / "anew"), "--master-key", str(site / "master.key")
    )
    assert "incarnation 2" in right.stdout


def test_the_restore_of_an_aged_backup_warns(tmp_path: Path) -> None:
    site, saved, key = tmp_path / "site", tmp_path / "saved", tmp_path / "site" / "master.key"
    new_site(site)
    run_entrepot("backup", str(site), str(saved), "--keep-days", "0")
    text = run_entrepot(
        "restore", "--take-over", "--yes", str(saved), str(tmp_path / "anew"), "--master-key", str(key)
    ).stdout
    assert f"`entrepot fsck {tmp_path / 'anew'}` reports which are missing" in text
    shown = run_entrepot(
        "restore", "--take-over", "--yes", str(saved), str(tmp_path / "again"), "--master-key", str(key), "--json"
    ).stdout
    assert json.loads(shown)["aged"] is True


async def test_a_folder_without_a_backup_is_not_restored(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="is not a complete backup"):
        await restore(tmp_path, tmp_path / "anew", tmp_path / "master.key")
    assert not (tmp_path / "anew").exists()


def test_a_restored_config_finds_the_blocks_where_they_were() -> None:
    moved = with_absolute_backend_paths(default_text(), Path("/srv/site"))
    assert load_text(moved, Path("/anew")).topology(Path("/anew")).backends["disk"].path == "/srv/site/blocks"
    assert with_absolute_backend_paths(moved, Path("/anew")) == moved
    cloud = (
        '[backends.cloud]\ntype = "s3"\ncluster = "home"\nbucket = "b12"\naccess_key = "AK"\n'
        'secret_key_file = "s"\nca_file = "ca.pem"\n'
    )
    assert 'secret_key_file = "/srv/site/s"\nca_file = "/srv/site/ca.pem"' in with_absolute_backend_paths(
        default_text() + cloud, Path("/srv/site")
    )


def test_a_config_whose_paths_cannot_be_rewritten_is_refused_with_advice() -> None:
    odd = default_text().replace('path = "blocks"', 'path = """blocks"""')
    with pytest.raises(Misconfigured, match="absolute"):
        with_absolute_backend_paths(odd, Path("/srv/site"))


@pytest.mark.parametrize("name", ['quoted "site"', "back\\slash", "it's", "grüße 日本語", "# no comment ["])
def test_a_folder_with_an_odd_name_is_quoted_in_the_rewritten_config(name: str) -> None:
    folder = Path("/srv") / name
    moved = load_text(with_absolute_backend_paths(default_text(), folder), Path("/anew"))
    assert moved.topology(Path("/anew")).backends["disk"].path == str(folder / "blocks")
