"""What a restore may write, and what it checks first. These tests run in process and serve no site."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.blocks.fsck.findings import Severity
from gateway.errors import Corrupted, Misconfigured, Refused
from gateway.identity.users import AddTenant
from gateway.journal.history.backup import read_manifest
from gateway.journal.history.backup import restore as restore_journal
from gateway.site.admin import maintenance
from gateway.site.admin import restore as restore_module
from gateway.site.admin.backup import backup
from gateway.site.admin.create_site import create_site, unfinished_site
from gateway.site.admin.key_rotation import rotate_master_key
from gateway.site.admin.restore import restore
from gateway.site.site import Site
from gateway.site.storage.agreement import INCARNATION_STEPS
from tests.new_sites import new_site
from tests.site.clouds import Cloud
from tests.site.running import add_cloud


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a site whose journal and master key are named by absolute paths (`site`), two backups of it (`one`
    and `two`), and the master key as it was then (`key`). The key was rotated after the second backup."""
    folder = tmp_path_factory.mktemp("originals")
    asyncio.run(_make(folder))
    return folder


async def _make(folder: Path) -> None:
    site = folder / "site"
    await create_site(site)
    config = site / "entrepot.toml"
    text = config.read_text()
    for named in ('path = "journal"', 'master_key = "master.key"'):
        setting, _, name = named.partition(" = ")
        assert text.count(named) == 1
        text = text.replace(named, f'{setting} = "{site}/{name[1:-1]}"')
    config.write_text(text)
    async with await Site.open(site, "cli", with_storage=False) as opened:
        for name in ("one", "two"):
            await backup(opened, folder / name, keep_seconds=3600)
        shutil.copyfile(site / "master.key", folder / "key")
        await rotate_master_key(opened)


def own_files(folder: Path) -> dict[str, bytes]:
    """Return the site's own files, which a restore elsewhere must not change."""
    return {
        name: (folder / "site" / name).read_bytes() for name in ("master.key", "entrepot.toml", "journal/journal.db")
    }


async def test_a_wrong_master_key_is_refused_before_anything_is_made(originals: Path, tmp_path: Path) -> None:
    before = own_files(originals)
    wrong = tmp_path / "wrong"
    await create_site(tmp_path / "other")
    shutil.copyfile(tmp_path / "other" / "master.key", wrong)
    with pytest.raises(Misconfigured, match="the master key file has no key"):
        await restore(originals / "one", tmp_path / "anew", wrong)
    for text in ("", "no key", "entrepot-master-key-1 id ????", "\udcff"):
        wrong.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(Misconfigured, match="master key file"):
            await restore(originals / "one", tmp_path / "anew", wrong)
    assert not (tmp_path / "anew").exists()
    assert own_files(originals) == before


async def test_a_restore_writes_nothing_of_the_original_that_its_config_names(originals: Path, tmp_path: Path) -> None:
    before, anew = own_files(originals), tmp_path / "anew"
    assert before["master.key"].startswith((originals / "key").read_bytes()), "a key was added since the backup"
    restored = await restore(originals / "one", anew, originals / "key")
    assert restored.moved == {
        "journal.path": str(originals / "site" / "journal"),
        "sealing.master_key": str(originals / "site" / "master.key"),
    }
    assert own_files(originals) == before
    assert (anew / "master.key").read_bytes() == (originals / "key").read_bytes()
    async with await Site.open(anew, "cli", with_storage=False) as site:
        assert (site.incarnation, site.journal_path) == (restored.incarnation, anew / "journal")


