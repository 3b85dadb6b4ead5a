"""How deep directories may stand, by whichever way they come there."""

from __future__ import annotations

import pytest

from gateway.errors import TooDeep
from gateway.journal.records.tree import DirHeightRaised, EntryMoved
from gateway.journal.tables import FileKind
from gateway.namespace.commands.names import Link, Mkdir, Mknod, Rmdir, Unlink
from gateway.namespace.commands.objects import DeleteObject
from gateway.namespace.commands.rename import How, Rename
from gateway.namespace.depth import DEPTH_MAX, LOW
from tests.namespace.world import USER, World

pytestmark = pytest.mark.slow


class Tree:
    """Directories by their paths, over a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def root(self) -> int:
        return self.world.rows.tables["bucket"][("b",)].root

    def node(self, path: bytes) -> int:
        node = self.root
        for name in path.split(b"/")[:-1]:
            node = self.world.rows.tables["entry"][(node, name + b"/")].node
        return node

    def move(self, path: bytes, to_path: bytes, flags: int = 0) -> None:
        """Move the directory *path*, which ends in a slash, as *to_path*."""
        (parent, name), (to_parent, to_name) = self.cut(path), self.cut(to_path)
        self.world.run(Rename("b", USER, False, self.node(parent), name, self.node(to_parent), to_name, flags))

    @staticmethod
    def cut(path: bytes) -> tuple[bytes, bytes]:
        at = path[:-1].rfind(b"/") + 1
        return path[:at], path[at:]

    def mkdir(self, parent: int, name: bytes = b"d/") -> int:
        return self.world.run(Mkdir("b", USER, False, parent, name, 0o755, 0, 0))

    def depth(self) -> int:
        """Of the deepest directory."""
        rows = self.world.rows.tables["dir"]
        deepest = 0
        for row in rows.values():
            levels = 0
            while row.parent:
                row, levels = rows[(row.parent,)], levels + 1
            deepest = max(deepest, levels)
        return deepest


@pytest.fixture
def tree(world: World) -> Tree:
    return Tree(world)


def test_the_deepest_key_of_s3_fits(tree: Tree) -> None:
    tree.world.put(b"/" * DEPTH_MAX)
    assert tree.depth() == DEPTH_MAX


def test_a_directory_is_made_only_so_far_down(tree: Tree) -> None:
    tree.world.put(b"/" * (DEPTH_MAX - 1) + b"k")
    last = tree.mkdir(tree.node(b"/" * (DEPTH_MAX - 1)))
    with pytest.raises(TooDeep, match="1025 levels below its bucket, of at most 1024"):
        tree.mkdir(last)
    tree.world.run(Mknod("b", USER, False, last, b"file", int(FileKind.FILE), 0o644, 0, 0))
    assert tree.depth() == DEPTH_MAX


def test_a_directory_moves_only_where_all_below_it_fits(tree: Tree) -> None:
    for name in (b"l/", b"r/"):
        tree.world.put(name + b"a/" * 510 + b"k")
    tree.move(b"l/", b"r/" + b"a/" * 510 + b"l/")
    assert tree.depth() == 2 * 511
    tree.world.put(b"s/" + b"a/" * 3 + b"k")
    with pytest.raises(TooDeep):
        tree.move(b"r/", b"s/a/a/r/")
    assert tree.depth() == 2 * 511


def test_no_series_of_renames_makes_a_tree_deeper_than_that(tree: Tree) -> None:
    """Each puts what there is below the bottom of another path of 300 directories."""
    refused = 0
    tree.world.put(b"x/" + b"a/" * 299 + b"k")
    for _ in range(6):
        tree.world.put(b"y/" + b"a/" * 299 + b"k")
        try:
            tree.move(b"x/", b"y/" + b"a/" * 299 + b"x/")
        except TooDeep:
            refused += 1
            continue
        tree.move(b"y/", b"x/")
    assert refused == 4
    assert tree.depth() == 900


def test_low_directories_stacked_one_by_one_are_counted(tree: Tree) -> None:
    """Each of them is too low for its height to be kept."""
    low = b"a/" * (LOW - 2)
    tree.world.put(b"x/" + low + b"k")
    with pytest.raises(TooDeep):
        for _ in range(DEPTH_MAX):
            tree.world.put(b"y/" + low + b"k")
            tree.move(b"x/", b"y/" + low + b"x/")
            tree.move(b"y/", b"x/")
    assert DEPTH_MAX - 2 * LOW < tree.depth() <= DEPTH_MAX


def test_directories_that_change_places_fit_both(tree: Tree) -> None:
    tree.world.put(b"t/" + b"a/" * 500 + b"k")
    tree.world.put(b"s/" + b"b/" * 510 + b"k")
    tree.move(b"s/", b"t/" + b"a/" * 500 + b"s/")
    tree.world.put(b"u/" + b"c/" * 200 + b"k")
    with pytest.raises(TooDeep):
        tree.move(b"t/", b"u/" + b"c/" * 200, int(How.EXCHANGE))
    with pytest.raises(TooDeep):
        tree.move(b"u/" + b"c/" * 200, b"t/", int(How.EXCHANGE))
    assert tree.depth() == 1 + 500 + 1 + 510
    tree.move(b"t/", b"u/c/", int(How.EXCHANGE))
    assert tree.depth() == 2 + 500 + 1 + 510


def test_an_emptied_directory_is_low_again(tree: Tree) -> None:
    key = b"t/" + b"a/" * 500 + b"k"
    tree.world.put(b"t/stays")
    tree.world.put(key)
    assert tree.world.rows.tables["dir"][(tree.node(b"t/"),)].height == 500
    tree.world.run(DeleteObject("b", key, USER, False))
    assert tree.world.rows.tables["dir"][(tree.node(b"t/"),)].height == 0
    tree.world.put(b"s/" + b"a/" * 510 + b"k")
    tree.move(b"t/", b"s/" + b"a/" * 510 + b"t/")
    assert tree.depth() == 512


def test_low_trees_cost_no_record(tree: Tree) -> None:
    tree.world.put(b"a/" * (LOW - 1) + b"k")
    tree.move(b"a/", b"b/")
    assert not [record for record in tree.world.records if isinstance(record, DirHeightRaised)]


def deeper_than_allowed() -> tuple[Tree, bytes]:
    """A tree that was moved together before there was a limit, and its path. Its heights are not kept as they are."""
    world = World()
    world.bucket()
    tree = Tree(world)
    path = b""
    for n in range(4):
        name = b"%d/" % n
        world.put(name + b"a/" * 400 + b"k")
        below = path
        path = name + b"a/" * 400
        if below:
            move = EntryMoved(tree.root, b"%d/" % (n - 1), tree.node(path), b"%d/" % (n - 1), world.at_ns)
            world.apply(move)
            path += below
    return tree, path


def test_a_tree_that_is_deeper_can_be_removed() -> None:
    tree, path = deeper_than_allowed()
    world = tree.world
    assert tree.depth() > DEPTH_MAX
    file_node = tree.node(path)
    world.run(Unlink("b", USER, False, file_node, b"k"))
    parent = tree.node(tree.cut(path)[0])
    world.run(Rmdir("b", USER, False, parent, b"a/"))
    for n in range(3):
        key = b"".join(b"%d/" % each + b"a/" * 400 for each in range(3, n, -1)) + b"k"
        world.run(DeleteObject("b", key, USER, False))
    while True:
        rows = world.rows.tables["dir"].values()
        leaf = next((row for row in rows if row.parent and not row.subdirs), None)
        if leaf is None:
            break
        world.run(Rmdir("b", USER, False, leaf.parent, leaf.name))
    assert tree.depth() == 0


def test_a_tree_that_is_deeper_can_be_moved_where_it_is_no_deeper() -> None:
    tree, _ = deeper_than_allowed()
    before = tree.depth()
    tree.move(b"3/", b"renamed/")
    half = b"renamed/" + b"a/" * 400 + b"2/"
    assert tree.depth() == before
    tree.move(half, b"half/")
    assert tree.depth() < before
    tree.world.put(b"d/" * 500 + b"k")
    tree.move(b"renamed/", b"d/" * 500 + b"renamed/")
    tree.world.put(b"e/" * 200 + b"k")
    with pytest.raises(TooDeep):
        tree.move(b"d/", b"e/" * 200 + b"d/")


def test_a_rename_between_two_names_of_one_file_changes_nothing(tree: Tree) -> None:
    tree.world.put(b"implied/x")
    parent = tree.node(b"implied/")
    tree.world.run(Link("b", USER, False, parent, b"x", tree.root, b"y"))
    before = len(tree.world.records)
    tree.world.run(Rename("b", USER, False, parent, b"x", tree.root, b"y"))
    assert tree.world.records[before:] == []
