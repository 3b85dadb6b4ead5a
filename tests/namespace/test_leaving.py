"""A bucket goes although uploads into it are open: nobody reaches them any more, and they end behind it."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.errors import BucketNotEmpty, NoSuchBucket, NoSuchUpload
from gateway.journal.columns import UploadAt
from gateway.journal.records.bytes import ContentReleased
from gateway.namespace.commands.buckets import DropBucket
from gateway.namespace.commands.complete import CompleteUpload, WantedPart
from gateway.namespace.commands.copy import CopyPart, Source
from gateway.namespace.commands.objects import DeleteObject
from gateway.namespace.commands.uploads import (
    AbortUpload,
    CreateUpload,
    CutUploadsOff,
    DropParts,
    ForgetUpload,
    PutPart,
)
from gateway.namespace.read import listing_uploads, lookups
from gateway.namespace.version_ids import parse_upload_id
from tests.namespace.counting import check
from tests.namespace.world import USER, World, stored

DROP = DropBucket("b", USER, False, "alice")


def begin(world: World, key: bytes = b"k") -> str:
    return world.run(CreateUpload("b", key, USER, False, "", "", b"", b""))


def put(world: World, upload: str, number: int = 1, key: bytes = b"k") -> WantedPart:
    extents, blocks = stored(world.next_id, 5)
    world.run(PutPart("b", key, USER, False, upload, number, 5, "e" * 32, extents, blocks, 1, 0, ""))
    return WantedPart(number, "e" * 32)


def at(upload: str, key: bytes = b"k") -> UploadAt:
    return UploadAt(key, parse_upload_id(upload))


def gone(world: World) -> list[tuple]:
    return [(row.name, row.uploads) for row in world.rows.tables["gone"].values()]


def cut_off(world: World, *uploads: UploadAt) -> int:
    (bucket,) = [row.id for row in world.rows.tables["gone"].values()]
    return world.run(CutUploadsOff(bucket, uploads))


def of_the_upload(upload: str) -> list:
    """Whatever a client asks of an upload."""
    ask = ("b", b"k", USER, False, upload)
    return [
        PutPart(*ask, 1, 0, "e" * 32, (), (), 1, 0, ""),
        CopyPart(*ask, 1, Source("b", b"there"), 0, 1, "e" * 32, 0, ""),
        CompleteUpload(*ask, (WantedPart(1, "e" * 32),)),
        AbortUpload(*ask),
    ]


def test_only_versions_keep_a_bucket(world):
    begin(world)
    world.put(b"k")
    with pytest.raises(BucketNotEmpty):
        world.run(DROP)
    assert gone(world) == []
    world.run(DeleteObject("b", b"k", USER, False))
    world.run(DROP)
    assert lookups.bucket(world.mirror, "b") is None
    assert gone(world) == [("b", 1)]


def test_a_bucket_goes_with_as_many_rows_for_a_hundred_uploads_as_for_one(world):
    touched = []
    for count in (1, 100):
        for _ in range(count):
            put(world, begin(world))
        world.run(DROP)
        touched.append(world.touched)
        world.bucket()
    assert touched[0] == touched[1] == Counter(["bucket", "dir", "user", "gone"])


@pytest.mark.parametrize("cut", [False, True])
def test_what_is_asked_of_an_upload_into_a_bucket_that_is_gone_finds_no_bucket(world, cut):
    upload = begin(world)
    put(world, upload)
    world.run(DROP)
    if cut:
        assert cut_off(world, at(upload)) == 0
    before = len(world.records)
    for asked in of_the_upload(upload):
        with pytest.raises(NoSuchBucket):
            world.run(asked)
    assert len(world.records) == before


@pytest.mark.parametrize("cut", [False, True])
async def test_a_bucket_of_the_same_name_has_nothing_of_the_uploads_into_the_one_that_is_gone(world, cut):
    upload = begin(world)
    put(world, upload)
    world.run(DROP)
    world.bucket()
    world.put(b"there")
    if cut:
        assert cut_off(world, at(upload)) == 0
    before = len(world.records)
    for asked in of_the_upload(upload):
        with pytest.raises(NoSuchUpload):
            world.run(asked)
    bucket = lookups.bucket(world.mirror, "b")
    with pytest.raises(NoSuchUpload):
        listing_uploads.list_parts(world.mirror, bucket, b"k", upload)
    assert (await listing_uploads.list_uploads(world.mirror, bucket)).uploads == []
    assert (len(world.records), bucket.uploads) == (before, 0)


async def test_uploads_into_the_new_bucket_are_its_own_on_every_page_of_their_list(world):
    keys = [b"a/%d" % n for n in range(5)] + [b"k"]
    left = [begin(world, key) for key in keys for _ in range(3)]
    world.run(DROP)
    world.bucket()
    new = [(key, begin(world, key)) for key in keys]
    bucket = lookups.bucket(world.mirror, "b")
    found, after = [], (b"", "")
    while True:
        page = await listing_uploads.list_uploads(world.mirror, bucket, b"", b"", *after, limit=2)
        found += [(each.key, each.upload) for each in page.uploads]
        if page.next_key is None:
            break
        after = (page.next_key, page.next_upload)
    assert found == new
    page = await listing_uploads.list_uploads(world.mirror, bucket, b"", b"/")
    assert (page.prefixes, [each.upload for each in page.uploads]) == ([b"a/"], [new[-1][1]])
    page = await listing_uploads.list_uploads(world.mirror, bucket, b"", b"", b"a/4", left[-4])
    assert [each.key for each in page.uploads] == [b"a/4", b"k"], "behind an upload that was there before"


def test_uploads_are_cut_off_in_slices_and_twice_does_no_harm(world):
    uploads = [begin(world) for _ in range(3)]
    for upload in uploads:
        put(world, upload)
    world.run(DROP)
    (bucket,) = [row.id for row in world.rows.tables["gone"].values()]
    assert world.run(CutUploadsOff(bucket, (at(uploads[0]), at(uploads[0])))) == 2
    assert world.run(CutUploadsOff(bucket, (at(uploads[0]), at(uploads[1])))) == 1
    check(world)
    assert world.run(CutUploadsOff(bucket, tuple(map(at, uploads)))) == 0
    assert world.run(CutUploadsOff(bucket, tuple(map(at, uploads)))) == 0
    assert gone(world) == []


def test_uploads_into_another_bucket_of_the_name_are_not_cut_off(world):
    put(world, begin(world))
    world.run(DROP)
    world.bucket()
    second = begin(world)
    put(world, second)
    world.run(DROP)
    world.bucket()
    third = begin(world)
    part = put(world, third)
    first_gone, second_gone = world.rows.tables["gone"].values()
    assert world.run(CutUploadsOff(first_gone.id, (at(second), at(third)))) == 1
    assert world.run(CutUploadsOff(second_gone.id, (at(second), at(third)))) == 0
    assert gone(world) == [("b", 1)]
    world.run(CompleteUpload("b", b"k", USER, False, third, (part,)))
    assert lookups.find(world.mirror, "b", b"k").file.size == 5


def test_what_was_cut_off_goes_as_what_was_aborted(world):
    upload = begin(world)
    put(world, upload, 1), put(world, upload, 2)
    world.run(DROP)
    cut_off(world, at(upload))
    number = parse_upload_id(upload)
    assert list(world.rows.tables["freed"]) == [(number,)]
    assert world.run(DropParts("b", b"k", number, (1, 2))) == 0
    world.apply(ContentReleased(tuple((each[0], 1) for each in list(world.rows.tables["freed"]))))
    assert world.run(ForgetUpload("b", b"k", number))
    assert not any(world.rows.tables[table] for table in ("upload", "part", "freed", "run", "member", "gone", "bucket"))
    assert all(block.died for block in world.rows.tables["block"].values())
