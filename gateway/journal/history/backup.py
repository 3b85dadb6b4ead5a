"""Online backup of a journal with all its tables, and its restore as a new incarnation.

A backup is a folder with one SQLite file and a manifest. The manifest is written last; a folder without it is not a
backup. The ring keys are in the tables, wrapped. The master key and the blocks are not part of the backup.

**Blocks outlive the backup.** Before the copy begins, the committer pins the number of the journal's last record. The
copy's snapshot is not older. So a block that is alive in the snapshot can die only after that number, and the sweeper
does not delete it until the pin expires. The pin is durable and part of the copy, so what was restored can be restored
again.

**A new incarnation.** A restored journal goes back in time. The sessions that it believes to be live are ended, and ids
are drawn from the range of a new incarnation, so none is drawn that was drawn after the backup was made.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gateway import failpoints
from gateway.errors import Corrupted, Misconfigured
from gateway.journal.client import Journal
from gateway.journal.history import chain
from gateway.journal.history.replay import verify
from gateway.journal.lock import hold_lock
from gateway.journal.paths import JournalPaths, make_folder, sync_folder
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.session_commands import COMMANDS, BeginChain, EndSession, StartIncarnation, begin_chain
from gateway.journal.site_clock import CommitterClock
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.whereabouts import RESTORE_PIN
from gateway.timing import Timing

FORMAT = 1
MANIFEST = "backup.json"
DATABASE = "journal.db"
PAGES = 1024
"""Pages that are copied in one step. Between two steps other processes may use the disk."""

REHEARSAL_ID = 0x52454852
"""The `application_id` of a journal's database that is only to be read: the bytes `REHR`."""

Progress = Callable[[int, int], None]
"""Called with the number of pages that are copied, and of all pages."""


