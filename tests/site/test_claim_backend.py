"""A backend that lost its marker is claimed again. One that may belong to another site is not, neither at a restore."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from gateway.site.paths import UNFINISHED
from tests.endpoint import Endpoint, run_entrepot, started
from tests.new_sites import new_site
from tests.servers.moto import moto
from tests.site.running import SECRET, VAULT, add_cloud, client, entrepot, until, watch


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with two backends and a block on each. It is not served. Tests copy it and do not change it."""
    folder = tmp_path_factory.mktemp("original") / "site"
    new_site(folder)
    config = folder / "entrepot.toml"
    config.write_text(config.read_text() + VAULT)
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        fill(endpoint)
    return folder


@pytest.fixture
def site(tmp_path: Path, original: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "site"))


def fill(endpoint: Endpoint) -> None:
    s3 = client(endpoint)
    for bucket in ("near", "far"):
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="key", Body=b"x" * 400_000)


def marker(site: Path, folder: str = "blocks") -> Path:
    return site / folder / ".entrepot" / "marker"


def change_marker(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def claim(site: Path, name: str, *options: str) -> dict[str, Any]:
    return dict(json.loads(run_entrepot("backend", "claim", name, *options, "--json", "--site", str(site)).stdout))


def refused(site: Path, name: str, *options: str) -> str:
    """Run the command, which must fail and change no marker. Return its error."""
    before = {folder: read_marker(site, folder) for folder in ("blocks", "vault")}
    done = run_entrepot("backend", "claim", name, *options, "--site", str(site), check=False)
    assert done.returncode == 1
    assert {folder: read_marker(site, folder) for folder in ("blocks", "vault")} == before
    return done.stderr


def read_marker(site: Path, folder: str) -> str | None:
    path = marker(site, folder)
    return path.read_text() if path.exists() else None


def without_fence(text: str | bytes | None) -> Any:
    """Return the fields of a marker without the fence, which the keeper writes."""
    return {key: value for key, value in json.loads(text or "{}").items() if key != "fence"}


def test_a_served_site_writes_again_once_its_marker_is_restored(tmp_path: Path) -> None:
    with started(tmp_path / "site", ["--workers", "1"]) as (endpoint, _):
        fill(endpoint)
        ours = read_marker(endpoint.dir, "blocks")
        marker(endpoint.dir).unlink()
        until(lambda: watch(endpoint, "/readyz")[0] == 503, "the absence to be noticed")
        result = entrepot(endpoint, "backend", "claim", "disk")
        assert (result["backend"], result["claimed"], result["before"]) == ("disk", True, 0)
        assert result["looked_for"] == result["there"] == 2
        assert without_fence(read_marker(endpoint.dir, "blocks")) == without_fence(ours)
        until(lambda: watch(endpoint, "/readyz")[0] == 200, "writes again")
        client(endpoint).put_object(Bucket="near", Key="more", Body=b"more")
        assert entrepot(endpoint, "backend", "claim", "disk")["claimed"] is False
        shown = run_entrepot("backend", "claim", "disk", "--site", str(endpoint.dir)).stdout
        assert shown.startswith("backend disk has this site's marker already: nothing was done\n")


def test_a_bucket_that_lost_its_marker_is_claimed_again(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    new_site(folder)
    with moto(tmp_path / "cloud") as cloud:
        add_cloud(folder, cloud.url, ('secret_key_env = "CLOUD_SECRET"', 'secret_key_file = "cloud.secret"'))
        (folder / "cloud.secret").write_text(f"{SECRET}\n")
        keys = {"aws_access_key_id": "CLOUDKEY", "aws_secret_access_key": SECRET}
        direct = boto3.client("s3", endpoint_url=cloud.url, region_name="us-east-1", **keys)
        at = {"Bucket": "blocks", "Key": "entrepot/.entrepot/marker"}
        with started(folder, ["--workers", "1"]) as (endpoint, _):
            fill(endpoint)
            ours = direct.get_object(**at)["Body"].read()
            direct.delete_object(**at)

            def refuses() -> bool:
                try:
                    client(endpoint, retries=0).put_object(Bucket="far", Key="new", Body=b"new")
                except ClientError:
                    return True
                return False

            until(refuses, "the absence to be noticed")
            result = entrepot(endpoint, "backend", "claim", "bucket")
            assert (result["claimed"], result["there"] > 0) == (True, True)
            assert without_fence(direct.get_object(**at)["Body"].read()) == without_fence(ours)
            until(lambda: not refuses(), "writes again")
            foreign = ours.replace(json.loads(ours)["site"].encode(), b"ab" * 16)
            direct.put_object(**at, Body=foreign)
            done = run_entrepot("backend", "claim", "bucket", "--anyway", "--site", str(folder), check=False)
            assert (done.returncode, f"it belongs to site {'ab' * 16}" in done.stderr) == (1, True)
            assert direct.get_object(**at)["Body"].read() == foreign


def test_a_folder_that_lost_everything_but_its_blocks_is_claimed_again(site: Path) -> None:
    shutil.rmtree(marker(site, "vault").parent)
    result = claim(site, "vault")
    assert (result["claimed"], result["there"]) == (True, 1)
    assert run_entrepot("fsck", str(site), "--read", check=False).returncode == 0


@pytest.mark.parametrize("option", [(), ("--anyway",)])
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"site": "ab" * 16}, f"it belongs to site {'ab' * 16}"),
        ({"incarnation": 2}, "incarnation 2"),
        ({"backend": 1 << 40}, f"it is backend {1 << 40} of this site already"),
    ],
)
def test_a_backend_with_another_marker_is_never_claimed(
    site: Path, fields: dict[str, Any], why: str, option: tuple[str, ...]
) -> None:
    change_marker(marker(site, "vault"), **fields)
    assert why in refused(site, "vault", *option)


