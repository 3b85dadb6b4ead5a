"""What commands cost, in rows that they touch and in rounds of loading."""

from __future__ import annotations

from collections import Counter

from gateway.journal.tables import Shape
from gateway.namespace.completing import CompleteUpload, WantedPart
from gateway.namespace.copies import CopyObject, Source
from gateway.namespace.objects import DeleteObject, DeleteObjects, Doomed
from gateway.namespace.uploads import CreateUpload, PutPart
from tests.namespace.world import USER, World, stored

MIB, TIB = 1 << 20, 1 << 40


def uploaded(world: World, key: bytes, parts: int, size: int, extents_too: bool = True) -> Counter[str]:
    """An object of so many parts of that size. Answers what the completion touched."""
    upload = world.run(CreateUpload("b", key, USER, False, "", "", b"", b""))
    for number in range(1, parts + 1):
        extents, blocks = stored(world.next_id, size, block_bytes=size)
        world.run(PutPart("b", key, USER, False, upload, number, size, "0" * 32, extents, blocks, 1, 0, ""))
    wanted = tuple(WantedPart(number, "0" * 32) for number in range(1, parts + 1))
    world.run(CompleteUpload("b", key, USER, False, upload, wanted))
    return world.touched


def test_a_small_put_touches_one_row_of_each_kind():
    world = World(mirror=False)
    world.bucket()
    world.put(b"d/first")
    world.put(b"d/k")
    assert world.touched == Counter(["bucket", "dir", "entry", "file", "run", "member", "block"])


def test_a_copy_touches_as_many_rows_for_5_tib_as_for_5_mib():
    world = World(mirror=False)
    world.bucket()
    uploaded(world, b"small", 1, 5 * MIB)
    uploaded(world, b"large", 1024, 5 * TIB // 1024)
    touched = []
    for key in (b"small", b"large"):
        world.run(CopyObject("b", b"copy of " + key, USER, False, Source("b", key)))
        touched.append(world.touched)
    assert touched[0] == touched[1] == Counter(["bucket", "dir", "entry", "file", "body"])


def test_a_completion_touches_one_row_a_part():
    world = World(mirror=False)
    world.bucket()
    few, many = uploaded(world, b"few", 10, 5 * MIB), uploaded(world, b"many", 510, 5 * MIB)
    many.subtract(few)
    assert +many == Counter({"part": 500})


def test_a_deletion_touches_as_many_rows_for_many_parts_as_for_one():
    world = World(mirror=False)
    world.bucket()
    world.put(b"stays")
    touched = []
    for parts in (1, 300):
        uploaded(world, b"k", parts, 5 * MIB)
        world.run(DeleteObject("b", b"k", USER, False))
        touched.append(world.touched)
    assert touched[0] == touched[1] == Counter(["bucket", "dir", "entry", "file", "freed"])
    assert {row.shape for row in world.rows.tables["freed"].values()} == {Shape.BODY}


def test_a_put_into_a_known_directory_loads_once():
    world = World(mirror=False)
    world.bucket()
    world.cold()
    world.put(b"a/b/c/first")
    world.put(b"a/b/c/second")
    assert world.rounds == 1, "its own entry and its block, together"
    world.put(b"a/b/c/second")
    assert world.rounds == 1, "its block; what it replaces is known"


def test_many_deletions_load_together():
    world = World(mirror=False)
    world.bucket()
    for n in range(100):
        world.put(b"d/%d" % n)
    world.cold()
    world.run(DeleteObjects("b", USER, False, tuple(Doomed(b"d/%d" % n) for n in range(100))))
    assert world.rounds <= 4


def test_a_completion_loads_its_parts_together():
    world = World(mirror=False)
    world.bucket()
    upload = world.run(CreateUpload("b", b"k", USER, False, "", "", b"", b""))
    for number in range(1, 101):
        extents, blocks = stored(world.next_id, 5 * MIB)
        world.run(PutPart("b", b"k", USER, False, upload, number, 5 * MIB, "0" * 32, extents, blocks, 1, 0, ""))
    world.cold()
    wanted = tuple(WantedPart(number, "0" * 32) for number in range(1, 101))
    world.run(CompleteUpload("b", b"k", USER, False, upload, wanted))
    assert world.rounds <= 3