@dataclass(frozen=True)
class Manifest:
    """The description of a backup, which is part of it."""

    format: int
    site: str
    incarnation: int
    number: int
    """The number of the last record in it."""
    hash: str
    """The running hash at that record, hex."""
    made_ns: int
    until_ns: int
    """Until then the sweeper keeps the blocks that the backup refers to."""
    damage: str = ""
    """What is wrong with the journal in it; empty if nothing is. A damaged backup can be restored from its tables
    alone."""

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as JSON values. The field `damage` is left out if it is empty: older versions do not know
        it, and so they refuse a damaged backup."""
        values = asdict(self)
        return values if self.damage else {name: value for name, value in values.items() if name != "damage"}


def no_progress(done: int, of: int) -> None:
    """Ignore the progress."""


async def backup(
    folder: Path, target: Path, journal: Journal, *, keep_seconds: float, progress: Progress = no_progress
) -> Manifest:
    """Back up the journal in *folder*, to whose committer *journal* is connected, to the new folder *target*.

    The committer continues meanwhile; what it commits remains in the WAL until the copy is done. The copy is read back
    and its chain of hashes is checked; a fault is noted in the manifest. Raises `Misconfigured` if *target* is not
    empty or cannot be written, `CommitterGone`."""
    timing = journal.timing
    begun_ns = timing.clock.wall_ns()
    until_ns = begun_ns + int(keep_seconds * 1e9)
    _make_target(target)
    source = JournalPaths(folder).database
    await journal.pin(f"backup {begun_ns}", _last_number(source), until_ns)
    failpoints.reach("backup-pinned")
    manifest = await asyncio.to_thread(_copy, source, target / DATABASE, begun_ns, until_ns, progress, timing)
    failpoints.reach("backup-copied")
    _write_durably(target / MANIFEST, json.dumps(manifest.to_dict(), indent=1).encode())
    return manifest


def read_manifest(source: Path) -> Manifest:
    """Return the manifest of the backup in *source*. Raises `Misconfigured` if that is not a complete backup, or one of
    a newer format."""
    try:
        manifest = Manifest(**json.loads((source / MANIFEST).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise Misconfigured(f"{source} is not a complete backup: {error}") from error
    if manifest.format > FORMAT:
        raise Misconfigured(f"{source} is a backup of format {manifest.format}; this version can read format {FORMAT}")
    return manifest


def restore(
    source: Path, folder: Path, *, above: int = 0, keep_newer_seconds: float = 0.0, tables_only: bool = False
) -> int:
    """Make a journal in *folder*, which has none, from the backup in *source*. Returns the new incarnation, which is
    above *above* and above that of the backup.

    For *keep_newer_seconds* the restored site deletes nothing that the original may have named after the backup was
    made.

    The chain of hashes is verified first. *tables_only* is for a backup whose journal is damaged, and is refused for
    any other: it restores the tables without the journal, and begins a new chain of hashes. The last step puts the
    database under its name, so an interrupted restore can be run again. Raises `Misconfigured`, `Corrupted`."""
    manifest = read_manifest(source)
    with _new_database(source, folder) as path:
        return _begin_incarnation(path, manifest, above, keep_newer_seconds, tables_only=tables_only)


def rehearse(source: Path, folder: Path, *, tables_only: bool = False) -> None:
    """Make a journal in *folder*, which has none, as it was when the backup in *source* was made, in the same
    incarnation. It is only to be read, which its `application_id` says (https://sqlite.org/pragma.html). *tables_only*
    and what is raised: as `restore`."""
    manifest = read_manifest(source)
    with _new_database(source, folder) as path:
        store = SqliteStore(path)
        try:
            _verify_or_drop_journal(store, manifest, tables_only=tables_only)
        finally:
            store.close()
        _merge_wal(path, application_id=REHEARSAL_ID)


@contextmanager
def _new_database(source: Path, folder: Path) -> Iterator[Path]:
    """Copy the database of the backup in *source* to *folder*, and yield the copy's path. After the `with` block the
    copy gets the name of the journal's database. Raises `Misconfigured` if *folder* has a journal."""
    paths = JournalPaths(folder)
    make_folder(folder)
    with hold_lock(paths):
        if paths.database.exists():
            raise Misconfigured(f"{folder} already contains a journal")
        temporary = folder / "restoring.db"
        for suffix in ("", "-wal", "-shm"):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(source / DATABASE, temporary)
        temporary.chmod(0o600)
        yield temporary
        temporary.rename(paths.database)
        sync_folder(folder)


def _begin_incarnation(
    path: Path, manifest: Manifest, above: int, keep_newer_seconds: float, *, tables_only: bool
) -> int:
    store = SqliteStore(path)
    try:
        _verify_or_drop_journal(store, manifest, tables_only=tables_only)
        now_ns = CommitterClock(store).now_ns
        # Of what is dead here, too: a session that was open in the backup may have named it again in the original.
        until_ns = now_ns() + int(keep_newer_seconds * 1e9) if keep_newer_seconds else 0
        store.pin(RESTORE_PIN, 0, until_ns, now_ns())
        committer = InlineCommitter(store, COMMANDS, now_ns)
        live = store.live_sessions()
        incarnation: int = committer.run(StartIncarnation(above))
        committer.run_all([EndSession(session, seen=not keep_newer_seconds) for session in live])
        store.drop_slots()
    finally:
        store.close()
    _merge_wal(path)
    return incarnation


def _verify_or_drop_journal(store: SqliteStore, manifest: Manifest, *, tables_only: bool) -> None:
    if tables_only:
        _drop_journal(store, manifest)
    else:
        _verify_or_advise(store, manifest)


def _verify_or_advise(store: SqliteStore, manifest: Manifest) -> None:
    try:
        _verify(store, manifest)
    except Corrupted as error:
        raise Corrupted(
            f"{error}. Restore another backup, or only the tables of this one with --tables-only"
        ) from error


def _verify(store: SqliteStore, manifest: Manifest) -> None:
    try:
        head = verify(store)
    except sqlite3.Error as error:
        raise Corrupted(f"the backup's journal cannot be read: {error}") from error
    if (head.number, head.hash.hex()) != (manifest.number, manifest.hash):
        raise Corrupted("the backup's journal is not the one that its manifest names")


def _drop_journal(store: SqliteStore, manifest: Manifest) -> None:
    """Delete the journal and keep the tables. Record numbers continue, since the rows of dead blocks contain the
    numbers of the records that they died at."""
    try:
        _verify(store, manifest)
    except Corrupted:
        pass
    else:
        raise Misconfigured(
            "the backup's journal is undamaged: restore it without --tables-only, so that all of it is verified"
        )
    store.check()
    store.drop_journal(max(store.head().number, manifest.number))
    InlineCommitter(store, {BeginChain: begin_chain}).run(BeginChain())


def _last_number(database: Path) -> int:
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT number FROM head").fetchone()[0])
    finally:
        connection.close()


def _copy(source: Path, target: Path, made_ns: int, until_ns: int, progress: Progress, timing: Timing) -> Manifest:
    """Copy the database. Called in a thread. One snapshot is held until the end, so that no commit makes SQLite restart
    the copy."""
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
    _merge_wal(target)
    damage = next((fault for _, fault in chain.faults(target)), "") or chain.malformed(target)
    return Manifest(FORMAT, site, incarnation, number, hashed.hex(), made_ns, until_ns, damage)


def _merge_wal(path: Path, *, application_id: int = 0) -> None:
    """Move the contents of the WAL into the database file at *path*, remove the WAL, and make the file durable. It gets
    *application_id*."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA application_id = {application_id}")
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


def _make_target(target: Path) -> None:
    try:
        make_folder(target)
        first = next(target.iterdir(), None)
    except OSError as error:
        raise Misconfigured(f"no backup can be made in {target}: {error}") from error
    if first is not None:
        raise Misconfigured(f"{target} is not empty: it contains {first.name}")


def _write_durably(path: Path, data: bytes) -> None:
    """Write *data* to *path* atomically: all of it is there under that name, or nothing."""
    temporary = path.with_name(path.name + ".new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    temporary.rename(path)
    sync_folder(path.parent)