def test_a_site_that_was_restored_elsewhere_claims_nothing(site: Path) -> None:
    """Also if the backend itself has no marker: that of another backend names the later incarnation."""
    change_marker(marker(site), incarnation=2)
    marker(site, "vault").unlink()
    assert "incarnation 2" in refused(site, "vault", "--anyway")


def test_an_unreadable_marker_is_not_replaced(site: Path) -> None:
    marker(site, "vault").write_text("no marker")
    assert "it is no marker; find out whose folder this is" in refused(site, "vault", "--anyway")


def test_a_backend_without_its_blocks_is_claimed_only_with_the_option_anyway(site: Path) -> None:
    shutil.rmtree(site / "vault")
    assert "there is no such folder; mount its disk" in refused(site, "vault", "--anyway")
    (site / "vault").mkdir()
    assert "none of 1 blocks that should be there was found; is it the right folder" in refused(site, "vault")
    (site / "vault" / "stranger").write_text("a value")
    assert "but 'stranger' was; is it the right folder" in refused(site, "vault")
    result = claim(site, "vault", "--anyway")
    assert (result["claimed"], result["looked_for"], result["there"]) == (True, 1, 0)
    assert (site / "vault" / "stranger").exists()


def test_an_unknown_or_lost_backend_is_refused(site: Path) -> None:
    assert "the config names no backend 'nowhere'" in refused(site, "nowhere")
    run_entrepot("backend", "lost", "vault", "--forget", "--site", str(site))
    marker(site, "vault").unlink()
    assert "counts as lost, for good" in refused(site, "vault", "--anyway")


# ---- at a restore ----------------------------------------------------------------------------------------------------


def back_up(site: Path) -> Path:
    run_entrepot("backup", str(site), str(site.with_name("saved")))
    return site.with_name("saved")


def not_restored(site: Path) -> str:
    """Restore, which must fail and claim no backend. Return its error."""
    before = {folder: read_marker(site, folder) for folder in ("blocks", "vault")}
    key = ("--master-key", str(site / "master.key"))
    anew = site.with_name("anew")
    done = run_entrepot("restore", "--take-over", "--yes", str(site.with_name("saved")), str(anew), *key, check=False)
    assert done.returncode == 1
    assert (anew / UNFINISHED).exists()
    assert {folder: read_marker(site, folder) for folder in ("blocks", "vault")} == before
    return done.stderr


def test_a_restore_claims_no_backend_if_one_belongs_to_another_site(site: Path) -> None:
    back_up(site)
    change_marker(marker(site, "vault"), site="ab" * 16)
    assert f"backend 'vault': it belongs to site {'ab' * 16}, and the backup is of site " in not_restored(site)
    assert not (site.with_name("anew") / "journal").exists()


def test_a_restore_claims_no_backend_if_two_are_swapped(site: Path) -> None:
    config = back_up(site) / "entrepot.toml"
    text = config.read_text()
    disk, vault = f'"{site}/blocks"', f'"{site}/vault"'
    assert disk in text and vault in text
    config.write_text(text.replace(disk, "\0").replace(vault, disk).replace("\0", vault))
    assert "are two backends swapped in the config?" in not_restored(site)


def test_a_restore_claims_no_backend_if_one_lacks_its_blocks(site: Path) -> None:
    back_up(site)
    shutil.rmtree(site / "vault")
    assert "there is no such folder; mount its disk" in not_restored(site)
    (site / "vault").mkdir()  # a mount point without its disk
    assert "'vault': none of 1 blocks that should be there was found; is it the right folder" in not_restored(site)
    (site / "vault" / "stranger").write_text("a value")
    error = not_restored(site)
    assert "none of 1 blocks that should be there was found, but 'stranger' was; is it the right folder" in error
    key = ("--master-key", str(site / "master.key"))
    run_entrepot(
        "restore",
        "--take-over",
        "--yes",
        str(site.with_name("saved")),
        str(site.with_name("anew")),
        *key,
        "--claim-anyway",
        "vault",
    )
    assert json.loads(marker(site, "vault").read_text())["incarnation"] == 2
