"""Backups beside a running committer, and what a restored journal is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gateway.errors import Corrupted, Misconfigured
from gateway.journal.client import Journal
from gateway.journal.history import backup as backups
from gateway.journal.history.backup import MANIFEST, backup, read_manifest, restore
from gateway.journal.history.replay import replay, verify
from gateway.journal.paths import JournalPaths
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.session_commands import COUNTER_BITS, OpenSession
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.tables import SESSION, SITE
from gateway.timing import parse_timing
from tests.journal.histories import EVERY
from tests.journal.memory_store import MemoryStore
from tests.journal.process import end, found, start
from tests.journal.test_histories import assert_same_truth


async def backed_up(folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[backups.Manifest, int]:
    """A backup made while another client commits; and how much that did behind it."""
    monkeypatch.setattr(backups, "PAGES", 2)
    found(folder)
    process = start(folder)
    journal = await Journal.open(folder, "cli", parse_timing("journal.backup_pause_seconds=0.02"))
    await asyncio.gather(*(journal.send(OpenSession(f"before {each}")) for each in range(200)))
    copying = asyncio.create_task(backup(folder, target, journal, keep_seconds=3600))
    behind = 0
    while not copying.done():
        await journal.send(OpenSession("meanwhile"))
        behind += 1
    manifest = await copying
    await journal.send(OpenSession("after the backup"))
    store = ReadStore(JournalPaths(folder).database)
    assert await journal.horizons() <= manifest.number
    assert store.head() > manifest.number
    store.close()
    await journal.close()
    end(process)
    return manifest, behind


async def test_a_backup_beside_commits_is_one_moment_and_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, target = tmp_path / "site", tmp_path / "backup"
    folder.mkdir()
    manifest, behind = await backed_up(folder, target, monkeypatch)
    assert behind, "commits went on meanwhile"
    assert read_manifest(target) == manifest
    assert restore(target, tmp_path / "again") == 2
    store = SqliteStore(JournalPaths(tmp_path / "again").database)
    assert verify(store).number > manifest.number
    replayed = MemoryStore()
    replay(store, replayed)
    assert_same_truth(store, replayed)
    kinds = {row.kind for row in map(SESSION.row._make, store.dump(SESSION))}
    assert {f"before {each}" for each in range(200)} <= kinds
    store.close()


async def test_a_restored_journal_draws_ids_that_were_never_drawn_and_knows_no_live_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, target = tmp_path / "site", tmp_path / "backup"
    folder.mkdir()
    await backed_up(folder, target, monkeypatch)
    old = SqliteStore(JournalPaths(folder).database)
    drawn = max(row[0] for row in old.dump(SESSION))
    old.close()
    restore(target, tmp_path / "once")
    assert restore(target, tmp_path / "twice", above=7) == 8
    for name, incarnation in (("once", 2), ("twice", 8)):
        store = SqliteStore(JournalPaths(tmp_path / name).database)
        assert store.live_sessions() == []
        assert store.load(SITE, [(0,)])[(0,)].incarnation == incarnation
        session = InlineCommitter(store, EVERY).run(OpenSession("new"))
        assert session >> COUNTER_BITS == incarnation
        assert session > drawn
        store.close()


async def test_the_pin_of_a_backup_is_in_it_and_survives_the_committer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, target = tmp_path / "site", tmp_path / "backup"
    folder.mkdir()
    manifest, _ = await backed_up(folder, target, monkeypatch)
    restore(target, tmp_path / "again")
    for journal in (folder, tmp_path / "again"):
        store = SqliteStore(JournalPaths(journal).database)
        (pin,) = store.pins(manifest.made_ns)
        assert 0 < pin <= manifest.number
        assert store.pins(manifest.until_ns + 60 * 10**9) == []
        store.close()


async def test_what_is_no_whole_backup_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, target = tmp_path / "site", tmp_path / "backup"
    folder.mkdir()
    await backed_up(folder, target, monkeypatch)
    with pytest.raises(Misconfigured, match="already contains a journal"):
        restore(target, folder)
    said = json.loads((target / MANIFEST).read_text())
    (target / MANIFEST).write_text(json.dumps(said | {"number": said["number"] + 1}))
    with pytest.raises(Corrupted, match="not the one that its manifest names"):
        restore(target, tmp_path / "other")
    assert not JournalPaths(tmp_path / "other").database.exists()
    (target / MANIFEST).write_text(json.dumps(said | {"format": 2}))
    with pytest.raises(Misconfigured, match="a backup of format 2"):
        restore(target, tmp_path / "other")
    (target / MANIFEST).unlink()
    with pytest.raises(Misconfigured, match="not a complete backup"):
        restore(target, tmp_path / "other")


async def test_a_folder_with_something_in_it_is_no_target(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    found(tmp_path / "site" if (tmp_path / "site").mkdir() is None else tmp_path)
    process = start(tmp_path / "site")
    journal = await Journal.open(tmp_path / "site", "cli")
    with pytest.raises(Misconfigured, match="is not empty: "):
        await backup(tmp_path / "site", tmp_path, journal, keep_seconds=1)
    await journal.close()
    end(process)
