"""Random histories of S3's and POSIX's verbs over one tree, beside a plain dictionary of keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.errors import InvalidKey, NotEmpty, Refused
from gateway.journal.tables import FileKind, Versioning
from gateway.namespace import depth, paths
from gateway.namespace.commands.buckets import DropBucket, SetVersioning
from gateway.namespace.commands.copy import CopyObject, MoveObject, Source
from gateway.namespace.commands.names import Link, Mkdir, Mknod, Rmdir, Unlink
from gateway.namespace.commands.objects import DeleteObject, DeleteObjects, Doomed
from gateway.namespace.commands.rename import How, Rename
from gateway.namespace.keys import KEY_BYTES
from gateway.namespace.read import listing, listing_turns, listing_versions, lookups, tree_walk
from gateway.namespace.version_ids import encode_version_id
from tests.namespace.counting import check
from tests.namespace.model import OFF, Model
from tests.namespace.world import USER, World

PIECES = [b"a", b"b", b"/", b"//", b".", b"..", b"a/", b"b/", b"\xff", b"\xc3\xa9", b"0", b"\x00", b"-"]
keys = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map(b"".join),
    st.text(min_size=1, max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from([b"x" * 1024, b"y/" * 30, b"a/" + b"z" * 1022]),
)
names = st.sampled_from([b"a", b"b", b"c", b"\xff\xfe", b".x"])
prefixes = st.one_of(st.just(b""), st.lists(st.sampled_from(PIECES), max_size=3).map(b"".join))
delimiters = st.sampled_from([b"", b"/", b"/", b"//", b"a", b"a/", b"/b", b"\xff", b"-"])


class Tree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.bucket()
        self.model = Model()

    # --- S3 ---

    @initialize(some=st.lists(keys, min_size=3, max_size=25, unique=True))
    def begin(self, some: list[bytes]) -> None:
        for key in some:
            self.put(key)

    @rule(some=st.lists(keys, min_size=2, max_size=6))
    def put_some(self, some: list[bytes]) -> None:
        for key in some:
            self.put(key)

    def put(self, key: bytes) -> None:
        if len(key) > KEY_BYTES:  # a rename made it: S3 cannot write it, but list, read and delete it
            with pytest.raises(InvalidKey):
                self.world.put(key)
            return
        version, _ = self.world.put(key)
        self.model.put(key, self.node(key), version)

    @precondition(lambda self: self.model.keys)
    @rule(data=st.data())
    def overwrite(self, data: Any) -> None:
        self.put(data.draw(self.known()))

    @rule(data=st.data(), key=keys)
    def delete(self, data: Any, key: bytes) -> None:
        key = data.draw(st.one_of(st.just(key), self.known()))
        version, marker = self.world.run(DeleteObject("b", key, USER, False))
        assert marker == (self.model.versioning != OFF)
        self.model.delete(key, version)

    @precondition(lambda self: self.model.keys)
    @rule(data=st.data())
    def delete_a_version(self, data: Any) -> None:
        key = data.draw(self.known())
        text = data.draw(st.sampled_from([version.text for version in self.model.keys[key]] + ["null", "0" * 16]))
        before = {version.text: version for version in self.model.keys[key]}
        version, marker = self.world.run(DeleteObject("b", key, USER, False, text))
        assert version == text
        assert marker == (text in before and before[text].content is None)
        self.model.delete_version(key, text)

    @precondition(lambda self: self.model.keys)
    @rule(data=st.data(), other=keys)
    def delete_many(self, data: Any, other: bytes) -> None:
        chosen = [*data.draw(st.lists(self.known(), max_size=4)), other]
        outcomes = self.world.run(DeleteObjects("b", USER, False, tuple(Doomed(key) for key in chosen)))
        for key, (error, *values) in zip(chosen, outcomes, strict=True):
            if len(key) > KEY_BYTES and key not in self.model.keys:  # it was chosen twice
                assert error == "InvalidKey"
                continue
            assert error == ""
            self.model.delete(key, values[0])

    @precondition(lambda self: self.model.live())
    @rule(data=st.data(), to=keys)
    def copy(self, data: Any, to: bytes) -> None:
        source = data.draw(st.sampled_from(self.model.live()))
        version = self.world.run(CopyObject("b", to, USER, False, Source("b", source)))[0]
        self.model.put(to, self.node(to), version)

    @precondition(lambda self: self.model.live())
    @rule(data=st.data(), to=keys)
    def move(self, data: Any, to: bytes) -> None:
        source = data.draw(st.sampled_from(self.model.live()))
        if source == to or len(to) > KEY_BYTES:
            return
        version = self.world.run(MoveObject("b", to, USER, False, "b", source))[0]
        self.model.put(to, self.node(to), version)
        self.model.delete(source, self.text(source) if self.model.versioning != OFF else None)

    @rule(versioning=st.sampled_from([Versioning.ENABLED, Versioning.SUSPENDED]))
    def version(self, versioning: int) -> None:
        self.world.run(SetVersioning("b", USER, False, int(versioning)))
        self.model.versioning = int(versioning)

    # --- POSIX ---

    @rule(data=st.data(), name=names)
    def mkdir(self, data: Any, name: bytes) -> None:
        path = data.draw(self.directories())
        self.posix(Mkdir("b", USER, False, self.dir(path), name + b"/", 0o750, 1, 2), path, adds=[path + name + b"/"])

    @rule(data=st.data(), name=names)
    def create(self, data: Any, name: bytes) -> None:
        path = data.draw(self.directories())
        self.posix(
            Mknod("b", USER, False, self.dir(path), name, int(FileKind.FILE), 0o640, 1, 2), path, adds=[path + name]
        )

    @precondition(lambda self: self.files())
    @rule(data=st.data(), name=names)
    def link(self, data: Any, name: bytes) -> None:
        source = data.draw(st.sampled_from(self.files()))
        path = data.draw(self.directories())
        parent, leaf = self.cut(source)
        self.posix(Link("b", USER, False, self.dir(parent), leaf, self.dir(path), name), path, adds=[path + name])
        assert path + name not in self.model.live() or self.node(path + name) == self.model.keys[path + name][0].content

    @precondition(lambda self: self.files())
    @rule(data=st.data())
    def unlink(self, data: Any) -> None:
        parent, leaf = self.cut(data.draw(st.sampled_from(self.files())))
        self.posix(Unlink("b", USER, False, self.dir(parent), leaf), parent, removes=[parent + leaf])

    @rule(data=st.data())
    def rmdir(self, data: Any) -> None:
        path = data.draw(self.directories())
        if not path:
            return
        parent, leaf = self.cut(path[:-1])
        empty = not [key for key in self.model.live() if key.startswith(path) and key != path]
        command = Rmdir("b", USER, False, self.dir(parent), leaf + b"/")
        done = self.posix(command, parent, removes=[path] if path in self.model.live() else [])
        assert done == empty

    @rule(data=st.data(), name=names, how=st.sampled_from([How(0), How.NOREPLACE]))
    def rename_file(self, data: Any, name: bytes, how: How) -> None:
        if not self.files():
            return
        source = data.draw(st.sampled_from(self.files()))
        path = data.draw(self.directories())
        parent, leaf = self.cut(source)
        same = self.model.keys[source][0].content
        target = self.model.keys.get(path + name)
        command = Rename("b", USER, False, self.dir(parent), leaf, self.dir(path), name, int(how))
        if not self.try_(command):
            return
        event("a file was renamed")
        if source == path + name or (target and target[0].content == same):
            return
        self.made(parent)
        self.made(path)
        self.model.put(path + name, same, self.text(path + name))
        self.model.delete(source, self.text(source))

    @rule(data=st.data(), name=names)
    def rename_directory(self, data: Any, name: bytes) -> None:
        source = data.draw(self.directories())
        path = data.draw(self.directories())
        if not source:
            return
        parent, leaf = self.cut(source[:-1])
        command = Rename("b", USER, False, self.dir(parent), leaf + b"/", self.dir(path), name + b"/")
        to = path + name + b"/"
        in_the_way = [key for key in self.model.live() if key.startswith(to) and key != to]
        if not self.try_(command):
            return
        assert source == to or not in_the_way
        event("a directory was renamed")
        if source == to:
            return
        self.made(parent)
        self.made(path)
        if self.model.versioning == OFF:
            self.model.keys.pop(to, None)
        moved = {key: versions for key, versions in self.model.keys.items() if key.startswith(source)}
        self.model.keys = {key: versions for key, versions in self.model.keys.items() if key not in moved}
        self.model.keys |= {to + key[len(source) :]: versions for key, versions in moved.items()}

    # --- what they share ---

    def known(self) -> Any:
        return st.sampled_from(sorted(self.model.keys)) if self.model.keys else st.just(b"nothing")

    def files(self) -> list[bytes]:
        return [key for key in self.model.live() if not key.endswith(b"/")]

    def directories(self) -> Any:
        found = {b""}
        for key in self.model.live():
            found.update(key[: at + 1] for at in range(len(key)) if key[at : at + 1] == b"/" and at < 8)
        return st.sampled_from(sorted(found))

    @staticmethod
    def cut(key: bytes) -> tuple[bytes, bytes]:
        at = key.rfind(b"/") + 1
        return key[:at], key[at:]

    def dir(self, path: bytes) -> int:
        node = self.world.rows.tables["bucket"][("b",)].root
        for name in path.split(b"/")[:-1]:
            node = self.world.rows.tables["entry"][(node, name + b"/")].node
        return node

    def entry(self, key: bytes) -> Any:
        parent, leaf = self.cut(key)
        return self.world.rows.tables["entry"][(self.dir(parent), leaf)]

    def node(self, key: bytes) -> int:
        return self.entry(key).node

    def text(self, key: bytes) -> str | None:
        parent, leaf = self.cut(key)
        entry = self.world.rows.tables["entry"].get((self.dir(parent), leaf))
        return None if entry is None else encode_version_id(entry.version)

    def try_(self, command: Any) -> bool:
        try:
            self.world.run(command)
        except Refused as refused:
            event(f"{type(command).__name__}: {type(refused).__name__}")
            return False
        return True

    def made(self, path: bytes) -> None:
        """POSIX changed something in this directory."""
        if path and path not in self.model.live():
            self.model.put(path, self.node(path), self.text(path))

    def posix(self, command: Any, path: bytes, adds: Any = (), removes: Any = ()) -> bool:
        if not self.try_(command):
            return False
        self.made(path)
        for key in adds:
            self.model.put(key, self.node(key), self.text(key))
        for key in removes:
            self.model.delete(key, self.text(key) if self.model.versioning != OFF else None)
        return True

    # --- what holds ---

    @invariant()
    def counts_are_exact(self) -> None:
        check(self.world)

    @rule(
        prefix=prefixes,
        delimiter=delimiters,
        after=st.one_of(st.just(b""), keys),
        limit=st.sampled_from([1, 2, 3, 7, 1000]),
    )
    def listed(self, prefix: bytes, delimiter: bytes, after: bytes, limit: int) -> None:
        assert asyncio.run(self.pages(prefix, delimiter, after, limit)) == self.model.list(prefix, delimiter, after)

    async def pages(self, prefix: bytes, delimiter: bytes, after: bytes, limit: int) -> list[tuple[bytes, bool]]:
        bucket = lookups.bucket(self.world.mirror, "b")
        told: list[tuple[bytes, bool]] = []
        while True:
            page = await listing.list_objects(self.world.mirror, bucket, prefix, delimiter, after, limit)
            items = sorted([(key.key, False) for key in page.keys] + [(each, True) for each in page.prefixes])
            assert len(items) <= limit
            told += items
            if page.next is None:
                return told
            assert page.next == items[-1][0] and len(items) == limit
            after = page.next

    @rule(prefix=prefixes, delimiter=delimiters, limit=st.sampled_from([1, 2, 5, 1000]))
    def listed_with_versions(self, prefix: bytes, delimiter: bytes, limit: int) -> None:
        told = asyncio.run(self.version_pages(prefix, delimiter, limit))
        assert told == self.model.list_versions(prefix, delimiter, b"")

    async def version_pages(self, prefix: bytes, delimiter: bytes, limit: int) -> list[tuple[bytes, str | None]]:
        bucket = lookups.bucket(self.world.mirror, "b")
        told: list[tuple[bytes, str | None]] = []
        key, version = b"", ""
        while True:
            page = await listing_versions.list_versions(
                self.world.mirror, bucket, prefix, delimiter, key, version, limit
            )
            items: list[Any] = [(each.key, n, each.version) for n, each in enumerate(page.versions)]
            items = sorted(items + [(each, 0, None) for each in page.prefixes], key=lambda item: item[:2])
            told += [(item[0], item[2]) for item in items]
            if page.next_key is None:
                return told
            assert len(items) == limit
            key, version = page.next_key, page.next_version or ""

    @precondition(lambda self: self.model.keys)
    @rule(data=st.data())
    def found(self, data: Any) -> None:
        key = data.draw(self.known())
        for n, version in enumerate(self.model.keys[key]):
            found = lookups.find(self.world.mirror, "b", key, version.text)
            assert found is not None and found.version_text == version.text and found.latest == (n == 0)
            assert (found.file.id if found.file else None) == version.content
        current = lookups.find(self.world.mirror, "b", key)
        assert (current.file.id if current.file else None) == self.model.keys[key][0].content

    @rule()
    def drop_the_bucket(self) -> None:
        """Only an empty one goes."""
        if self.model.keys:
            with pytest.raises(NotEmpty):
                self.world.run(DropBucket("b", USER, False, "alice"))
        else:
            self.world.run(DropBucket("b", USER, False, "alice"))
            self.__init__()  # type: ignore[misc]


def test_any_history_is_that_of_a_plain_dictionary():
    run_state_machine_as_test(
        Tree,
        settings=settings(
            max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_page_that_takes_many_turns_is_that_of_a_plain_dictionary(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"QUERIES": 1, "HELD_ROWS": 1, "SEEK_LEVELS": 3, "SLICE": 3}.items():
        monkeypatch.setattr(tree_walk, name, value)
    monkeypatch.setattr(listing_turns, "TURNS", 1_000_000)
    for module in (listing, listing_versions):
        monkeypatch.setattr(module, "SLICE", 3)
    for module in (depth, paths):
        monkeypatch.setattr(module, "LOW", 2)  # so that heights of small trees are kept, too
    run_state_machine_as_test(
        Tree,
        settings=settings(
            max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_any_long_history_is_that_of_a_plain_dictionary():
    run_state_machine_as_test(
        Tree,
        settings=settings(
            max_examples=400, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
