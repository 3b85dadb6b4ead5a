"""The SQLite store: its schema's number, what readers see, and what an edited journal gives away."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from gateway.errors import CommitterGone, Corrupted, Misconfigured
from gateway.journal.history.replay import replay, verify
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.session_commands import COMMANDS, FoundSite, OpenSession
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.schema import STEPS, _add_site_clock
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.tables import DELETED_BUCKET, ENTRY, UPLOAD, VERSION, Part, Shape, Upload, UploadState
from gateway.placement import commands as placement
from tests.journal.histories import History
from tests.journal.memory_store import MemoryStore


def made(path: Path, batches: int = 0) -> SqliteStore:
    store = SqliteStore(path)
    InlineCommitter(store, COMMANDS).run(FoundSite("ab" * 16, "here"))
    if batches:
        for each in range(batches):
            InlineCommitter(store, COMMANDS).run(OpenSession(str(each)))
    return store


def test_the_schema_s_number_is_in_the_file_and_a_newer_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    made(path).close()
    with sqlite3.connect(path) as edited:
        assert edited.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
        edited.execute("PRAGMA user_version = 99")
    edited.close()
    with pytest.raises(Misconfigured, match="has schema 99, and this version of entrepot knows those up to"):
        SqliteStore(path)


def test_a_journal_of_a_newer_feature_level_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    made(path).close()
    with sqlite3.connect(path) as edited:
        edited.execute("UPDATE site SET feature = 99")
    edited.close()
    with pytest.raises(Misconfigured, match="has feature level 99"):
        SqliteStore(path)


def test_commits_are_synced_in_full(tmp_path: Path) -> None:
    store = made(tmp_path / "journal.db")
    assert store._writing.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._writing.execute("PRAGMA synchronous").fetchone() == (2,)
    store.close()


def test_rows_of_any_number_of_keys_are_loaded_and_absent_ones_left_out(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "journal.db")
    history = History(store, 1)
    history.run(120)
    for table in history.shown._rows:
        rows = {table.key_of(row): row for row in history.shown.dump(table)}
        for count in (0, 1, 2, 3, 255, 256, 257, len(rows)):
            assert store.load(table, list(rows)[:count]) == dict(list(rows.items())[:count])
        strange = tuple({int: -1, str: "nobody", bytes: b"nobody"}[type(each)] for each in next(iter(rows), ()))
        if strange:
            assert store.load(table, [strange]) == {}
    store.close()


def test_an_edited_journal_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = made(path, batches=200)
    verify(store)
    edits = [
        ("UPDATE journal SET records = zeroblob(length(records)) WHERE number = 90", "from 90 on are not what was"),
        ("DELETE FROM journal WHERE number = 90", "goes from record 89 to 91"),
        ("DELETE FROM journal WHERE number > 150", "ends at record 150, the tables at 201"),
        ("UPDATE journal SET hash = zeroblob(32) WHERE number = 201", "from 201 on are not what was written"),
        ("UPDATE head SET hash = zeroblob(32)", ""),
    ]
    for statement, said in edits:
        store._writing.execute("BEGIN")
        store._writing.execute(statement)
        store._writing.execute("COMMIT")
        with pytest.raises(Corrupted, match=said or None):
            verify(store)
        if said:
            with pytest.raises(Corrupted):
                replay(store, MemoryStore()), verify(store)
        store.close()
        path.unlink()
        store = made(path, batches=200)
    store.close()


def test_a_reader_never_writes(tmp_path: Path) -> None:
    store = made(tmp_path / "journal.db")
    tables = ReadStore(tmp_path / "journal.db")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        tables.query("DELETE FROM journal")
    tables.close(), store.close()


def test_a_snapshot_sees_one_state_and_what_came_meanwhile_behind_it(tmp_path: Path) -> None:
    store = made(tmp_path / "journal.db")
    tables = ReadStore(tmp_path / "journal.db")
    with tables.snapshot():
        before = tables.head()
        InlineCommitter(store, COMMANDS).run(OpenSession("x"))
        with tables.snapshot():
            assert tables.head() == before
        assert tables.head() == before
    assert tables.head() > before
    tables.close(), store.close()


def test_where_no_committer_ever_was_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(CommitterGone, match="cannot be read"):
        ReadStore(tmp_path / "journal.db")


def test_a_fork_in_the_middle_of_a_snapshot_leaves_both_sides_whole(tmp_path: Path) -> None:
    store = made(tmp_path / "journal.db")
    tables, other = ReadStore(tmp_path / "journal.db"), ReadStore(tmp_path / "journal.db")
    before = tables.head()
    with tables.snapshot():
        tables.head()
        child = os.fork()
        if child == 0:
            ok = tables.head() == before == other.head()
            with tables.snapshot():
                ok = ok and tables.head() == before
            os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert tables.head() == before
    InlineCommitter(store, COMMANDS).run(OpenSession("x"))
    assert tables.head() == other.head() > before
    tables.close(), other.close(), store.close()


def test_the_wal_is_brought_home_while_nothing_else_is_to_do(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = made(path, batches=50)
    length = path.stat().st_size
    store.checkpoint(idle=False)
    assert path.stat().st_size == length
    store.checkpoint(idle=True)
    assert path.stat().st_size > length
    store.close()


REMEMBERED = ("size", "etag", "owner", "checksum")


def dumped(path: Path, table: str) -> list[tuple[object, ...]]:
    base = sqlite3.connect(path)
    try:
        return base.execute(f"SELECT * FROM {table}").fetchall()
    finally:
        base.close()


def test_a_file_of_schema_1_becomes_one_of_today(tmp_path: Path) -> None:
    """As it was before names remembered what listings show."""
    path = tmp_path / "journal.db"
    store = SqliteStore(path)
    History(store, 3).run(300)
    store.close()
    wanted = {table: dumped(path, table) for table in ("entry", "version", "file")}
    assert any(row[-4] for row in wanted["entry"]), "names remember sizes"
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("DROP INDEX file_rewritten")
    for table, columns in {"entry": REMEMBERED, "version": REMEMBERED, "file": ("rewritten",)}.items():
        for column in columns:
            base.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    base.execute("PRAGMA user_version = 1")
    base.close()
    SqliteStore(path).close()
    rewritten = {row[0] for row in wanted["file"] if row[-1]}
    assert [row[:-1] for row in dumped(path, "file")] == [row[:-1] for row in wanted["file"]]
    for table in ("entry", "version"):
        node = {"entry": ENTRY, "version": VERSION}[table].row._fields.index("node")
        for then, now in zip(wanted[table], dumped(path, table), strict=True):
            assert then == now or then[node] in rewritten, "what a rewritten node's names showed was stale before"


def test_a_file_of_schema_2_becomes_one_of_today(tmp_path: Path) -> None:
    """As it was before there was work on copies."""
    path = tmp_path / "journal.db"
    store = made(path)
    InlineCommitter(store, placement.COMMANDS).run(placement.NameBackend("disk"))
    store.close()
    with sqlite3.connect(path) as fresh:
        wanted = set(fresh.execute("SELECT type, name, tbl_name FROM sqlite_schema").fetchall())
    fresh.close()
    base = sqlite3.connect(path, isolation_level=None)
    for statement in ("DROP INDEX block_backends", "DROP TABLE work", "DROP TABLE plan"):
        base.execute(statement)
    base.execute("ALTER TABLE backend DROP COLUMN lost")
    base.execute("PRAGMA user_version = 2")
    base.close()
    SqliteStore(path).close()
    with sqlite3.connect(path) as moved:
        assert set(moved.execute("SELECT type, name, tbl_name FROM sqlite_schema").fetchall()) == wanted
        assert [row[::2] for row in moved.execute("SELECT name, id, lost FROM backend")] == [("disk", 0)]
    moved.close()


def test_a_file_of_schema_3_becomes_one_of_today(tmp_path: Path) -> None:
    """As it was when open uploads kept their bucket."""
    path = tmp_path / "journal.db"
    made(path).close()
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("DROP TABLE gone")
    base.execute("PRAGMA user_version = 3")
    base.close()
    store = SqliteStore(path)
    assert list(store.dump(DELETED_BUCKET)) == []
    store.close()


def test_uploads_of_an_older_file_are_as_old_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    SqliteStore(path).close()
    base = sqlite3.connect(path, isolation_level=None)
    wanted = set(base.execute("SELECT type, name, tbl_name FROM sqlite_schema").fetchall())
    for statement in (
        "DROP TABLE clock",
        "DROP INDEX upload_open",
        "DROP INDEX upload_ended",
        "ALTER TABLE upload DROP COLUMN site_ns",
        "ALTER TABLE upload DROP COLUMN last_part",
        "ALTER TABLE upload DROP COLUMN joined",
        "ALTER TABLE upload DROP COLUMN staged",
        "CREATE INDEX upload_open ON upload (made_ns) WHERE state = 0",
        "CREATE INDEX upload_ended ON upload (ended_ns) WHERE state > 0",
    ):
        base.execute(statement)
    for number, state, ended_ns in (
        (1, UploadState.OPEN, 0),
        (2, UploadState.COMPLETED, 70),
        (3, UploadState.ABORTED, 80),
    ):
        row = Upload("b", b"k", number, state, 1, 60 + number, ended_ns, 0, "", "", b"", b"", b"")[:-4]
        base.execute(f"INSERT INTO upload VALUES ({', '.join('?' * len(row))})", row)
    for number, part in ((1, 21), (2, 20)):  # the second one came first
        row = Part(1, number, part, 1, int(Shape.NONE), 0, "", b"", "", 0)
        base.execute(f"INSERT INTO part VALUES ({', '.join('?' * len(row))})", row)
    base.execute(f"PRAGMA user_version = {STEPS.index(_add_site_clock)}")
    base.close()
    store = SqliteStore(path)
    assert {row.id: row.site_ns for row in map(Upload._make, store.dump(UPLOAD))} == {1: 61, 2: 70, 3: 80}
    assert {row.id: row.last_part for row in map(Upload._make, store.dump(UPLOAD))} == {1: 21, 2: 0, 3: 0}
    assert set(store.query("SELECT type, name, tbl_name FROM sqlite_schema")) == wanted
    indexes = store.query("SELECT sql FROM sqlite_schema WHERE name IN ('upload_open', 'upload_ended')")
    assert ["site_ns" in sql for (sql,) in indexes] == [True, True]
    store.close()
