"""A backend whose marker was lost is claimed again; what may be somebody else's is left alone, at a restore too."""

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
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with two backends, and a block on each; nobody serves it. For copies of it alone."""
    folder = tmp_path_factory.mktemp("kept") / "site"
    new_site(folder)
    config = folder / "entrepot.toml"
    config.write_text(config.read_text() + VAULT)
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        fill(endpoint)
    return folder


@pytest.fixture
def site(tmp_path: Path, kept: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "site"))


def fill(endpoint: Endpoint) -> None:
    s3 = client(endpoint)
    for bucket in ("near", "far"):
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="key", Body=b"x" * 400_000)


def marker(site: Path, folder: str = "blocks") -> Path:
    return site / folder / ".entrepot" / "marker"


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def claim(site: Path, name: str, *options: str) -> dict[str, Any]:
    return dict(json.loads(run_entrepot("backend", "claim", name, *options, "--json", "--site", str(site)).stdout))


def refused(site: Path, name: str, *options: str) -> str:
    """Why; and nothing was done."""
    before = {folder: whole(site, folder) for folder in ("blocks", "vault")}
    done = run_entrepot("backend", "claim", name, *options, "--site", str(site), check=False)
    assert done.returncode == 1
    assert {folder: whole(site, folder) for folder in ("blocks", "vault")} == before
    return done.stderr


def whole(site: Path, folder: str) -> str | None:
    path = marker(site, folder)
    return path.read_text() if path.exists() else None


def without_placement(text: str | bytes | None) -> Any:
    """A marker without the fence, which the keeper stamps by itself."""
    return {key: value for key, value in json.loads(text or "{}").items() if key != "fence"}


def test_a_served_site_goes_on_by_itself_once_its_marker_is_put_back(tmp_path: Path) -> None:
    with started(tmp_path / "site", ["--workers", "1"]) as (endpoint, _):
        fill(endpoint)
        ours = whole(endpoint.dir, "blocks")
        marker(endpoint.dir).unlink()
        until(lambda: watch(endpoint, "/readyz")[0] == 503, "its absence to be noticed")
        told = entrepot(endpoint, "backend", "claim", "disk")
        assert (told["backend"], told["claimed"], told["before"]) == ("disk", True, 0)
        assert told["looked_for"] == told["there"] == 2
        assert without_placement(whole(endpoint.dir, "blocks")) == without_placement(ours)
        until(lambda: watch(endpoint, "/readyz")[0] == 200, "writes again")
        client(endpoint).put_object(Bucket="near", Key="more", Body=b"more")
        assert entrepot(endpoint, "backend", "claim", "disk")["claimed"] is False
        shown = run_entrepot("backend", "claim", "disk", "--site", str(endpoint.dir)).stdout
        assert shown.startswith("backend disk bears this site's marker already: nothing was done\n")


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

            until(refuses, "its absence to be noticed")
            told = entrepot(endpoint, "backend", "claim", "bucket")
            assert (told["claimed"], told["there"] > 0) == (True, True)
            assert without_placement(direct.get_object(**at)["Body"].read()) == without_placement(ours)
            until(lambda: not refuses(), "writes again")
            foreign = ours.replace(json.loads(ours)["site"].encode(), b"ab" * 16)
            direct.put_object(**at, Body=foreign)
            done = run_entrepot("backend", "claim", "bucket", "--anyway", "--site", str(folder), check=False)
            assert (done.returncode, f"it belongs to site {'ab' * 16}" in done.stderr) == (1, True)
            assert direct.get_object(**at)["Body"].read() == foreign


def test_a_place_that_lost_all_that_was_beside_its_blocks_is_claimed_again(site: Path) -> None:
    shutil.rmtree(marker(site, "vault").parent)
    told = claim(site, "vault")
    assert (told["claimed"], told["there"]) == (True, 1)
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
def test_what_bears_another_marker_is_never_taken_over(
    site: Path, fields: dict[str, Any], why: str, option: tuple[str, ...]
) -> None:
    change(marker(site, "vault"), **fields)
    assert why in refused(site, "vault", *option)


def test_a_site_that_goes_on_elsewhere_claims_nothing(site: Path) -> None:
    """Also where the place itself bears no marker: another one tells."""
    change(marker(site), incarnation=2)
    marker(site, "vault").unlink()
    assert "incarnation 2" in refused(site, "vault", "--anyway")


def test_what_is_no_marker_is_left_for_people_to_look_at(site: Path) -> None:
    marker(site, "vault").write_text("no marker")
    assert "it is no marker; find out whose folder this is" in refused(site, "vault", "--anyway")


def test_a_place_without_the_blocks_that_should_lie_there_is_claimed_only_when_that_is_asked_for(site: Path) -> None:
    shutil.rmtree(site / "vault")
    assert "there is no such folder; mount its disk" in refused(site, "vault", "--anyway")
    (site / "vault").mkdir()
    assert "none of 1 blocks that should lie there does; is it the right folder" in refused(site, "vault")
    (site / "vault" / "stranger").write_text("a value")
    assert "and 'stranger' does; is it the right folder" in refused(site, "vault")
    told = claim(site, "vault", "--anyway")
    assert (told["claimed"], told["looked_for"], told["there"]) == (True, 1, 0)
    assert (site / "vault" / "stranger").exists()


def test_a_backend_that_nobody_knows_or_that_was_given_up_is_refused(site: Path) -> None:
    assert "the config names no backend 'nowhere'" in refused(site, "nowhere")
    run_entrepot("backend", "lost", "vault", "--forget", "--site", str(site))
    marker(site, "vault").unlink()
    assert "was given up as lost, for good" in refused(site, "vault", "--anyway")


# ---- at a restore ----------------------------------------------------------------------------------------------------


def saved(site: Path) -> Path:
    run_entrepot("backup", str(site), str(site.with_name("saved")))
    return site.with_name("saved")


def not_restored(site: Path) -> str:
    """Why; and no place was claimed."""
    before = {folder: whole(site, folder) for folder in ("blocks", "vault")}
    key = ("--master-key", str(site / "master.key"))
    anew = site.with_name("anew")
    done = run_entrepot("restore", str(site.with_name("saved")), str(anew), *key, check=False)
    assert done.returncode == 1
    assert (anew / UNFINISHED).exists()
    assert {folder: whole(site, folder) for folder in ("blocks", "vault")} == before
    return done.stderr


def test_a_restore_takes_over_no_place_where_one_of_them_is_another_sites(site: Path) -> None:
    saved(site)
    change(marker(site, "vault"), site="ab" * 16)
    assert f"backend 'vault': it belongs to site {'ab' * 16}, and the backup is of site " in not_restored(site)
    assert not (site.with_name("anew") / "journal").exists()


def test_a_restore_takes_over_no_place_where_two_are_swapped(site: Path) -> None:
    config = saved(site) / "entrepot.toml"
    text = config.read_text()
    disk, vault = f'"{site}/blocks"', f'"{site}/vault"'
    assert disk in text and vault in text
    config.write_text(text.replace(disk, "\0").replace(vault, disk).replace("\0", vault))
    assert "are two places swapped in the config?" in not_restored(site)


def test_a_restore_takes_over_no_place_without_the_blocks_that_should_lie_there(site: Path) -> None:
    saved(site)
    shutil.rmtree(site / "vault")
    assert "there is no such folder; mount its disk" in not_restored(site)
    (site / "vault").mkdir()  # a mount point without its disk
    assert "'vault': none of 1 blocks that should lie there does; is it the right folder" in not_restored(site)
    (site / "vault" / "stranger").write_text("a value")
    said = not_restored(site)
    assert "none of 1 blocks that should lie there does, and 'stranger' does; is it the right folder" in said
    key = ("--master-key", str(site / "master.key"))
    run_entrepot("restore", str(site.with_name("saved")), str(site.with_name("anew")), *key, "--claim-anyway", "vault")
    assert json.loads(marker(site, "vault").read_text())["incarnation"] == 2
