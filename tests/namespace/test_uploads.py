"""Multipart uploads: S3's rules for completing one, and how what is left over goes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
import sys
from dataclasses import replace

import pytest
from awscrt import checksums as crc

from gateway.errors import (
    BadChecksum,
    Busy,
    EntityTooSmall,
    Invalid,
    InvalidArgument,
    InvalidPart,
    InvalidPartOrder,
    InvalidRange,
    NoSuchUpload,
    PreconditionFailed,
)
from gateway.journal.apply.bytes import slice_pieces
from gateway.journal.columns import unpack_checksums, unpack_pieces
from gateway.journal.records.bytes import ContentReleased
from gateway.namespace.commands.complete import CompleteUpload, WantedPart
from gateway.namespace.commands.copy import CopyObject, CopyPart, Source
from gateway.namespace.commands.nodes import SetContent
from gateway.namespace.commands.objects import DeleteObject
from gateway.namespace.commands.prepare_completion import Prepared, prepare_completion
from gateway.namespace.commands.uploads import AbortUpload, CreateUpload, DropParts, ForgetUpload, PutPart
from gateway.namespace.conditions import Preconditions
from gateway.namespace.read import listing_buckets, listing_uploads, lookups
from gateway.namespace.version_ids import parse_upload_id
from tests.namespace.counting import check
from tests.namespace.world import OTHER, USER, World, stored

MIB = 1 << 20
ASK = ("b", b"k", USER, False)


def begin(world: World, checksum: str = "", kind: str = "") -> str:
    return world.run(CreateUpload(*ASK, checksum, kind, b"", b""))


def put(world: World, upload: str, number: int, data: bytes, checksum: str = "") -> WantedPart:
    extents, blocks = stored(world.next_id, len(data))
    etag = hashlib.md5(data).hexdigest()
    world.run(
        PutPart(*ASK, upload, number, len(data), etag, extents, blocks, 1, crc.crc64nvme(data), checksum)
    )  # fmt: skip
    return WantedPart(number, etag)


PREPARED = False
"""Completions go the way that those of many parts go."""


@pytest.fixture(autouse=True, params=["one command", "prepared"])
def way(request, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PREPARED", request.param == "prepared")


def complete(world: World, upload: str, *parts: WantedPart, **more):
    asked = CompleteUpload(*ASK, upload, parts, **more)
    done = None if PREPARED else world.run(asked)
    return done or finish(world, asyncio.run(prepare_completion(world.mirror, asked)))


def finish(world: World, ready: Prepared):
    """Send what is prepared. None if parts came meanwhile."""
    for each in ready.slices:
        if world.run(each) is None:
            return None
        check(world)
    return world.run(ready.completion)


def b64(value: int, width: int) -> str:
    return base64.b64encode(value.to_bytes(width, "big")).decode()


def test_the_whole_has_the_etag_and_checksums_of_its_bytes(world):
    rng = random.Random(1)
    data = [rng.randbytes(5 * MIB), rng.randbytes(5 * MIB + 17), b"end"]
    whole = b"".join(data)
    for algorithm, of, width in (("CRC32", crc.crc32, 4), ("CRC32C", crc.crc32c, 4), ("CRC64NVME", crc.crc64nvme, 8)):
        upload = begin(world, algorithm, "FULL_OBJECT")
        parts = [put(world, upload, n + 1, each, b64(of(each), width)) for n, each in enumerate(data)]
        done = complete(world, upload, *parts, expected_algorithm=algorithm, expected_value=b64(of(whole), width))
        md5s = b"".join(hashlib.md5(each).digest() for each in data)
        assert done[2] == hashlib.md5(md5s).hexdigest() + "-3"
        assert unpack_checksums(done[4]) == [(algorithm, "FULL_OBJECT", b64(of(whole), width))]
        stored_checksums = {
            each.algorithm: each.value
            for each in unpack_checksums(lookups.find(world.mirror, "b", b"k").file.checksums)
        }
        assert stored_checksums["CRC64NVME"] == b64(crc.crc64nvme(whole), 8)


def test_a_composite_checksum_is_that_of_the_parts_checksums(world):
    upload = begin(world, "SHA256", "COMPOSITE")
    digests = [hashlib.sha256(each).digest() for each in (b"x" * 5 * MIB, b"y")]
    texts = [base64.b64encode(each).decode() for each in digests]
    stored = [put(world, upload, 1, b"x" * 5 * MIB, texts[0]), put(world, upload, 2, b"y", texts[1])]
    parts = [part._replace(checksum=text) for part, text in zip(stored, texts, strict=True)]
    with pytest.raises(Invalid, match="missing for part 2"):
        complete(world, upload, parts[0], stored[1])
    value = base64.b64encode(hashlib.sha256(b"".join(digests)).digest()).decode()
    with pytest.raises(BadChecksum):
        complete(world, upload, *parts, expected_algorithm="SHA256", expected_value="other")
    with pytest.raises(InvalidPart):
        complete(world, upload, parts[0], parts[1]._replace(checksum=texts[0]))
    with pytest.raises(Invalid):
        complete(world, upload, *parts, expected_type="FULL_OBJECT")
    done = complete(world, upload, *parts, expected_algorithm="SHA256", expected_value=value)
    assert unpack_checksums(done[4])[0] == ("SHA256", "COMPOSITE", value + "-2")


def test_what_s3_refuses_is_refused_and_changes_nothing(world):
    upload = begin(world)
    one, two = put(world, upload, 1, b"small"), put(world, upload, 2, b"last")
    for error, parts in (
        (InvalidPartOrder, (two, one)),
        (InvalidPartOrder, (one, one)),
        (InvalidPart, (one, WantedPart(3, one.etag))),
        (InvalidPart, (one, WantedPart(2, one.etag))),
        (InvalidArgument, ()),
        (EntityTooSmall, (one, two)),
    ):
        with pytest.raises(error):
            complete(world, upload, *parts)
    with pytest.raises(Invalid):
        complete(world, upload, one, expected_size=6)
    world.put(b"k", etag="e")
    with pytest.raises(PreconditionFailed):
        complete(world, upload, one, conditions=Preconditions(if_none_match=("*",)))
    assert complete(world, upload, one._replace(etag=f'"{one.etag.upper()}"'), expected_size=5)[3] == 5


def test_a_repeat_has_the_first_answer_and_another_list_has_none(world):
    upload = begin(world)
    part = put(world, upload, 1, b"x")
    done = complete(world, upload, part)
    world.put(b"k", 9)
    assert complete(world, upload, part) == done
    with pytest.raises(NoSuchUpload):
        complete(world, upload, WantedPart(1, "f" * 32))
    with pytest.raises(NoSuchUpload):
        world.run(AbortUpload(*ASK, upload))
    with pytest.raises(NoSuchUpload):
        put(world, upload, 2, b"late")


def test_a_part_that_is_put_again_lets_go_of_its_bytes(world):
    upload = begin(world)
    put(world, upload, 1, b"first")
    part = put(world, upload, 1, b"second")
    assert len(world.rows.tables["freed"]) == 1
    assert complete(world, upload, part)[3] == 6


def test_parts_that_nobody_took_are_dropped_and_the_upload_forgotten(world):
    upload = begin(world)
    parts = [put(world, upload, number, b"x") for number in (1, 2, 3)]
    complete(world, upload, parts[1])
    ended = lookups.upload(world.mirror, "b", b"k", parse_upload_id(upload))
    assert ended.parts == (3 if PREPARED else 2) and not world.run(ForgetUpload("b", b"k", ended.id))
    assert world.run(DropParts("b", b"k", ended.id, (1,))) == (2 if PREPARED else 1)
    check(world)
    assert world.run(DropParts("b", b"k", ended.id, (1, 2, 3))) == 0
    assert world.run(ForgetUpload("b", b"k", ended.id)) and world.run(ForgetUpload("b", b"k", ended.id))
    assert lookups.upload(world.mirror, "b", b"k", ended.id) is None
    assert len(world.rows.tables["freed"]) == 2, "what nobody took lets go of its content"


def test_an_open_uploads_parts_are_not_dropped(world):
    upload = begin(world)
    put(world, upload, 1, b"x")
    with pytest.raises(InvalidArgument):
        world.run(DropParts("b", b"k", parse_upload_id(upload), (1,)))
    world.run(AbortUpload(*ASK, upload))
    with pytest.raises(NoSuchUpload):
        listing_uploads.list_parts(world.mirror, lookups.bucket(world.mirror, "b"), b"k", upload)
    world.run(DropParts("b", b"k", parse_upload_id(upload), (1,)))


def test_a_copied_part_is_a_slice_and_counts_its_runs(world):
    source = begin(world)
    parts = [put(world, source, n, bytes(5 * MIB)) for n in (1, 2, 3)]
    complete(world, source, *parts)
    upload = begin(world)
    node = lookups.find(world.mirror, "b", b"k").file.id
    for number, start in ((1, 1), (2, 5 * MIB)):
        world.run(CopyPart(*ASK, upload, number, Source("b", b"k", node=node), start, 7 * MIB, "a" * 32, 0, ""))
        check(world)
    with pytest.raises(InvalidRange):
        world.run(CopyPart(*ASK, upload, 3, Source("b", b"k"), 10 * MIB, 6 * MIB, "a" * 32, 0, ""))
    complete(world, upload, WantedPart(1, "a" * 32), WantedPart(2, "a" * 32))
    found = lookups.find(world.mirror, "b", b"k")
    lengths = [part.length for part in world.ranges(found, 0, 14 * MIB)]
    assert lengths == [5 * MIB - 1, 2 * MIB + 1, 5 * MIB, 2 * MIB]


def test_a_copied_part_whose_pieces_are_known_does_not_load_the_body(world):
    source = begin(world)
    complete(world, source, *(put(world, source, n, bytes(5 * MIB)) for n in (1, 2, 3)))
    upload = begin(world)
    file = lookups.find(world.mirror, "b", b"k").file
    found = slice_pieces(unpack_pieces(world.rows.tables["body"][(file.content,)].pieces), 1, 7 * MIB)
    source = Source("b", b"k", node=file.id, content=file.content)
    asked = CopyPart(*ASK, upload, 1, source, 1, 7 * MIB, "a" * 32, 0, "")
    world.cold()
    with pytest.raises(InvalidArgument, match="do not make up the range"):
        world.run(replace(asked, pieces=tuple(found[:1])))
    with pytest.raises(InvalidArgument, match="without the body"):
        world.run(replace(asked, source=source._replace(content=None), pieces=tuple(found)))
    world.run(replace(asked, pieces=tuple(found)))
    assert ("body", (file.content,)) not in world.rows.known
    assert [each.length for each in found] == [5 * MIB - 1, 2 * MIB + 1]
    check(world)


@pytest.mark.parametrize("version", ["", "null"])
def test_a_source_that_was_written_in_place_since_it_was_looked_at_is_not_copied(world, version):
    """Its digests were computed from what it had."""
    world.put(b"k", 4)
    upload = begin(world)
    file = lookups.find(world.mirror, "b", b"k").file
    source = Source("b", b"k", version, node=file.id, content=file.content)
    extents, blocks = stored(world.next_id, 4)
    layout = ((1, 0, 4),)
    world.run(SetContent("b", USER, False, file.id, file.etag, layout, extents, blocks, 1, b""))
    for number, command in enumerate(
        (
            CopyPart(*ASK, upload, 1, source, 0, 4, "a" * 32, 0, ""),
            CopyPart(*ASK, upload, 1, source, 1, 2, "a" * 32, 0, ""),
            CopyObject("b", b"other", USER, False, source, None, None, b""),
        )
    ):
        with pytest.raises(Busy):
            world.run(command)
            pytest.fail(f"{number}: it was copied")


def test_what_is_taken_apart_leaves_nothing(world):
    test_a_copied_part_is_a_slice_and_counts_its_runs(world)
    world.run(DeleteObject("b", b"k", USER, False))
    for upload in [each for each in world.rows.tables["upload"].values() if each.parts]:
        world.run(DropParts("b", upload.key, upload.id, tuple(range(1, 10))))
        check(world)
    while freed := list(world.rows.tables["freed"]):
        world.apply(ContentReleased(tuple((each[0], 1) for each in freed)))
        check(world)
    assert not world.rows.tables["run"] and not world.rows.tables["body"] and not world.rows.tables["member"]
    assert all(block.died for block in world.rows.tables["block"].values())


async def test_uploads_are_listed_by_key_and_rolled_up(world):
    keys = (b"a", b"a", b"b/1", b"b/2", b"c")
    found = [(key, world.run(CreateUpload("b", key, USER, False, "", "", b"", b""))) for key in keys]
    bucket = lookups.bucket(world.mirror, "b")
    page = await listing_uploads.list_uploads(world.mirror, bucket)
    assert [(each.key, each.upload) for each in page.uploads] == found
    page = await listing_uploads.list_uploads(world.mirror, bucket, b"", b"/", limit=3)
    assert (len(page.uploads), page.prefixes, page.next_key) == (2, [b"b/"], b"b/")
    page = await listing_uploads.list_uploads(world.mirror, bucket, b"", b"/", page.next_key, page.next_upload or "")
    assert [each.key for each in page.uploads] == [b"c"] and page.next_key is None
    page = await listing_uploads.list_uploads(world.mirror, bucket, limit=1)
    page = await listing_uploads.list_uploads(world.mirror, bucket, b"", b"", page.next_key, page.next_upload)
    assert page.uploads[0].upload == found[1][1]
    page = await listing_uploads.list_uploads(world.mirror, bucket, b"b/")
    assert [each.key for each in page.uploads] == [b"b/1", b"b/2"]


def test_parts_and_buckets_are_listed_by_pages(world):
    upload = begin(world)
    for number in (1, 2, 5):
        put(world, upload, number, b"x")
    bucket = lookups.bucket(world.mirror, "b")
    page = listing_uploads.list_parts(world.mirror, bucket, b"k", upload, 0, 2)
    assert ([part.number for part in page.parts], page.next_number) == ([1, 2], 2)
    page = listing_uploads.list_parts(world.mirror, bucket, b"k", upload, 2, 2)
    assert ([part.number for part in page.parts], page.next_number) == ([5], None)
    for name in ("ab", "ac", "b2"):
        world.bucket(name)
    found, after = listing_buckets.list_buckets(world.mirror, USER, "a", "", 1)
    assert ([each.name for each in found], after) == (["ab"], "ab")
    assert [each.name for each in listing_buckets.list_buckets(world.mirror, None, "a", "ab")[0]] == ["ac"]
    assert listing_buckets.list_buckets(world.mirror, OTHER)[0] == []


def test_a_part_that_comes_while_a_completion_is_prepared_leaves_the_upload_open(world):
    upload = begin(world)
    parts = [put(world, upload, 1, bytes(5 * MIB)), put(world, upload, 2, b"end")]
    asked = CompleteUpload(*ASK, upload, tuple(parts))
    late = asyncio.run(prepare_completion(world.mirror, asked))
    put(world, upload, 2, b"end")
    assert finish(world, late) is None
    assert lookups.find(world.mirror, "b", b"k") is None or lookups.find(world.mirror, "b", b"k").file is None
    assert lookups.upload(world.mirror, "b", b"k", parse_upload_id(upload)).parts == 2
    done = finish(world, asyncio.run(prepare_completion(world.mirror, asked)))
    assert finish(world, late) == done, "it is answered as a repeat"
    check(world)


def test_what_is_prepared_is_what_one_command_makes_of_the_parts(world):
    made = []
    for ready in (False, True):
        upload = begin(world, "CRC32", "FULL_OBJECT")
        data = {n: bytes([n]) * 5 * MIB for n in (2, 3, 7)}
        parts = [put(world, upload, n, each, b64(crc.crc32(each), 4)) for n, each in data.items()]
        asked = CompleteUpload(*ASK, upload, tuple(parts))
        done = finish(world, asyncio.run(prepare_completion(world.mirror, asked))) if ready else world.run(asked)
        file = lookups.find(world.mirror, "b", b"k").file
        body = world.rows.tables["body"][(file.content,)]
        lengths = [(piece.offset, piece.length) for piece in unpack_pieces(body.pieces)]
        made.append((done[2:], file.size, file.etag, file.checksums, body.size, lengths, body.parts))
    assert made[0] == made[1]
    check(world)
