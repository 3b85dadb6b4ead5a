"""POSIX's verbs over the tree, and where they meet S3's."""

from __future__ import annotations

import pytest

from gateway.errors import (
    Cycle,
    DirectoryNotEmpty,
    InvalidArgument,
    IsADirectory,
    NameExists,
    NoSuchName,
    NotADirectory,
)
from gateway.journal.columns import unpack_map
from gateway.journal.tables import FileKind
from gateway.namespace.commands.buckets import SetVersioning
from gateway.namespace.commands.names import Link, Mkdir, Mknod, Rmdir, Symlink, Unlink
from gateway.namespace.commands.nodes import NEW, OLD, Clone, RemoveXattr, SetAttributes, SetContent, SetXattr
from gateway.namespace.commands.objects import DeleteObject
from gateway.namespace.commands.rename import How, Rename
from gateway.namespace.read import directory, lookups
from tests.namespace.world import USER, World, stored

ASK = ("b", USER, False)


def root(world: World) -> int:
    return world.rows.tables["bucket"][("b",)].root


def node(world: World, *names: bytes) -> int:
    at = root(world)
    for name in names:
        at = world.rows.tables["entry"][(at, name)].node
    return at


def file(world: World, *names: bytes):
    return world.rows.tables["file"][(node(world, *names),)]


def mkdir(world: World, parent: int, name: bytes) -> int:
    return world.run(Mkdir(*ASK, parent, name, 0o755, 0, 0))


def mknod(world: World, parent: int, name: bytes) -> int:
    return world.run(Mknod(*ASK, parent, name, int(FileKind.FILE), 0o644, 0, 0))


def write(world: World, at: int, size: int, layout=()):
    extents, blocks = stored(world.next_id, size)
    was = world.rows.tables["file"][(at,)].etag
    return world.run(SetContent(*ASK, at, was, layout, extents, blocks, 1, b""))


def held(world: World, node: int) -> list[bytes]:
    return [each.name for each in directory.read_directory(world.mirror, node)]


def test_a_made_directory_is_an_object_and_stays_when_it_empties(world):
    made = mkdir(world, root(world), b"d/")
    assert lookups.find(world.mirror, "b", b"d/").file.size == 0
    world.put(b"d/x")
    world.run(DeleteObject("b", b"d/x", USER, False))
    assert held(world, made) == [] and held(world, root(world)) == [b"d/"]
    world.run(Rmdir(*ASK, root(world), b"d/"))
    assert held(world, root(world)) == []


def test_what_posix_changes_in_an_implied_directory_makes_it(world):
    world.put(b"d/e/x")
    world.run(Unlink(*ASK, node(world, b"d/", b"e/"), b"x"))
    assert held(world, node(world, b"d/")) == [b"e/"]
    world.run(Rmdir(*ASK, node(world, b"d/"), b"e/"))
    world.run(Rmdir(*ASK, root(world), b"d/"))
    assert len(world.rows.tables["entry"]) == 0


def test_a_name_is_a_file_or_a_directory_not_both(world):
    mkdir(world, root(world), b"a/")
    mknod(world, root(world), b"b")
    for command in (
        Mknod(*ASK, root(world), b"a", 0, 0, 0, 0),
        Mkdir(*ASK, root(world), b"b/", 0, 0, 0),
        Symlink(*ASK, root(world), b"a", b"t", 0, 0),
    ):
        with pytest.raises(NameExists):
            world.run(command)
    with pytest.raises(IsADirectory):
        world.run(Unlink(*ASK, root(world), b"a"))
    with pytest.raises(NotADirectory):
        world.run(Rmdir(*ASK, root(world), b"b/"))
    with pytest.raises(NoSuchName):
        world.run(Rmdir(*ASK, root(world), b"c/"))


def test_an_object_beside_a_directory_of_its_name_can_be_unlinked(world):
    world.put(b"a")
    world.put(b"a/b")
    assert held(world, root(world)) == [b"a", b"a/"]
    world.run(Unlink(*ASK, root(world), b"a"))
    assert held(world, root(world)) == [b"a/"]


