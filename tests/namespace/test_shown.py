"""What a listing shows of a key is what its node has now, by whichever name, and however it was written."""

from __future__ import annotations

import asyncio

import pytest

from gateway.journal.columns import Checksum, checksum_kind, kind_names, pack_list
from gateway.journal.tables import Versioning
from gateway.namespace.commands.buckets import SetVersioning
from gateway.namespace.commands.names import Link, Mknod
from gateway.namespace.commands.nodes import Clone, SetContent
from gateway.namespace.commands.objects import DeleteObject
from gateway.namespace.read import listing, listing_versions, lookups
from gateway.namespace.read.pages import Listed
from tests.namespace.world import USER, World, stored

ASK = ("b", USER, False)
SHA1 = pack_list([Checksum("SHA1", "COMPOSITE", "AAAA-2")])


@pytest.fixture
def world() -> World:
    made = World()
    made.bucket()
    return made


def listed(world: World) -> dict[bytes, Listed]:
    bucket = lookups.bucket(world.mirror, "b")
    assert bucket is not None
    page = asyncio.run(listing.list_objects(world.mirror, bucket))
    return {each.key: each for each in page.keys}


def facts(world: World, key: bytes) -> Listed:
    """What a GET of the key would tell."""
    found = lookups.find(world.mirror, "b", key)
    assert found is not None and found.file is not None
    algorithm, of = kind_names(checksum_kind(found.file.checksums))
    return Listed(key, found.file.size, found.file.etag, found.modified_ns, found.file.owner, algorithm, of)


def root(world: World) -> int:
    return world.rows.tables["bucket"][("b",)].root


def write(world: World, node: int, size: int, checksums: bytes = SHA1) -> None:
    extents, blocks = stored(world.next_id, size)
    was = world.rows.tables["file"][(node,)].etag
    world.run(SetContent(*ASK, node, was, (), extents, blocks, 1, checksums))


def assert_all_is_shown_as_it_is(world: World, *keys: bytes) -> None:
    assert listed(world) == {key: facts(world, key) for key in keys}


def test_a_file_that_is_written_in_place_is_listed_as_it_is_by_all_of_its_names(world: World) -> None:
    world.put(b"other", 3)
    node = world.run(Mknod(*ASK, root(world), b"a", 0, 0o644, 0, 0))
    world.run(Link(*ASK, root(world), b"a", root(world), b"b"))
    assert_all_is_shown_as_it_is(world, b"a", b"b", b"other")
    write(world, node, 10)
    assert_all_is_shown_as_it_is(world, b"a", b"b", b"other")
    assert listed(world)[b"b"].size == 10 and listed(world)[b"a"].checksum_algorithm == "SHA1"
    write(world, node, 11, b"")
    world.run(Link(*ASK, root(world), b"a", root(world), b"c"))
    assert_all_is_shown_as_it_is(world, b"a", b"b", b"c", b"other")


def test_a_file_that_is_cloned_over_is_listed_as_it_is(world: World) -> None:
    world.put(b"a", 10)
    world.put(b"b", 3)
    world.put(b"d/e", 4)
    world.run(Clone(*ASK, root(world), b"a", root(world), b"b", 0o644, 0, 0))
    assert listed(world)[b"b"].size == 10
    assert_all_is_shown_as_it_is(world, b"a", b"b", b"d/e")
    world.put(b"b", 5)
    assert_all_is_shown_as_it_is(world, b"a", b"b", b"d/e")


def test_a_version_that_comes_back_is_listed_as_it_was_left(world: World) -> None:
    world.run(SetVersioning("b", USER, False, int(Versioning.ENABLED)))
    world.put(b"a", 10)
    before = listed(world)
    newest = world.put(b"a", 20)[0]
    assert_all_is_shown_as_it_is(world, b"a")
    world.run(DeleteObject("b", b"a", USER, False, newest))
    assert listed(world) == before


def test_a_version_that_was_written_in_place_is_listed_as_it_is_among_the_versions(world: World) -> None:
    world.run(SetVersioning("b", USER, False, int(Versioning.ENABLED)))
    node = world.run(Mknod(*ASK, root(world), b"a", 0, 0o644, 0, 0))
    world.put(b"a", 20)
    write(world, node, 7)
    bucket = lookups.bucket(world.mirror, "b")
    assert bucket is not None
    page = asyncio.run(listing_versions.list_versions(world.mirror, bucket))
    etag = world.rows.tables["file"][(node,)].etag
    assert [(each.size, each.etag == etag, each.modified_ns) for each in page.versions] == [
        (20, False, page.versions[0].modified_ns),
        (7, True, world.at_ns),
    ]


def test_directories_of_any_name_are_rolled_up_by_their_names_alone(world: World) -> None:
    names = [
        b"\0",
        b"",
        b"\n",
        b"\xff\xfe",
        "ö\0ä".encode(),
        b"a" * 900,
        b" ",
        *(b"%d" % number for number in range(30)),
    ]
    for name in names:
        world.put(name + b"/x")
        world.put(b"deep/" + name + b"/x/y")
    bucket = lookups.bucket(world.mirror, "b")
    assert bucket is not None
    page = asyncio.run(listing.list_objects(world.mirror, bucket, b"deep/", b"/"))
    assert page.prefixes == sorted(b"deep/" + name + b"/" for name in names) and not page.keys
    found: list[bytes] = []
    after: bytes | None = b""
    while after is not None:
        page = asyncio.run(listing.list_objects(world.mirror, bucket, b"", b"/", after, 7))
        found, after = found + page.prefixes, page.next
    assert found == sorted([b"deep/", *(name + b"/" for name in names)])
