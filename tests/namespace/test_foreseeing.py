"""Rows that are loaded before the commands run, and directories that a command of many keys finds once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Refused
from gateway.identity.users import AddTenant, AddUser
from gateway.journal.server.batch import NO_SESSION, BatchRunner, CommandResult, Job
from gateway.journal.server.row_cache import RowCache
from gateway.journal.session_commands import COMMANDS as SESSIONS
from gateway.journal.session_commands import OpenSession
from gateway.journal.tables import DIR, ENTRY, VERSION, Versioning
from gateway.namespace.commands.buckets import MakeBucket
from gateway.namespace.commands.objects import DeleteObject, DeleteObjects, Doomed, PutObject
from gateway.site.commands import COMMANDS
from tests.journal.memory_store import MemoryStore
from tests.namespace.world import World, put_command

USER = 7


class Site:
    """Batches over a store in memory, by a committer that has just begun whenever `begin` was called."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.ran: Counter[str] = Counter()
        self.begin()
        self.session = self.batch(OpenSession("test"))[0].value
        tenant = self.batch(AddTenant("t"))[0].value
        self.user = self.batch(AddUser("alice", "t", False, "", b"", ""))[0].value
        self.batch(MakeBucket("b", self.user, "alice", tenant, "here", 1))

    def begin(self) -> None:
        table = {kind: self._counted(run) for kind, run in {**SESSIONS, **COMMANDS}.items()}
        self.runner = BatchRunner(RowCache(self.store), table, self.store.head())

    def _counted(self, run: Any) -> Any:
        def counted(asked: Any, tx: Any) -> Any:
            self.ran[type(asked).__name__] += 1
            return run(asked, tx)

        return counted

    def batch(self, *commands: Any) -> list[CommandResult]:
        self.ran.clear()
        # under no session: what a session's first commands miss is its slots
        prepared = self.runner.prepare([Job(NO_SESSION, 0, 0, each, 0, None) for each in commands], 1)
        self.store.write(prepared.batch)
        self.runner.mark_durable(prepared)
        return [next(a for a in prepared.results if a.job.command is each) for each in commands]

    def puts(self, *keys: bytes) -> list[Any]:
        return [PutObject("b", key, self.user, False, 0, "e", (), (), 1, b"", b"", b"") for key in keys]


KEYS = [b"d/%d" % each for each in range(40)]


def test_puts_of_new_keys_run_once() -> None:
    site = Site()
    site.batch(*site.puts(b"d/first"))
    site.batch(*site.puts(*KEYS))
    assert site.ran["PutObject"] == len(KEYS)


def test_puts_over_old_keys_and_deletes_run_once() -> None:
    site = Site()
    site.batch(*site.puts(*KEYS))
    site.begin()
    site.batch(*site.puts(b"d/first"))
    site.batch(*site.puts(*KEYS))
    assert site.ran["PutObject"] == len(KEYS)
    site.begin()
    site.batch(*site.puts(b"d/first"))
    site.batch(*(DeleteObject("b", key, site.user, False) for key in KEYS))
    assert site.ran["DeleteObject"] == len(KEYS)


def test_what_stumbles_while_foreseeing_fails_alone() -> None:
    site = Site()
    bad, good = site.batch(*site.puts("text", b"d/good"))  # type: ignore[arg-type]
    assert isinstance(bad.error, Refused)
    assert good.error is None


def test_a_foreseen_batch_makes_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = []
    for foresees in (True, False):
        if not foresees:
            monkeypatch.setattr(PutObject, "PREFETCH", None)
            monkeypatch.setattr(DeleteObject, "PREFETCH", None)
        site = Site()
        for keys in (KEYS, KEYS[::2]):
            site.begin()
            site.batch(*site.puts(b"d/first"))  # so that the others' directory is in memory, if they look
            site.batch(*site.puts(*keys), DeleteObject("b", b"none", site.user, False))
        hashes.append(site.store.head().hash)
    # The commands of a batch are in no order among themselves; these all miss the same.
    assert hashes[0] == hashes[1]


NAMES = st.sampled_from([b"a", b"b/", b"b/a", b"b/c/d", b"b/c/e", b"c/d/e/f", b"c/g"])


@given(
    st.lists(NAMES, max_size=7), st.lists(NAMES, min_size=1, max_size=12), st.sampled_from(Versioning), st.booleans()
)
def test_many_keys_in_one_command_go_as_one_by_one(
    stand: list[bytes], gone: list[bytes], versioning: Versioning, cold: bool
) -> None:
    left = []
    for together in (True, False):
        world = World(mirror=False)
        world.bucket(versioning=versioning)
        for n, key in enumerate(stand):
            world.run(put_command(key, n=n + 1))
        if cold:
            world.cold()
        if together:
            world.run(DeleteObjects("b", USER, False, tuple(Doomed(key) for key in gone)))
        else:
            for key in gone:
                world.run(DeleteObject("b", key, USER, False))
        left.append(shape(world))
    assert left[0] == left[1]


def test_a_directory_that_went_with_one_key_is_made_again_by_the_next() -> None:
    world = World(mirror=False)
    world.bucket(versioning=Versioning.ENABLED)
    version, _ = world.put(b"b/a")
    gone, marked = world.run(DeleteObjects("b", USER, False, (Doomed(b"b/a", version), Doomed(b"b/a"))))
    assert gone == ("", version, False)
    assert marked[2] is True
    (entry,) = (row for row in rows(world, ENTRY) if row.name == b"a")
    assert entry.parent in {row.id for row in rows(world, DIR)}


def shape(world: World) -> Any:
    """The tree, but for times."""
    dirs = {row.id: (row.parent, row.name, row.live, row.entries, row.subdirs) for row in rows(world, DIR)}
    entries = {(row.parent, row.name, row.dead, row.node, row.version, row.older) for row in rows(world, ENTRY)}
    versions = {(row.parent, row.name, row.version, row.node, row.newer, row.older) for row in rows(world, VERSION)}
    return dirs, entries, versions


def rows(world: World, table: Any) -> Any:
    return world.rows.tables[table.name].values()
