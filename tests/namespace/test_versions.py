"""Versioning as S3 has it, said one rule at a time (the tree machine says all of it at once)."""

from __future__ import annotations

import pytest

from gateway.errors import DeleteMarker, InvalidArgument, NoSuchKey, NoSuchUpload, NoSuchVersion
from gateway.namespace.commands.buckets import SetVersioning
from gateway.namespace.commands.copy import CopyObject, Source
from gateway.namespace.commands.objects import DeleteObject, SetTags
from gateway.namespace.conditions import Preconditions
from gateway.namespace.read import lookups
from gateway.namespace.version_ids import encode_version_id, parse_upload_id, parse_version_id
from tests.namespace.counting import check
from tests.namespace.world import USER, World

ENABLED, SUSPENDED = 1, 2


def delete(world: World, key: bytes, version: str = ""):
    return world.run(DeleteObject("b", key, USER, False, version))


def versions(world: World, key: bytes) -> list[int]:
    """Sizes of the key's versions, newest first, a delete marker as -1."""
    found, at = [], lookups.find(world.mirror, "b", key)
    entry = next(each for each in world.rows.tables["entry"].values() if each.version == at.version) if at else None
    while entry is not None:
        found.append(world.rows.tables["file"][(entry.node,)].size if entry.node else -1)
        entry = world.rows.tables["version"].get((entry.parent, entry.name, entry.older)) if entry.older else None
    return found


@pytest.fixture
def world() -> World:
    made = World()
    made.bucket()
    return made


def switch(world: World, to: int) -> None:
    world.run(SetVersioning("b", USER, False, to))


def test_what_was_there_before_versioning_is_the_null_version(world):
    assert world.put(b"k", 1)[0] is None
    switch(world, ENABLED)
    version = world.put(b"k", 2)[0]
    assert len(version) == 17
    assert lookups.find(world.mirror, "b", b"k", "null").file.size == 1
    assert versions(world, b"k") == [2, 1]


@pytest.mark.parametrize("number", [1, 0x2006, 0x1E82, (1 << 63) - 1])
def test_an_id_never_looks_like_a_number_and_is_understood_without_its_letter(number):
    spelled = encode_version_id(number)
    assert not spelled[0].isdigit()
    assert parse_version_id(spelled) == parse_upload_id(spelled) == number
    assert parse_version_id(spelled[1:]) == parse_upload_id(spelled[1:]) == number
    for wrong in ("", "v", spelled[1:-1], "w" + spelled[1:], spelled + "0", "v" + "8" * 16):
        with pytest.raises(InvalidArgument):
            parse_version_id(wrong)
        with pytest.raises(NoSuchUpload):
            parse_upload_id(wrong)


def test_a_suspended_put_takes_the_null_versions_place_wherever_it_stands(world):
    world.put(b"k", 1)
    switch(world, ENABLED)
    world.put(b"k", 2)
    switch(world, SUSPENDED)
    assert world.put(b"k", 3)[0] == "null"
    assert versions(world, b"k") == [3, 2]
    assert world.put(b"k", 4)[0] == "null"
    assert versions(world, b"k") == [4, 2]
    assert delete(world, b"k") == ("null", True)
    assert versions(world, b"k") == [-1, 2]
    check(world)


def test_deleting_a_delete_marker_brings_the_object_back(world):
    switch(world, ENABLED)
    version = world.put(b"a/k", 1)[0]
    marker, made = delete(world, b"a/k")
    assert made and lookups.find(world.mirror, "b", b"a/k").file is None
    assert delete(world, b"a/k", marker) == (marker, True)
    assert lookups.find(world.mirror, "b", b"a/k").file.size == 1
    assert delete(world, b"a/k", version) == (version, False)
    assert len(world.rows.tables["dir"]) == 1
    assert delete(world, b"a/k", version) == (version, False), "a version that is gone is deleted already"
    check(world)


def test_a_key_that_never_was_gets_a_marker_all_the_same(world):
    switch(world, ENABLED)
    assert delete(world, b"x/y")[1]
    check(world)


def test_versioning_is_never_taken_away(world):
    switch(world, ENABLED)
    with pytest.raises(InvalidArgument):
        switch(world, 0)


def test_a_delete_marker_has_no_etag_to_match(world):
    switch(world, ENABLED)
    world.put(b"k", etag="e")
    delete(world, b"k")
    with pytest.raises(NoSuchKey):
        world.put(b"k", conditions=Preconditions(if_match=("e",)))
    world.put(b"k", conditions=Preconditions(if_none_match=("*",)))


def test_a_null_marker_is_called_null_where_it_is_refused(world):
    world.put(b"k", 1)
    switch(world, SUSPENDED)
    delete(world, b"k")
    for command in (
        SetTags("b", b"k", USER, False, "null", b""),
        CopyObject("b", b"to", USER, False, Source("b", b"k", "null")),
    ):
        with pytest.raises(DeleteMarker) as refused:
            world.run(command)
        assert refused.value.args == (b"k", "null", True)


def test_a_copy_of_a_version_names_it_and_a_marker_cannot_be_copied(world):
    switch(world, ENABLED)
    first = world.put(b"k", 1)[0]
    world.put(b"k", 2)
    assert world.run(CopyObject("b", b"to", USER, False, Source("b", b"k", first)))[3:6:2] == (1, first)
    marker = delete(world, b"k")[0]
    with pytest.raises(DeleteMarker):
        world.run(CopyObject("b", b"to", USER, False, Source("b", b"k", marker)))
    with pytest.raises(NoSuchKey):
        world.run(CopyObject("b", b"to", USER, False, Source("b", b"k")))
    with pytest.raises(NoSuchVersion):
        world.run(CopyObject("b", b"to", USER, False, Source("b", b"k", "0" * 16)))
    with pytest.raises(InvalidArgument):
        world.run(CopyObject("b", b"to", USER, False, Source("b", b"k", "not an id")))


def test_tags_belong_to_the_version_that_is_named(world):
    switch(world, ENABLED)
    first = world.put(b"k", 1)[0]
    world.put(b"k", 2)
    assert world.run(SetTags("b", b"k", USER, False, first, b"t")) == first
    assert lookups.find(world.mirror, "b", b"k").file.tags == b""
    assert lookups.find(world.mirror, "b", b"k", first).file.tags == b"t"
    assert lookups.find(world.mirror, "b", b"k", first).modified_ns < world.at_ns, "tags do not touch LastModified"
