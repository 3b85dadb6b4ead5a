"""What commands cost, in rows that they touch and in rounds of loading."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.errors import InvalidArgument, InvalidPart
from gateway.journal.rows import LEVELS_MAX
from gateway.journal.tables import Shape
from gateway.namespace.commands import complete
from gateway.namespace.commands.complete import CompleteUpload, WantedPart
from gateway.namespace.commands.copy import CopyObject, Source
from gateway.namespace.commands.objects import SLICE_WEIGHT, DeleteObject, DeleteObjects, Doomed, slices, weigh_doomed
from gateway.namespace.commands.rename import Rename
from gateway.namespace.commands.uploads import CreateUpload, PutPart
from tests.namespace.world import USER, World, put_command, stored

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


@pytest.mark.parametrize("key", [b"a/" * 511 + b"k", b"/" * 1024], ids=["names", "slashes"])
def test_the_deepest_keys_take_few_rounds_while_nothing_is_in_memory(key):
    world = World(mirror=False)
    world.bucket()
    world.put(b"stays")
    world.put(key)
    levels = key.count(b"/")
    for command in (
        put_command(key, n=99),
        CopyObject("b", b"copy", USER, False, Source("b", key)),
        DeleteObject("b", key, USER, False),
    ):
        world.cold()
        world.run(command)
        assert world.rounds <= levels / LEVELS_MAX + 4
    assert [row.parent for row in world.rows.tables["dir"].values()] == [0], "its directories went with it"


def test_deletions_of_deep_keys_load_their_paths_together():
    world = World(mirror=False)
    world.bucket()
    keys = [b"%d/" % n + b"a/" * 40 + b"k" for n in range(10)]
    for key in keys:
        world.put(key)
    world.cold()
    world.run(DeleteObjects("b", USER, False, tuple(map(Doomed, keys))))
    assert world.rounds <= 4


def test_a_rename_far_down_takes_few_rounds_while_nothing_is_in_memory():
    world = World(mirror=False)
    world.bucket()
    for side in (b"l/", b"r/"):
        world.put(side + b"a/" * 400 + b"k")
    deepest = {}
    for row in world.rows.tables["entry"].values():
        if row.name == b"k":
            deepest[len(deepest)] = row.parent
    world.cold()
    world.run(Rename("b", USER, False, deepest[0], b"k", deepest[1], b"moved"))
    assert world.rounds <= 12


def test_a_long_deletion_is_cut_into_slices_of_bounded_weight():
    doomed = [Doomed(b"a/" * (n % 500) + b"k%d" % n) for n in range(1000)]
    cut = list(slices(doomed))
    assert [each for some in cut for each in some] == doomed
    assert all(len(some) == 1 or sum(map(weigh_doomed, some)) <= SLICE_WEIGHT for some in cut)
    assert len(list(slices(map(Doomed, [b"d/%d" % n for n in range(1000)])))) < 10
    with pytest.raises(InvalidArgument):
        world = World(mirror=False)
        world.bucket()
        world.run(DeleteObjects("b", USER, False, tuple(doomed)))


def test_a_completion_that_names_parts_in_vain_looks_few_of_them_up():
    world = World(mirror=False)
    world.bucket()
    upload = world.run(CreateUpload("b", b"k", USER, False, "", "", b"", b""))
    extents, blocks = stored(world.next_id, 5 * MIB)
    world.run(PutPart("b", b"k", USER, False, upload, 1, 5 * MIB, "0" * 32, extents, blocks, 1, 0, ""))
    world.cold()
    wanted = tuple(WantedPart(number, "0" * 32) for number in range(1, 10_001))
    with pytest.raises(InvalidPart, match="part 2 "):
        world.run(CompleteUpload("b", b"k", USER, False, upload, wanted))
    assert len([table for table, _ in world.rows.known if table == "part"]) == 2


def test_a_completion_judges_its_parts_once(monkeypatch):
    world = World(mirror=False)
    world.bucket()
    world.put(b"a/b/c/k")
    upload = world.run(CreateUpload("b", b"a/b/c/k", USER, False, "", "", b"", b""))
    for number in range(1, 4):
        extents, blocks = stored(world.next_id, 5 * MIB)
        world.run(PutPart("b", b"a/b/c/k", USER, False, upload, number, 5 * MIB, "0" * 32, extents, blocks, 1, 0, ""))
    judged = []
    judge = complete.check_parts
    monkeypatch.setattr(complete, "check_parts", lambda *given: judged.append(1) or judge(*given))
    world.cold()
    wanted = tuple(WantedPart(number, "0" * 32) for number in range(1, 4))
    world.run(CompleteUpload("b", b"a/b/c/k", USER, False, upload, wanted))
    assert len(judged) == 1