def test_a_directory_that_is_not_empty_stays(world):
    made = mkdir(world, root(world), b"d/")
    mknod(world, made, b"x")
    with pytest.raises(DirectoryNotEmpty):
        world.run(Rmdir(*ASK, root(world), b"d/"))
    mkdir(world, root(world), b"e/")
    with pytest.raises(DirectoryNotEmpty):
        world.run(Rename(*ASK, root(world), b"e/", root(world), b"d/"))
    world.run(Rename(*ASK, root(world), b"d/", root(world), b"e/"))
    assert held(world, root(world)) == [b"e/"] and held(world, made) == [b"x"]


def test_renaming_a_directory_touches_the_same_rows_however_much_lies_below(world):
    touched = []
    for count in (3, 300):
        for n in range(count):
            world.put(b"d%d/x/%d" % (count, n))
        world.run(Rename(*ASK, root(world), b"d%d/" % count, root(world), b"to%d/" % count))
        touched.append(world.touched)
        assert lookups.find(world.mirror, "b", b"to%d/x/2" % count) is not None
        assert lookups.find(world.mirror, "b", b"d%d/x/2" % count) is None
    assert touched[0] == touched[1] and sum(touched[0].values()) <= 5


def test_no_directory_moves_below_itself(world):
    a = mkdir(world, root(world), b"a/")
    b = mkdir(world, a, b"b/")
    for into in (a, b):
        with pytest.raises(Cycle):
            world.run(Rename(*ASK, root(world), b"a/", into, b"c/"))
    with pytest.raises(Cycle):
        world.run(Rename(*ASK, root(world), b"a/", a, b"b/", int(How.EXCHANGE)))


def test_names_are_exchanged_also_a_file_and_a_directory(world):
    d = mkdir(world, root(world), b"d/")
    f = mknod(world, root(world), b"f")
    world.run(Rename(*ASK, root(world), b"d/", root(world), b"f", int(How.EXCHANGE)))
    assert node(world, b"f/") == d and node(world, b"d") == f
    g = mknod(world, d, b"g")
    world.run(Rename(*ASK, root(world), b"d", d, b"g", int(How.EXCHANGE)))
    assert node(world, b"d") == g and node(world, b"f/", b"g") == f
    with pytest.raises(NameExists):
        world.run(Rename(*ASK, root(world), b"d", d, b"g", int(How.NOREPLACE)))


def test_a_file_replaces_a_file_and_a_linked_one_stays(world):
    a, b = mknod(world, root(world), b"a"), mknod(world, root(world), b"b")
    world.run(Rename(*ASK, root(world), b"a", root(world), b"b"))
    assert node(world, b"b") == a and (b,) not in world.rows.tables["file"]
    world.run(Link(*ASK, root(world), b"b", root(world), b"c"))
    world.run(Rename(*ASK, root(world), b"b", root(world), b"c"))
    assert held(world, root(world)) == [b"b", b"c"], "two names of one node: nothing happens"
    mkdir(world, root(world), b"d/")
    with pytest.raises(IsADirectory):
        world.run(Rename(*ASK, root(world), b"b", root(world), b"d"))
    with pytest.raises(NotADirectory):
        world.run(Rename(*ASK, root(world), b"d/", root(world), b"b/"))


def test_where_versions_are_kept_a_rename_leaves_a_marker(world):
    world.run(SetVersioning("b", USER, False, 1))
    old = mknod(world, root(world), b"a")
    world.run(Rename(*ASK, root(world), b"a", root(world), b"b"))
    assert node(world, b"b") == old and node(world, b"a") == 0
    assert held(world, root(world)) == [b"b"]
    d = mkdir(world, root(world), b"d/")
    world.run(Rmdir(*ASK, root(world), b"d/"))
    assert held(world, root(world)) == [b"b"]
    with pytest.raises(NoSuchName):
        mknod(world, d, b"x")
    assert mkdir(world, root(world), b"d/") == d, "the directory comes back with its history"


