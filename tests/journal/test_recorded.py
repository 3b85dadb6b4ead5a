"""What was written once replays for good, and no tag ever changes its meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.journal.history.replay import replay
from gateway.journal.records import RECORDS
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import JournalRow, Store
from gateway.journal.tables import TABLES
from tests.journal.memory_store import MemoryStore
from tests.journal.recording import FOLDER, RECORDED, current_names, digest, fields_of, recorded_batches

JOURNALS = sorted(FOLDER.glob("journal-*.bin"))


class Recorded(MemoryStore):
    """A recorded journal as the source of a replay."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def batches(self, after: int = 0) -> Iterator[JournalRow]:
        return recorded_batches(self._path)


@pytest.mark.parametrize("recorded", JOURNALS, ids=lambda path: path.stem)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_recorded_journal_replays_into_the_tables_that_it_made_then(
    recorded: Path, kind: str, tmp_path: Path
) -> None:
    told = json.loads(recorded.with_suffix(".json").read_text())
    store: Store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "journal.db")
    head = replay(Recorded(recorded), store)
    assert (head.number, head.hash.hex()) == (told["number"], told["hash"])
    for table in TABLES:
        if table.name in told["tables"]:
            then = told["tables"][table.name]
            assert digest(store, table, then["columns"]) == then["digest"], table.name
    store.close()


def test_there_is_a_recorded_journal() -> None:
    assert JOURNALS


def test_every_tag_has_the_fields_that_were_recorded_and_new_ones_stand_last_with_a_default() -> None:
    recorded = json.loads(RECORDED.read_text())
    for tag, (name, then) in recorded.items():
        record = RECORDS.get(int(tag))
        assert record is not None, f"{name}, tag {tag}, is gone; journals have it for good"
        assert record.__name__ == current_names(name)
        then = [[field, current_names(kind), default] for field, kind, default in then]
        now = fields_of(record)
        assert now[: len(then)] == then, f"{name}: a field that was written changed its place, name or type"
        assert all(default == "default" for _, _, default in now[len(then) :]), f"{name}: a new field needs a default"


def test_every_tag_is_recorded() -> None:
    assert {str(tag) for tag in RECORDS} <= set(json.loads(RECORDED.read_text())), "run tests.journal.recording"
