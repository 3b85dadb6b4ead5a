"""Open files: reading, writing in parts, creating, appending; transactions."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import pickle
import random
import tracemalloc
from types import SimpleNamespace

import pytest
from fsspec.asyn import sync

from gateway.errors import Corrupted
from gateway.posix.fsspec import multipart_writer
from gateway.posix.fsspec.multipart_writer import PARTS_IN_FLIGHT
from tests.posix.journal_view import blocks_of, uploads_of

MIB = 1 << 20
DATA = random.Random(1).randbytes(300_000)


@pytest.fixture(scope="module")
def file(shared) -> str:
    shared.mkdir("open-files")
    shared.pipe_file("open-files/data", DATA)
    return "open-files/data"


def test_an_open_file_is_read_anywhere_and_by_lines(fs, file, bucket):
    with fs.open(file) as opened:
        for at in (0, 299_999, 150_000, 64):
            opened.seek(at)
            assert opened.read(1000) == DATA[at : at + 1000]
        opened.seek(-10, os.SEEK_END)
        assert opened.read() == DATA[-10:]
        assert opened.tell() == len(DATA)
    with fs.open(f"{bucket}/text", "w", encoding="utf-8") as text:
        text.write("één\ntwee\n")
    with fs.open(f"{bucket}/text", "r", encoding="utf-8") as text:
        assert list(text) == ["één\n", "twee\n"]
    with fs.open(f"{bucket}/packed", "wb", compression="gzip") as packed:
        packed.write(DATA)
    with fs.open(f"{bucket}/packed", "rb", compression="gzip") as packed:
        assert packed.read() == DATA


def test_opening_what_is_no_file_is_refused(fs, bucket):
    fs.mkdir(f"{bucket}/d")
    for path in (bucket, f"{bucket}/d"):
        with pytest.raises(IsADirectoryError):
            fs.open(path)
    with pytest.raises(FileNotFoundError):
        fs.open(f"{bucket}/none")
    with pytest.raises(ValueError, match="mode must be"):
        fs.open(f"{bucket}/x", "r+b")
    for mode in ("rb", "wb"):
        with pytest.raises(ValueError, match="block_size"):
            fs.open(f"{bucket}/x", mode, block_size=-1)


def test_nothing_of_a_file_is_visible_before_it_is_closed(fs, folder, bucket):
    data = os.urandom(30 * MIB)
    with fs.open(f"{bucket}/x", "wb") as opened:
        for at in range(0, len(data), 3_000_001):
            opened.write(data[at : at + 3_000_001])
        assert not fs.exists(f"{bucket}/x")
        assert uploads_of(folder, bucket) == 1
    assert fs.cat_file(f"{bucket}/x") == data
    assert uploads_of(folder, bucket) == 0


@pytest.fixture
def parts(fs, monkeypatch):
    """Whatever stores parts: (how many at once, what to do before one is stored)."""
    api = sync(fs.loop, fs._connect)
    put_part, running = api.put_part, 0
    seen = SimpleNamespace(most=0, before=None)

    async def watched(bucket, key, upload, number, body, size):
        nonlocal running
        running += 1
        seen.most = max(seen.most, running)
        try:
            if seen.before is not None:
                await seen.before(number)
            return await put_part(bucket, key, upload, number, body, size)
        finally:
            running -= 1

    monkeypatch.setattr(api, "put_part", watched)
    return seen


def test_a_few_parts_are_stored_at_once_and_stand_in_their_order_whichever_ends_first(fs, bucket, parts):
    stored: list[int] = []

    async def backwards(number):
        """Of each pair the second one first."""
        while number % 2 and number < 9 and number + 1 not in stored:
            await asyncio.sleep(0.001)
        stored.append(number)

    parts.before = backwards
    data = os.urandom(9 * 5 * MIB + 5)
    with fs.open(f"{bucket}/x", "wb", block_size=5 * MIB) as opened:
        opened.write(data)
    assert fs.cat_file(f"{bucket}/x") == data
    assert stored.index(2) < stored.index(1)
    assert 2 <= parts.most <= PARTS_IN_FLIGHT


def test_parts_that_are_large_go_one_after_the_other(fs, bucket, parts):
    with fs.open(f"{bucket}/x", "wb", block_size=25 * MIB) as opened:
        opened.write(bytes(60 * MIB))
    assert fs.info(f"{bucket}/x")["size"] == 60 * MIB
    assert parts.most == 1


@pytest.mark.parametrize("bad", [1, 2, 4])
def test_a_part_that_fails_is_told_and_the_file_is_not_published_without_it(fs, folder, bucket, parts, bad):
    async def fails(number):
        if number == bad:
            raise Corrupted("this part is lost")

    parts.before = fails
    opened = fs.open(f"{bucket}/x", "wb", block_size=5 * MIB)
    with pytest.raises(OSError, match="this part is lost"):
        opened.write(bytes(30 * MIB))
        opened.close()
    with pytest.raises(OSError, match="this part is lost"):
        opened.commit()
    assert not fs.exists(f"{bucket}/x")
    opened.discard()
    assert uploads_of(folder, bucket) == 0


def test_what_is_discarded_while_its_parts_are_on_their_way_leaves_none(fs, folder, bucket, parts):
    async def slowly(number):
        await asyncio.sleep(60)

    parts.before = slowly
    opened = fs.open(f"{bucket}/x", "wb", block_size=5 * MIB)
    opened.write(bytes(11 * MIB))
    opened.discard()
    assert uploads_of(folder, bucket) == 0
    assert not fs.exists(f"{bucket}/x")


def test_writing_takes_memory_for_a_part_and_not_for_the_file(fs, bucket):
    piece = os.urandom(1 << 20)
    tracemalloc.start()
    try:
        with fs.open(f"{bucket}/x", "wb") as opened:
            for _ in range(100):
                opened.write(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fs.info(f"{bucket}/x")["size"] == 100 << 20
    assert peak < 60 << 20, "as much memory as bytes were written"


def test_what_a_failing_block_wrote_is_not_published(fs, folder, bucket):
    fs.pipe_file(f"{bucket}/x", b"before")
    for size in (10, 20 * MIB):
        with pytest.raises(RuntimeError), fs.open(f"{bucket}/x", "wb") as opened:
            opened.write(bytes(size))
            raise RuntimeError("the program fails")
    assert fs.cat_file(f"{bucket}/x") == b"before"
    assert uploads_of(folder, bucket) == 0


def test_an_exclusive_file_loses_to_whoever_was_faster(fs, bucket):
    opened = fs.open(f"{bucket}/x", "xb")
    opened.write(b"slow")
    fs.pipe_file(f"{bucket}/x", b"fast")
    with pytest.raises(FileExistsError):
        opened.close()
    assert fs.cat_file(f"{bucket}/x") == b"fast"


def test_a_file_that_changes_under_its_reader_ends_the_reading(fs, bucket):
    fs.pipe_file(f"{bucket}/x", os.urandom(4 * MIB))
    with fs.open(f"{bucket}/x", block_size=1024) as opened:
        opened.read(10)
        fs.pipe_file(f"{bucket}/x", os.urandom(4 * MIB))
        opened.seek(3 * MIB)
        with pytest.raises(OSError) as stale:
            opened.read(10)
    assert stale.value.errno == errno.ESTALE


@pytest.mark.parametrize("sizes", [(0, 3), (10, 20, 30), (6 * MIB, 5, 6 * MIB, 7), (17 * MIB, 9 * MIB, 1)])
def test_appending_keeps_what_stands_and_adds_to_it(fs, folder, bucket, sizes):
    whole = b""
    for size in sizes:
        before = blocks_of(folder)
        more = os.urandom(size)
        with fs.open(f"{bucket}/x", "ab") as opened:
            assert opened.tell() == len(whole)
            opened.write(more)
        whole += more
        assert fs.cat_file(f"{bucket}/x") == whole
        added = len(blocks_of(folder) - before)
        assert added <= 2 + (size + multipart_writer.LEAST_PART_BYTES) // (8 * MIB), (
            "what stood there was written again"
        )
    with fs.open(f"{bucket}/x", "ab"):
        pass
    assert fs.cat_file(f"{bucket}/x") == whole
    assert uploads_of(folder, bucket) == 0


def test_of_two_who_append_one_is_told(fs, bucket):
    fs.pipe_file(f"{bucket}/x", b"log\n")
    slow = fs.open(f"{bucket}/x", "ab")
    slow.write(b"slow\n")
    with fs.open(f"{bucket}/x", "ab") as fast:
        fast.write(b"fast\n")
    with pytest.raises(OSError) as stale:
        slow.close()
    assert stale.value.errno == errno.ESTALE
    assert fs.cat_file(f"{bucket}/x") == b"log\nfast\n"


def test_appending_keeps_what_is_said_of_the_file(fs, bucket):
    fs.pipe_file(f"{bucket}/x", b"one", content_type="text/plain", metadata={"a": "b"})
    with fs.open(f"{bucket}/x", "ab") as opened:
        opened.write(b"two")
    assert fs.metadata(f"{bucket}/x") == {"a": "b"}
    assert fs.info(f"{bucket}/x")["ContentType"] == "text/plain"


def test_a_file_that_is_read_may_be_pickled(fs, file):
    with fs.open(file) as opened:
        opened.seek(100)
        again = pickle.loads(pickle.dumps(opened))
        assert again.read(50) == DATA[100:150]
    with fs.open(file + "-x", "wb") as opened, pytest.raises(RuntimeError):
        pickle.dumps(opened)


def test_a_file_that_is_dropped_is_closed(fs, bucket):
    opened = fs.open(f"{bucket}/x", "wb")
    opened.write(b"bytes")
    del opened
    gc.collect()
    assert fs.cat_file(f"{bucket}/x") == b"bytes"


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_transaction_shows_all_of_its_files_at_its_end(fs, folder, bucket):
    with fs.transaction:
        for name, size in (("small", 10), ("empty", 0), ("large", 20 * MIB)):
            with fs.open(f"{bucket}/{name}", "wb") as opened:
                opened.write(bytes(size))
        assert fs.find(bucket) == []
    assert fs.du(bucket, total=False) == {
        f"{bucket}/small": 10, f"{bucket}/empty": 0, f"{bucket}/large": 20 * MIB
    }  # fmt: skip
    assert uploads_of(folder, bucket) == 0


def test_a_transaction_that_fails_leaves_nothing(fs, folder, bucket):
    fs.pipe_file(f"{bucket}/kept", b"before")
    with pytest.raises(RuntimeError), fs.transaction:
        for name in ("kept", "new"):
            with fs.open(f"{bucket}/{name}", "wb") as opened:
                opened.write(b"after")
        raise RuntimeError("the program fails")
    assert fs.find(bucket) == [f"{bucket}/kept"]
    assert fs.cat_file(f"{bucket}/kept") == b"before"
    assert uploads_of(folder, bucket) == 0
    with fs.open(f"{bucket}/kept", "wb") as opened:
        opened.write(b"outside again")
    assert fs.cat_file(f"{bucket}/kept") == b"outside again"


@pytest.mark.parametrize("remove", ["rmdir", "rm"])
@pytest.mark.parametrize("again", [False, True])
def test_a_file_whose_bucket_goes_while_it_is_written_is_told_so_and_is_nowhere(fs, bucket, remove, again):
    opened = fs.open(f"{bucket}/x", "wb", block_size=5 * MIB)
    opened.write(bytes(12 * MIB))
    fs.rmdir(bucket) if remove == "rmdir" else fs.rm(bucket, recursive=True)
    if again:
        fs.mkdir(bucket)
    with pytest.raises(FileNotFoundError, match=f"{bucket}/x"):
        opened.close()
    opened.discard()
    assert fs.exists(bucket) == again
    if again:
        assert fs.ls(bucket) == []
        fs.rmdir(bucket)
