"""The shortest way through every command of S3's."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from gateway.errors import AccessDenied, InvalidArgument, NoSuchKey, PreconditionFailed
from gateway.journal.columns import unpack_parts
from gateway.namespace.commands.complete import CompleteUpload, WantedPart
from gateway.namespace.commands.copy import CopyObject, CopyPart, MoveObject, Source
from gateway.namespace.commands.objects import DeleteObject, DeleteObjects, Doomed
from gateway.namespace.commands.prepare_completion import prepare_completion
from gateway.namespace.commands.uploads import CreateUpload, PutPart
from gateway.namespace.conditions import Preconditions
from gateway.namespace.read import lookups
from tests.namespace.counting import check
from tests.namespace.world import OTHER, USER, World, stored

MIB = 1 << 20


def test_an_object_is_put_found_copied_and_deleted():
    world = World()
    world.bucket()
    assert world.put(b"a/b", 100) == (None, world.at_ns)
    found = lookups.find(world.mirror, "b", b"a/b")
    assert found.file.size == 100 and len(world.ranges(found, 0, 100)) == 1
    copied = world.run(CopyObject("b", b"c", USER, False, Source("b", b"a/b")))
    assert copied[3] == 100
    assert world.run(DeleteObject("b", b"a/b", USER, False)) == (None, False)
    assert lookups.find(world.mirror, "b", b"a/b") is None
    assert len(world.rows.tables["dir"]) == 1, "the implied directory went with its last entry"
    assert world.run(DeleteObject("b", b"a/b", USER, False)) == (None, False), "deleting what is gone is no error"


def test_an_object_moves_to_another_bucket_in_one_command():
    world = World()
    world.bucket()
    world.bucket("c", versioning=1)
    world.put(b"a/b", 100)
    world.cold()
    moved = world.run(MoveObject("c", b"x/y", USER, False, "b", b"a/b"))
    assert moved[3] == 100 and lookups.find(world.mirror, "c", b"x/y").version_text == moved[0]
    assert lookups.find(world.mirror, "b", b"a/b") is None
    assert world.rows.tables["bucket"][("b",)].objects == 0
    world.run(MoveObject("b", b"back", USER, False, "c", b"x/y"))
    assert lookups.find(world.mirror, "b", b"back").file.size == 100
    covered = lookups.find(world.mirror, "c", b"x/y")
    assert covered.file is None, "a bucket with versions keeps them, behind a delete marker"
    check(world)


def test_a_move_of_nothing_or_to_itself_or_out_of_anothers_bucket_is_refused():
    world = World()
    world.bucket()
    world.bucket("c")
    world.put(b"k")
    with pytest.raises(NoSuchKey):
        world.run(MoveObject("c", b"k", USER, False, "b", b"none"))
    with pytest.raises(InvalidArgument):
        world.run(MoveObject("b", b"k", USER, False, "b", b"k"))
    with pytest.raises(AccessDenied):
        world.run(MoveObject("c", b"k", OTHER, False, "b", b"k"))
    assert lookups.find(world.mirror, "b", b"k").file.size == 4


def test_another_users_bucket_is_refused():
    world = World()
    world.bucket()
    with pytest.raises(AccessDenied):
        world.put(b"x", user=OTHER)
    world.put(b"x", user=OTHER, root=True)


def test_conditions_are_judged_in_the_command():
    world = World()
    world.bucket()
    with pytest.raises(NoSuchKey):
        world.put(b"x", conditions=Preconditions(if_match=("e",)))
    world.put(b"x", conditions=Preconditions(if_none_match=("*",)), etag="e")
    with pytest.raises(PreconditionFailed):
        world.put(b"x", conditions=Preconditions(if_none_match=("*",)))
    world.put(b"x", conditions=Preconditions(if_match=("e",)))


def test_many_keys_are_deleted_each_with_its_outcome():
    world = World()
    world.bucket()
    world.put(b"a/1")
    world.put(b"a/2")
    outcomes = world.run(DeleteObjects("b", USER, False, (Doomed(b"a/1"), Doomed(b""), Doomed(b"a/2"))))
    assert [outcome[0] for outcome in outcomes] == ["", "InvalidKey", ""]
    assert world.rows.tables["bucket"][("b",)].objects == 0


def part(world: World, upload: str, number: int, size: int) -> str:
    extents, blocks = stored(world.next_id, size)
    etag = hashlib.md5(bytes([number])).hexdigest()
    world.run(PutPart("b", b"k", USER, False, upload, number, size, etag, extents, blocks, 1, number, ""))
    return etag


def test_parts_become_an_object_and_a_repeat_has_the_same_answer():
    world = World()
    world.bucket()
    upload = world.run(CreateUpload("b", b"k", USER, False, "", "", b"", b""))
    etags = [part(world, upload, number, 5 * MIB) for number in (1, 2)]
    world.put(b"source", 20 * MIB)
    world.run(CopyPart("b", b"k", USER, False, upload, 3, Source("b", b"source"), 7, 6 * MIB, "0" * 32, 3, ""))
    wanted = tuple(WantedPart(n + 1, etag) for n, etag in enumerate([*etags, "0" * 32]))
    asked = CompleteUpload("b", b"k", USER, False, upload, wanted)
    assert world.run(asked) is None, "the runs of the copied part have to be counted first"
    ready = asyncio.run(prepare_completion(world.mirror, asked))
    assert [world.run(each) for each in ready.slices] == [1]
    done = world.run(ready.completion)
    assert done[2].endswith("-3") and done[3] == 16 * MIB
    assert world.run(CompleteUpload("b", b"k", USER, False, upload, wanted)) == done
    found = lookups.find(world.mirror, "b", b"k")
    assert sum(part.length for part in world.ranges(found, 5 * MIB - 1, 6 * MIB)) == 6 * MIB
    ((packed,),) = world.mirror.query("SELECT parts FROM body WHERE id = ?", (found.file.content,))
    assert [fact.number for fact in unpack_parts(packed)] == [1, 2, 3]
