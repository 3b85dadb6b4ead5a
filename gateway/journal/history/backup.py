"""Online backup of a journal with all its tables, and restoring it as a new incarnation.

A backup is a folder with one SQLite file and a manifest, which is written last: without it there is no backup. Ring
keys are in it as the tables have them, wrapped; the master key is not, and neither are blocks.

**Blocks outlive the backup.** Before the copy begins, the committer pins the number at which the journal stands. The
copy's snapshot is no older, so a block that lives in it dies, if ever, behind that number, and the sweeper leaves it
alone until the pin has run out. The pin is durable, and part of the copy: what was restored can be restored again.

**A new incarnation.** A restored journal goes back in time: sessions that it believes to be live are ended, and ids
are drawn above a new incarnation, so that none is drawn that the lost future drew already.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gateway import failpoints
from gateway.errors import Corrupted, Misconfigured
from gateway.journal.client import Journal
from gateway.journal.history import chain
from gateway.journal.history.replay import verify
from gateway.journal.lock import held_lock
from gateway.journal.paths import JournalPaths, make_folder, sync_folder
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.session_commands import COMMANDS, BeginChain, EndSession, StartIncarnation, begin_chain
from gateway.journal.site_clock import KeptClock
from gateway.journal.sqlite.store import SqliteStore
from gateway.timing import Timing

FORMAT = 1
MANIFEST = "backup.json"
DATABASE = "journal.db"
PAGES = 1024
"""Copied in one step, between which others may use the disk."""

Progress = Callable[[int, int], None]
"""Told the pages that are copied, and all."""


@dataclass(frozen=True)
class Manifest:
    """What a backup says of itself."""

    format: int
    site: str
    incarnation: int
    number: int
    """Of the last record in it."""
    hash: str
    """The running hash there, hex."""
    made_ns: int
    until_ns: int
    """Until then the sweeper keeps the blocks that it refers to."""
    damage: str = ""
    """What is wrong with the journal in it, which can be restored from its tables alone then; empty if nothing is."""

    def plain(self) -> dict[str, Any]:
        """Plain values. Older versions of this code know no damage, and restore no backup that has some."""
        values = asdict(self)
        return values if self.damage else {name: value for name, value in values.items() if name != "damage"}


def no_progress(done: int, of: int) -> None:
    """Nobody looks."""


async def backup(
    folder: Path, target: Path, journal: Journal, *, keep_seconds: float, progress: Progress = no_progress
) -> Manifest:
    """Back up the journal in *folder*, whose committer *journal* is connected to, to the new folder *target*.

    The committer goes on meanwhile; the WAL keeps what it commits until the copy is done. The copy is read back, and
    its chain of hashes checked: what is wrong with it stands in the manifest. Raises `Misconfigured` if *target* holds
    something already or cannot be written, `CommitterGone`."""
    timing = journal.timing
    begun_ns = timing.clock.wall_ns()
    until_ns = begun_ns + int(keep_seconds * 1e9)
    _make_empty(target)
    source = JournalPaths(folder).database
    await journal.pin(f"backup {begun_ns}", _number(source), until_ns)
    failpoints.reach("backup-pinned")
    manifest = await asyncio.to_thread(_copy, source, target / DATABASE, begun_ns, until_ns, progress, timing)
    failpoints.reach("backup-copied")
    _write_durably(target / MANIFEST, json.dumps(manifest.plain(), indent=1).encode())
    return manifest


def read_manifest(source: Path) -> Manifest:
    """The manifest of the backup in *source*. Raises `Misconfigured` if that is no whole backup, or a newer one."""
    try:
        manifest = Manifest(**json.loads((source / MANIFEST).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise Misconfigured(f"{source} is no whole backup: {error}") from error
    if manifest.format > FORMAT:
        raise Misconfigured(f"{source} is a backup of format {manifest.format}; this version knows {FORMAT}")
    return manifest


def restore(source: Path, folder: Path, *, above: int = 0, tables_only: bool = False) -> int:
    """Make a journal in *folder*, which has none, out of the backup in *source*. Answers the new incarnation, which is
    above *above* and above the backup's.

    The journal is verified first, record by record. With *tables_only* it is left behind: the tables are taken as they
    are, and the chain of hashes begins anew; for a backup whose journal is damaged, and no other. The journal appears
    with the last step, so a restore that was cut short can be run again. Raises `Misconfigured`, `Corrupted`."""
    manifest = read_manifest(source)
    paths = JournalPaths(folder)
    make_folder(folder)
    with held_lock(paths):
        if paths.database.exists():
            raise Misconfigured(f"{folder} holds a journal already")
        making = folder / "restoring.db"
        for suffix in ("", "-wal", "-shm"):
            making.with_name(making.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(source / DATABASE, making)
        making.chmod(0o600)
        incarnation = _begin_anew(making, manifest, above, tables_only=tables_only)
        making.rename(paths.database)
        sync_folder(folder)
    return incarnation


def _begin_anew(path: Path, manifest: Manifest, above: int, *, tables_only: bool) -> int:
    store = SqliteStore(path)
    try:
        if tables_only:
            _leave_journal_behind(store, manifest)
        else:
            _see_that_it_is_whole(store, manifest)
        committer = InlineCommitter(store, COMMANDS, KeptClock(store).now_ns)
        live = store.live_sessions()
        incarnation: int = committer.run(StartIncarnation(above))
        committer.run_all([EndSession(session) for session in live])
        store.drop_slots()
    finally:
        store.close()
    _whole_in_one_file(path)
    return incarnation


def _see_that_it_is_whole(store: SqliteStore, manifest: Manifest) -> None:
    try:
        _verify(store, manifest)
    except Corrupted as error:
        raise Corrupted(
            f"{error}. Restore another backup, or with --tables-only the tables of this one alone"
        ) from error


def _verify(store: SqliteStore, manifest: Manifest) -> None:
    try:
        head = verify(store)
    except sqlite3.Error as error:
        raise Corrupted(f"the backup's journal cannot be read: {error}") from error
    if (head.number, head.hash.hex()) != (manifest.number, manifest.hash):
        raise Corrupted("the backup's journal is not the one that its manifest names")


def _leave_journal_behind(store: SqliteStore, manifest: Manifest) -> None:
    """Take the tables as they are. Their numbers go on: blocks remember the records that killed them."""
    try:
        _verify(store, manifest)
    except Corrupted:
        pass
    else:
        raise Misconfigured("the backup's journal is whole: restore it as it is, and nothing is left unverified")
    store.check()
    store.drop_journal(max(store.head().number, manifest.number))
    InlineCommitter(store, {BeginChain: begin_chain}).run(BeginChain())


def _number(database: Path) -> int:
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT number FROM head").fetchone()[0])
    finally:
        connection.close()


def _copy(source: Path, target: Path, made_ns: int, until_ns: int, progress: Progress, timing: Timing) -> Manifest:
    """In a thread. One snapshot is held all along, so that no commit makes the copy begin again."""
    reading = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    writing = sqlite3.connect(target, isolation_level=None)
    try:
        reading.execute("BEGIN")
        number, hashed = reading.execute("SELECT number, hash FROM head").fetchone()
        site, incarnation = reading.execute("SELECT id, incarnation FROM site").fetchone()
        pause_seconds = timing.journal.backup_pause_seconds
        reading.backup(writing, pages=PAGES, progress=lambda _, left, of: progress(of - left, of), sleep=pause_seconds)
    except sqlite3.Error as error:
        raise Misconfigured(f"the backup to {target} failed: {error}") from error
    finally:
        writing.close()
        reading.close()
    _whole_in_one_file(target)
    damage = next((fault for _, fault in chain.faults(target)), "") or chain.malformed(target)
    return Manifest(FORMAT, site, incarnation, number, hashed.hex(), made_ns, until_ns, damage)


def _whole_in_one_file(path: Path) -> None:
    """No WAL beside it, and durable."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
    finally:
        connection.close()
    path.chmod(0o600)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_folder(path.parent)


def _make_empty(target: Path) -> None:
    try:
        make_folder(target)
        left = next(target.iterdir(), None)
    except OSError as error:
        raise Misconfigured(f"no backup can be made in {target}: {error}") from error
    if left is not None:
        raise Misconfigured(f"{target} is not empty: {left.name} is there")


def _write_durably(path: Path, data: bytes) -> None:
    """All of it under its name, or nothing."""
    making = path.with_name(path.name + ".new")
    handle = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    making.rename(path)
    sync_folder(path.parent)