async def test_an_interrupted_restore_is_not_finished_by_another_backup_or_key(
    originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise Misconfigured("cut short")

    anew = tmp_path / "anew"
    with monkeypatch.context() as patched:
        patched.setattr(restore_module, "claim_all", fail)
        with pytest.raises(Misconfigured, match="cut short"):
            await restore(originals / "one", anew, originals / "key")
    with pytest.raises(Misconfigured, match="`entrepot restore` of something else was interrupted there"):
        await restore(originals / "two", anew, originals / "key")
    with pytest.raises(Misconfigured, match="which the interrupted restore wrote, differs from"):
        await restore(originals / "one", anew, originals / "site" / "master.key")
    with pytest.raises(Misconfigured, match="`entrepot restore` was interrupted; run it again"):
        await Site.open(anew, "cli", with_storage=False)
    await restore(originals / "one", anew, originals / "key")
    with pytest.raises(Misconfigured, match="is a site already"):
        await restore(originals / "one", anew, originals / "key")


async def test_two_restores_into_one_folder_do_not_run_at_once(originals: Path, tmp_path: Path) -> None:
    with unfinished_site(tmp_path / "anew", "restore", "one"), pytest.raises(Misconfigured, match="another process"):
        await restore(originals / "one", tmp_path / "anew", originals / "key")


async def test_a_backend_that_nobody_knows_is_not_claimed_anyway(originals: Path, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="the backup's config names no backend 'disc'"):
        await restore(originals / "one", tmp_path / "anew", originals / "key", anyway=["disc"])


@pytest.mark.parametrize("borne", [(1 << 63) - 1, 1 + INCARNATION_STEPS + 1])
async def test_a_cloud_that_bears_a_huge_incarnation_neither_raises_the_sites_nor_stops_a_restore(
    borne: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud, site, anew = Cloud.instead_of_buckets(monkeypatch), new_site(tmp_path / "site"), tmp_path / "anew"
    add_cloud(site, "http://cloud.invalid")
    async with await Site.open(site, "cli") as opened:
        await backup(opened, tmp_path / "saved", keep_seconds=3600)
    held = cloud.held = cloud.held._replace(incarnation=borne)
    restored = await restore(tmp_path / "saved", anew, site / "master.key")
    assert restored.incarnation == 2
    assert cloud.held == held
    assert f"incarnation {borne} of this site holds it" in restored.unclaimed["bucket"]
    async with await Site.open(anew, "cli") as opened:
        assert f"incarnation {borne}" in opened.storage.troubles()["bucket"].why


def test_a_restore_beyond_the_last_incarnation_is_refused(originals: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="has no ids left"):
        restore_journal(originals / "one", tmp_path / "journal", above=(1 << 15) - 1)


# ---- a damaged journal -----------------------------------------------------------------------------------------------


def change(site: Path, statement: str) -> None:
    with closing(sqlite3.connect(site / "journal" / "journal.db")) as connection, connection:
        assert connection.execute(statement).rowcount == 1


async def test_a_damaged_record_is_reported_by_fsck_and_backup_and_the_tables_alone_are_restored(
    tmp_path: Path,
) -> None:
    site, saved, anew, key = tmp_path / "site", tmp_path / "saved", tmp_path / "anew", tmp_path / "site" / "master.key"
    await create_site(site)
    async with await Site.open(site, "cli") as opened:
        sound = await maintenance.fsck(opened, read=True, replay=True)
    assert sound.worst is Severity.NONE, sound.findings
    change(site, "UPDATE journal SET records = records || x'00' WHERE number = 3")
    fault = "the journal's records from 3 on are not what was written"
    async with await Site.open(site, "cli") as opened:
        report = await maintenance.fsck(opened, read=True, replay=True)
        manifest = await backup(opened, saved, keep_seconds=3600)
    assert [(each.kind, each.where, each.what) for each in report.findings[:1]] == [
        ("journal-damaged", "record 3", fault)
    ]
    assert dict(report.kinds) == {"journal-damaged": 1, "replay-impossible": 1}
    assert manifest.damage == fault == read_manifest(saved).damage
    with pytest.raises(Corrupted, match=f"{fault}. Restore another backup, or only the tables"):
        await restore(saved, anew, key)
    shutil.rmtree(anew)
    restored = await restore(saved, anew, key, tables_only=True)
    assert "NOT verified: whether the tables match the" in restored.unverified
    assert "The tables do not contradict each other" in restored.unverified
    async with await Site.open(anew, "cli") as opened:
        await opened.journal.send(AddTenant("later"))
        clean, replayed = await maintenance.fsck(opened, read=True), await maintenance.fsck(opened, replay=True)
        again = await backup(opened, tmp_path / "again", keep_seconds=3600)
    assert (clean.worst, dict(replayed.kinds)) == (Severity.NONE, {"replay-impossible": 1})
    assert "with tables that were restored without their records" in replayed.findings[0].what
    assert (again.damage, again.number > manifest.number) == ("", True)
    await restore(tmp_path / "again", tmp_path / "third", key)


async def test_the_tables_alone_of_an_undamaged_backup_are_not_restored(originals: Path, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="the backup's journal is undamaged: restore it without --tables-only"):
        await restore(originals / "one", tmp_path / "anew", originals / "key", tables_only=True)


async def test_a_row_that_the_journal_does_not_make_is_found_by_a_replay_alone(originals: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    await restore(originals / "one", site, originals / "key")
    change(site, "UPDATE user SET made_ns = made_ns + 1")
    async with await Site.open(site, "cli") as opened:
        quick, replayed = await maintenance.fsck(opened), await maintenance.fsck(opened, replay=True)
    assert quick.worst is Severity.NONE
    (finding,) = replayed.findings
    assert (finding.kind, finding.where) == ("replay-differs", "user 'root'")
    assert finding.what == "the journal makes it with another made_ns"
