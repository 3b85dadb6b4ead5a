"""The restore of a site without a backend that no longer exists. These tests run in process and serve no site."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gateway.cli.text.restore import to_dict, to_text
from gateway.errors import EntrepotError, Misconfigured
from gateway.site.admin import restore as restore_module
from gateway.site.admin.backup import backup
from gateway.site.admin.lost_objects import find_losses
from gateway.site.admin.maintenance import background_workers
from gateway.site.admin.restore import restore
from gateway.site.site import Site
from tests.site.running import change_config
from tests.site.test_write_targets import folder, get, held, put  # noqa: F401 (a fixture among them)

DATA = b"x" * 2_000


@pytest.fixture
async def saved(folder: Path, tmp_path: Path) -> Path:  # noqa: F811
    """A backup of a site with objects on `disk` (small), on `vault` (far) and on both (safe). Afterwards
    `vault` is moved away."""
    # Otherwise the journal contains the bytes of small objects, and they can be read without their backend.
    change_config(folder, 'inline_bytes = "64 KiB"', "inline_bytes = 0")
    async with await Site.open(folder) as site:
        await put(site, "small", b"small")
        await put(site, "far", DATA)
        await put(site, "safe/both", b"both")
        await backup(site, tmp_path / "saved", keep_seconds=3600)
    shutil.move(tmp_path / "vault", tmp_path / "gone")
    return tmp_path / "saved"


async def test_a_backend_that_is_gone_stops_a_restore_until_it_is_left_out(
    saved: Path,
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    anew, key = tmp_path / "anew", folder / "master.key"
    with pytest.raises(Misconfigured, match=r"vault: there is no such folder.*leave it out: --without vault"):
        await restore(saved, anew, key)
    restored = await restore(saved, anew, key, without=["vault"])
    lost = restored.lost
    assert lost is not None
    assert (lost.backend, lost.objects, lost.more, lost.blocks) == ("vault", ("s3://tree/far",), 0, 1)
    assert (restored.unclaimed, lost.unchecked) == ({}, 1)
    text = "\n".join(to_text(restored, anew, aged=False))
    assert "vault counts as lost for good" in text
    assert f"1 object(s) cannot be read: 1 block(s), {lost.bytes} bytes had their only copy there" in text
    assert "'safe' awaits copies on vault, which is lost: name others in its ack" in text
    assert to_dict(restored, anew, aged=False)["lost"]["objects"] == ("s3://tree/far",)
    assert not (tmp_path / "vault").exists(), "nothing is made in its place"
    async with await Site.open(anew) as site:
        assert await get(site, "small") == b"small"
        assert await get(site, "safe/both") == b"both"
        with pytest.raises(EntrepotError):
            await get(site, "far")
        await put(site, "another", b"new")
        assert (await find_losses(site, "vault", check=False)).forgotten
    assert not (tmp_path / "vault").exists()


async def test_what_lies_elsewhere_too_is_brought_where_its_policy_wants_it(
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    change_config(
        folder,
        '[policies.safe]\nack = ["disk", "vault"]\nkeep = ["disk", "vault"]\n',
        '[policies.safe]\nack = ["disk", "vault"]\nkeep = ["disk", "vault", "third"]\nack_copies = 1\n'
        f'[backends.third]\ntype = "local"\ncluster = "home"\npath = "{tmp_path}/third"\n',
    )
    async with await Site.open(folder) as site:
        await put(site, "safe/both", b"both")
        await backup(site, tmp_path / "saved", keep_seconds=3600)
        assert await held(site, "third") == set()
    shutil.rmtree(tmp_path / "vault")
    await restore(tmp_path / "saved", tmp_path / "anew", folder / "master.key", without=["vault"])
    async with await Site.open(tmp_path / "anew") as site:
        workers = [each for each in background_workers(site) if each.name in ("planner", "mover")]
        while not await held(site, "third"):
            for worker in workers:
                await worker.step()
        assert await held(site, "third") == await held(site, "disk")


@pytest.mark.parametrize("step", ["record_as_lost", "claim_all"])
async def test_a_restore_without_a_backend_that_was_interrupted_can_be_run_again(
    saved: Path,
    folder: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Misconfigured("cut short")

    anew, key = tmp_path / "anew", folder / "master.key"
    with monkeypatch.context() as patched:
        patched.setattr(restore_module, step, fail)
        with pytest.raises(Misconfigured, match="cut short"):
            await restore(saved, anew, key, without=["vault"])
    with pytest.raises(Misconfigured, match="was interrupted; run it again"):
        await Site.open(anew, "cli", with_storage=False)
    restored = await restore(saved, anew, key, without=["vault"])
    assert restored.lost is not None
    assert restored.lost.objects == ("s3://tree/far",)


async def test_a_backend_that_the_backed_up_site_had_given_up_is_not_asked(
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    async with await Site.open(folder) as site:
        await put(site, "far", DATA)
        await find_losses(site, "vault", forget=True)
        await backup(site, tmp_path / "saved", keep_seconds=3600)
    shutil.rmtree(tmp_path / "vault")
    restored = await restore(tmp_path / "saved", tmp_path / "anew", folder / "master.key")
    assert restored.lost is not None
    assert restored.lost.objects == ("s3://tree/far",)
    assert not (tmp_path / "vault").exists()


async def test_names_that_make_no_sense_are_refused_before_anything_is_made(
    saved: Path,
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    anew, key = tmp_path / "anew", folder / "master.key"
    for without, anyway, message in (
        (["disc"], [], "the backup's config names no backend 'disc'"),
        (["disk", "vault"], [], "every backend of the backup's config would be given up"),
        (["vault"], ["vault"], "backend 'vault' cannot be both claimed anyway and left out"),
    ):
        with pytest.raises(Misconfigured, match=message):
            await restore(saved, anew, key, without=without, anyway=anyway)
    assert not anew.exists()
