"""The journal alone makes the truth: replaying it into an empty store gives the same tables."""

from __future__ import annotations

from pathlib import Path

from gateway.journal.local import LocalCommitter
from gateway.journal.memory_store import MemoryStore
from gateway.journal.replay import replay, verify
from gateway.journal.session_commands import COMMANDS, EndSession, FoundSite, OpenSession
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.tables import TABLES


def test_a_replayed_journal_gives_the_same_truth(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "journal.db")
    committer = LocalCommitter(store, COMMANDS)
    committer.run(FoundSite("ab" * 16, "here"))
    first = committer.run(OpenSession("cli"))
    committer.run(OpenSession("worker"))
    committer.run(EndSession(first))
    again = MemoryStore()
    assert replay(store, again) == verify(store)
    for table in TABLES:
        assert list(store.dump(table)) == list(again.dump(table)), table.name
    store.close()
