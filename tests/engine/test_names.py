"""POSIX's verbs at the front desk, and what S3 sees of them."""

from __future__ import annotations

import os

import pytest

from gateway.errors import (
    Cycle,
    DirectoryNotEmpty,
    IsADirectory,
    NameExists,
    NoSuchKey,
    NoSuchName,
    NotADirectory,
)
from tests.engine.bodies import get, put


async def keys(engine, caller) -> list[bytes]:
    return [each.key for each in (await engine.list(caller, "tree")).keys]


async def test_renaming_a_directory_moves_everything_below_it_in_one_record(site, engine, root):
    for number in range(50):
        await put(engine, root, b"old/deep/%03d" % number, b"x%d" % number)
    before = site.store.head()
    await engine.rename(root, "tree", b"old", b"new")
    assert await get(engine, root, b"new/deep/007") == b"x7"
    with pytest.raises(NoSuchKey):
        await get(engine, root, b"old/deep/007")
    assert len(await keys(engine, root)) == 50
    assert site.store.head() - before <= 4, "a rename writes as many records as things lie below"


async def test_a_directory_does_not_move_below_itself(engine, root):
    await put(engine, root, b"a/b/c", b"1")
    with pytest.raises(Cycle):
        await engine.rename(root, "tree", b"a", b"a/b/d")


async def test_a_hard_link_is_the_same_node_until_s3_puts_over_one_name(engine, root):
    await put(engine, root, b"one", b"first")
    node = await engine.link(root, "tree", b"one", b"two")
    assert (await engine.stat(root, "tree", b"one")).node == node
    assert (await engine.stat(root, "tree", b"two")).links == 2
    await put(engine, root, b"two", b"second")
    assert await get(engine, root, b"one") == b"first"
    assert await get(engine, root, b"two") == b"second"
    assert (await engine.stat(root, "tree", b"one")).links == 1


async def test_bytes_stay_while_one_name_of_two_is_left(engine, root):
    data = os.urandom(3 << 20)
    await put(engine, root, b"one", data)
    await engine.link(root, "tree", b"one", b"two")
    await engine.unlink(root, "tree", b"one")
    assert await get(engine, root, b"two") == data


async def test_a_symbolic_link_keeps_its_text(engine, root):
    await engine.symlink(root, "tree", b"../some/where", b"link")
    assert await engine.readlink(root, "tree", b"link") == b"../some/where"
    assert (await engine.stat(root, "tree", b"link")).size == len(b"../some/where")


async def test_a_clone_shares_bytes_and_lives_on_when_its_source_goes(engine, root):
    data = os.urandom(100_000)
    await put(engine, root, b"source", data)
    await engine.clone(root, "tree", b"source", b"copy")
    await engine.unlink(root, "tree", b"source")
    assert await get(engine, root, b"copy") == data


async def test_mkdir_makes_what_s3_lists_as_a_key_with_a_slash(engine, root):
    await engine.mkdir(root, "tree", b"made", mode=0o750)
    assert await keys(engine, root) == [b"made/"]
    assert (await engine.stat(root, "tree", b"made")).mode & 0o777 == 0o750
    with pytest.raises(NameExists):
        await engine.mkdir(root, "tree", b"made")
    await engine.rmdir(root, "tree", b"made")
    assert await keys(engine, root) == []


async def test_a_directory_with_something_in_it_is_not_removed(engine, root):
    await put(engine, root, b"full/thing", b"1")
    with pytest.raises(DirectoryNotEmpty):
        await engine.rmdir(root, "tree", b"full")
    await engine.unlink(root, "tree", b"full/thing")
    await engine.rmdir(root, "tree", b"full")


async def test_errors_say_what_stands_there(engine, root):
    await put(engine, root, b"file", b"1")
    await put(engine, root, b"dir/file", b"1")
    with pytest.raises(NotADirectory):
        await engine.stat(root, "tree", b"file/below")
    with pytest.raises(NoSuchName):
        await engine.stat(root, "tree", b"nothing/below")
    with pytest.raises(IsADirectory):
        await engine.unlink(root, "tree", b"dir")


async def test_attributes_and_xattrs_belong_to_the_node(engine, root):
    await put(engine, root, b"one", b"1")
    await engine.link(root, "tree", b"one", b"two")
    await engine.set_attributes(root, "tree", b"one", mode=0o600, uid=7, mtime_ns=5)
    await engine.set_xattr(root, "tree", b"two", b"user.k", b"v")
    seen = await engine.stat(root, "tree", b"two")
    assert (seen.mode & 0o777, seen.uid, seen.mtime_ns, seen.xattrs) == (0o600, 7, 5, {b"user.k": b"v"})
    await engine.remove_xattr(root, "tree", b"one", b"user.k")
    assert (await engine.stat(root, "tree", b"two")).xattrs == {}


async def test_a_directory_lists_its_names_with_their_nodes(engine, root):
    for key in (b"d/a", b"d/b/c", b"d/z"):
        await put(engine, root, key, key)
    found = await engine.read_directory(root, "tree", b"d")
    assert [(name, info.is_dir, info.size) for name, info in found] == [
        (b"a", False, 3),
        (b"b/", True, 0),
        (b"z", False, 3),
    ]