def test_links_share_a_node_until_s3_puts_one_of_them(world):
    made = mknod(world, root(world), b"a")
    world.run(Link(*ASK, root(world), b"a", root(world), b"b"))
    assert file(world, b"b").links == 2
    before = file(world, b"a").etag
    write(world, made, 10)
    assert file(world, b"b").size == 10 and file(world, b"b").etag != before and "-" in file(world, b"b").etag
    world.put(b"b", 3)
    assert (file(world, b"a").size, file(world, b"a").links, file(world, b"b").size) == (10, 1, 3)


def test_a_write_in_the_middle_keeps_the_rest_without_reading_it(world):
    made = mknod(world, root(world), b"a")
    write(world, made, 100)
    write(world, made, 10, ((OLD, 0, 20), (NEW, 0, 10), (OLD, 30, 70)))
    found = lookups.find(world.mirror, "b", b"a")
    lengths = [part.length for part in world.ranges(found, 0, 100)]
    assert found.file.size == 100 and lengths == [20, 10, 70]
    write(world, made, 0, ((OLD, 0, 25),))
    assert file(world, b"a").size == 25
    write(world, made, 0)
    assert file(world, b"a").shape == 0
    with pytest.raises(InvalidArgument):
        write(world, made, 0, ((OLD, 0, 1),))
    with pytest.raises(InvalidArgument):
        world.run(SetContent(*ASK, made, "an older etag", (), (), (), 1, b""))


def test_what_posix_writes_is_modified_by_the_committers_clock(world):
    made = mknod(world, root(world), b"a")
    world.run(SetAttributes(*ASK, made, False, mtime_ns=1, mode=0o600))
    before = lookups.find(world.mirror, "b", b"a").modified_ns
    assert before > 1 and file(world, b"a").mtime_ns == 1
    write(world, made, 5)
    assert lookups.find(world.mirror, "b", b"a").modified_ns == world.at_ns > before


def test_a_clone_shares_bytes_and_is_written_alone(world):
    made = mknod(world, root(world), b"a")
    write(world, made, 100)
    other, etag = world.run(Clone(*ASK, root(world), b"a", root(world), b"b", 0o644, 0, 0))
    assert file(world, b"b").content == file(world, b"a").content and etag != file(world, b"a").etag
    write(world, other, 7)
    assert (file(world, b"a").size, file(world, b"b").size) == (100, 7)
    assert world.run(Clone(*ASK, root(world), b"a", root(world), b"b", 0, 0, 0))[0] == other


def test_extended_attributes_come_and_go(world):
    made = mkdir(world, root(world), b"d/")
    world.run(SetXattr(*ASK, made, True, b"user.a", b"1", "create"))
    with pytest.raises(NameExists):
        world.run(SetXattr(*ASK, made, True, b"user.a", b"1", "create"))
    with pytest.raises(NoSuchName):
        world.run(SetXattr(*ASK, made, True, b"user.b", b"1", "replace"))
    assert unpack_map(world.rows.tables["dir"][(made,)].xattrs) == {b"user.a": b"1"}
    world.run(RemoveXattr(*ASK, made, True, b"user.a"))
    assert world.rows.tables["dir"][(made,)].xattrs == b""
    with pytest.raises(NoSuchName):
        world.run(RemoveXattr(*ASK, made, True, b"user.a"))


def test_a_directory_of_another_bucket_is_not_entered(world):
    world.bucket("other")
    elsewhere = world.rows.tables["bucket"][("other",)].root
    with pytest.raises(NoSuchName):
        mknod(world, elsewhere, b"x")


def test_a_symbolic_link_keeps_its_text(world):
    world.run(Symlink(*ASK, root(world), b"s", b"../somewhere", 0, 0))
    assert file(world, b"s").target == b"../somewhere" and file(world, b"s").kind == FileKind.SYMLINK
    with pytest.raises(InvalidArgument):
        world.run(Symlink(*ASK, root(world), b"t", b"", 0, 0))
