"""The chain of hashes over a journal, and its tables against a replay of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.errors import Corrupted
from gateway.journal.history import chain, table_diff
from gateway.journal.history.chain import faults
from gateway.journal.history.replay import verify
from gateway.journal.sqlite import journal_reader
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.tables import TABLES
from tests.journal.histories import History


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """A journal of some hundred records, whose store stays open as where a site is in use."""
    store = SqliteStore(tmp_path / "journal.db")
    History(store, seed=5).run(60)
    yield tmp_path / "journal.db"
    store.close()


def change(database: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute(statement, values).rowcount


def numbers(database: Path) -> list[int]:
    """The first record of each batch."""
    with closing(sqlite3.connect(database)) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM journal ORDER BY number")]


def verify_fails(database: Path) -> str:
    store = SqliteStore(database)
    try:
        with pytest.raises(Corrupted) as raised:
            verify(store)
        return str(raised.value)
    finally:
        store.close()


def test_a_journal_that_is_as_it_was_written_has_no_fault(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_reader, "SLICE", 7)
    told: list[tuple[int, int]] = []
    assert not list(faults(database, lambda done, total: told.append((done, total))))
    assert len(told) == len(numbers(database))
    assert told[-1][0] == told[-1][1] >= numbers(database)[-1]


def test_every_record_that_was_changed_is_found(database: Path) -> None:
    second, later = numbers(database)[1], numbers(database)[20]
    for number in (second, later):
        change(database, "UPDATE journal SET records = records || x'00' WHERE number = ?", number)
    found = list(faults(database))
    assert [number for number, _ in found] == [second, later]
    assert found[0][1] == f"the journal's records from {second} on are not what was written" == verify_fails(database)


def test_a_batch_that_is_lost_or_put_in_is_found(database: Path) -> None:
    lost = numbers(database)[10]
    change(database, "DELETE FROM journal WHERE number = ?", lost)
    assert next(faults(database))[1] == f"the journal goes from record {lost - 1} to {numbers(database)[10]}"
    first = numbers(database)[0]
    change(database, "DELETE FROM journal WHERE number = ?", first)
    assert "goes from record 0 to" in next(faults(database))[1]
    assert "goes from record 0 to" in verify_fails(database)


def test_tables_that_stand_elsewhere_than_the_journal_ends_are_found(database: Path) -> None:
    last = numbers(database)[-1]
    change(database, "UPDATE head SET hash = zeroblob(32)")
    assert "is not the one that the tables have" in next(faults(database))[1]
    change(database, "DELETE FROM journal WHERE number = ?", last)
    assert f"the journal ends at record {last - 1}, the tables at" in next(faults(database))[1]


def test_a_journal_that_cannot_be_read_is_a_fault(database: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole, torn = database.read_bytes(), tmp_path / "torn.db"
    torn.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    (fault,) = faults(torn)
    assert "the journal cannot be read" in fault[1]
    assert "the journal's file is malformed: " in chain.malformed(torn)
    assert chain.malformed(database) == ""


def differences(database: Path) -> list[table_diff.Difference]:
    return list(table_diff.differences(database, lambda what, done, total: None))


def test_tables_that_the_journal_made_do_not_differ(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_diff, "CACHED_ROWS", 50)
    monkeypatch.setattr(table_diff, "WRITE_ROWS", 20)
    assert differences(database) == []


def test_every_row_that_the_journal_does_not_make_so_differs(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        filled = {
            table.name: count
            for table in TABLES
            if table.truth and (count := connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0])
        }
        first, last = connection.execute("SELECT min(id), max(id) FROM file").fetchone()
    assert filled["file"] > 2
    change(database, "UPDATE file SET size = size + 1, mode = 7 WHERE id = ?", first)
    change(database, "DELETE FROM file WHERE id = ?", last)
    change(database, "INSERT INTO tenant VALUES ('aaa', 1, 2)")
    change(database, "UPDATE bucket SET made_ns = 'soon'")
    found = differences(database)
    assert {(each.table, each.key, each.sentence) for each in found if each.table != "bucket"} == {
        ("file", (first,), "the journal makes it with another size, mode"),
        ("file", (last,), "the row that the journal makes is missing"),
        ("tenant", ("aaa",), "the journal makes no such row"),
    }
    assert len([each for each in found if each.table == "bucket"]) == filled["bucket"]
