"""Bytes in and out: values, ranges, local files, open files, appending, transactions."""

from __future__ import annotations

import asyncio
import errno
import gc
import io
import os
import pickle
import random
import threading
import tracemalloc
from types import SimpleNamespace

import fsspec
import pytest
from fsspec.asyn import sync
from fsspec.callbacks import Callback
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Damaged
from gateway.posix import writing
from gateway.posix.bodies import flat
from gateway.posix.writing import PARTS_IN_FLIGHT
from tests.posix.looking_in import blocks_of, uploads_of

MIB = 1 << 20
DATA = random.Random(1).randbytes(300_000)
ENDS = st.none() | st.integers(-400_000, 400_000)


@pytest.fixture(scope="module")
def file(shared) -> str:
    shared.mkdir("bytes")
    shared.pipe_file("bytes/data", DATA)
    return "bytes/data"


@given(start=ENDS, end=ENDS)
def test_a_range_is_what_a_slice_is(shared, file, start, end):
    assert shared.cat_file(file, start=start, end=end) == DATA[start:end]


@given(
    ranges=st.lists(st.tuples(st.integers(0, 310_000), st.none() | st.integers(0, 310_000)), min_size=1, max_size=8),
    gap=st.none() | st.integers(0, 50_000),
)
def test_many_ranges_are_each_what_a_slice_is_read_together_or_not(shared, file, ranges, gap):
    ranges = [(start, end) for start, end in ranges if end is None or end >= start] or [(0, 1)]
    starts, ends = zip(*ranges, strict=True)
    found = shared.cat_ranges([file] * len(ranges), list(starts), list(ends), max_gap=gap)
    assert found == [DATA[start:end] for start, end in ranges]


def test_a_range_of_what_is_not_there_is_an_error_in_its_place(fs, file):
    for gap in (None, 10):
        missing, there = fs.cat_ranges(["bytes/none", f"entrepot://{file}"], [0, 5], [10, 10], max_gap=gap)
        assert isinstance(missing, FileNotFoundError)
        assert there == DATA[5:10]
        with pytest.raises(FileNotFoundError):
            fs.cat_ranges(["bytes/none", file], 0, 10, max_gap=gap, on_error="raise")
    with pytest.raises(FileNotFoundError):
        fs.cat_file("bytes/none", start=5, end=5)


@pytest.mark.parametrize("value", [b"", b"x", bytearray(b"xy"), memoryview(b"abcdef")[::2], memoryview(b"12")])
def test_anything_that_is_bytes_is_stored(fs, bucket, value):
    fs.pipe_file(f"{bucket}/x", value)
    assert fs.cat_file(f"{bucket}/x") == bytes(value)
    assert bytes(flat(value)) == bytes(value)


def test_a_tree_is_read_and_written_at_once(fs, bucket):
    fs.pipe({f"{bucket}/d/{number}": b"%d" % number for number in range(200)})
    fs.pipe_file(f"{bucket}/d/e/f", b"deep")
    found = fs.cat(f"{bucket}/d", recursive=True)
    assert found[f"{bucket}/d/e/f"] == b"deep"
    assert len(found) == 201
    assert fs.cat([f"{bucket}/d/1", f"{bucket}/none"], on_error="omit") == {f"{bucket}/d/1": b"1"}
    assert fs.head(f"{bucket}/d/12", 1) == b"1"
    assert fs.tail(f"{bucket}/d/12", 1) == b"2"


def test_a_tree_is_read_by_its_root_a_file_a_pattern_or_none_of_them(fs, bucket):
    fs.pipe({f"{bucket}/d/{name}": name.encode() for name in ("x", "[x]", "e/*")})
    fs.mkdir(f"{bucket}/empty")
    everything = {f"{bucket}/d/{name}": name.encode() for name in ("[x]", "e/*", "x")}
    assert fs.cat(f"{bucket}/d", recursive=True) == everything
    assert fs.cat([f"{bucket}/d"], recursive=True) == everything
    assert fs.cat(f"{bucket}/?", recursive=True) == everything
    assert fs.cat(f"{bucket}/d/x", recursive=True) == b"x"
    assert fs.cat([f"{bucket}/d/x"], recursive=True) == {f"{bucket}/d/x": b"x"}
    assert fs.cat(f"{bucket}/empty", recursive=True) == {}
    with pytest.raises(FileNotFoundError):
        fs.cat(f"{bucket}/none", recursive=True)


def test_a_local_file_that_tells_no_size_is_stored_whole(fs, bucket):
    fs.put_file("/proc/self/status", f"{bucket}/x")
    assert b"Name:" in fs.cat_file(f"{bucket}/x")
    fs.put_file("/dev/null", f"{bucket}/x")
    assert fs.cat_file(f"{bucket}/x") == b""


def test_a_file_that_stands_is_created_once(fs, bucket):
    with pytest.raises(ValueError, match="create"):
        fs.pipe_file(f"{bucket}/x", b"", mode="append")
    outcomes: list[str] = []

    def create() -> None:
        try:
            fs.pipe_file(f"{bucket}/x", b"mine", mode="create")
            outcomes.append("made")
        except FileExistsError:
            outcomes.append("there")

    threads = [threading.Thread(target=create) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(outcomes) == ["made"] + ["there"] * 7


def test_local_files_go_and_come_a_piece_at_a_time(fs, bucket, tmp_path):
    data = os.urandom(20 * MIB)
    (tmp_path / "in").write_bytes(data)
    told: list[int] = []
    callback = Callback(hooks={"told": lambda size, value, **_: told.append(value)})
    fs.put_file(str(tmp_path / "in"), f"{bucket}/x", callback=callback)
    assert (callback.size, callback.value) == (len(data), len(data))
    assert len(told) > 10
    with pytest.raises(FileExistsError):
        fs.put_file(str(tmp_path / "in"), f"{bucket}/x", mode="create")
    callback = Callback()
    fs.get_file(f"{bucket}/x", str(tmp_path / "out"), callback=callback)
    assert (callback.size, callback.value) == (len(data), len(data))
    assert (tmp_path / "out").read_bytes() == data
    beside = io.BytesIO()
    fs.get_file(f"{bucket}/x", beside)
    assert beside.getvalue() == data
    assert {each.name for each in tmp_path.iterdir()} == {"in", "out"}


def test_large_local_files_go_in_parts_and_a_pipe_until_it_ends(fs, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.posix.moving_bytes.SINGLE_BYTES", 12 * MIB)
    data = os.urandom(20 * MIB)
    (tmp_path / "in").write_bytes(data)
    fs.put_file(str(tmp_path / "in"), f"{bucket}/x")
    assert fs.info(f"{bucket}/x")["ETag"].endswith("-4")
    assert fs.cat_file(f"{bucket}/x") == data
    os.mkfifo(tmp_path / "pipe")
    feeder = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(data))
    feeder.start()
    fs.put_file(str(tmp_path / "pipe"), f"{bucket}/y")
    feeder.join()
    assert fs.cat_file(f"{bucket}/y") == data


def test_a_failed_download_leaves_what_was_there(fs, bucket, tmp_path, monkeypatch):
    (tmp_path / "out").write_bytes(b"before")
    fs.pipe_file(f"{bucket}/x", bytes(2 * MIB))

    def broken(count: int) -> None:
        raise RuntimeError("the disk is gone")

    callback = Callback()
    monkeypatch.setattr(callback, "relative_update", broken)
    with pytest.raises(RuntimeError):
        fs.get_file(f"{bucket}/x", str(tmp_path / "out"), callback=callback)
    assert (tmp_path / "out").read_bytes() == b"before"
    with pytest.raises(FileNotFoundError):
        fs.get_file(f"{bucket}/none", str(tmp_path / "none"))
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


# --- open files -------------------------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match="opened as"):
        fs.open(f"{bucket}/x", "r+b")


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
    verbs = sync(fs.loop, fs._connect)
    put_part, running = verbs.put_part, 0
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

    monkeypatch.setattr(verbs, "put_part", watched)
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
            raise Damaged("this part is lost")

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
        assert added <= 2 + (size + writing.LEAST_PART_BYTES) // (8 * MIB), "what stood there was written again"
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


# --- by its protocol --------------------------------------------------------------------------------------------------


def test_the_protocol_is_found_by_its_entry_point(fs, way, bucket, monkeypatch):
    with fsspec.open(f"entrepot://{bucket}/x", "wb", **way.options) as opened:
        opened.write(b"by url")
    for name, value in way.variables.items():
        monkeypatch.setenv(name, value)
    with fsspec.open(f"entrepot://{bucket}/x") as opened:
        assert opened.read() == b"by url"
    again, path = fsspec.url_to_fs(f"entrepot://{bucket}/x", **way.options)
    assert again is fs
    assert path == f"{bucket}/x"
    for name in way.variables:
        monkeypatch.delenv(name)
    with pytest.raises(ValueError, match="ENTREPOT_SITE"):
        fsspec.filesystem("entrepot").ls("")


def test_a_folder_that_is_no_site_is_said_to_be_none(tmp_path):
    for _ in range(2):
        with pytest.raises(OSError, match=r"entrepot\.toml"):
            fsspec.filesystem("entrepot", site=tmp_path).ls("")


def test_it_is_pickled_told_as_json_and_made_once(fs, reach):
    assert pickle.loads(pickle.dumps(fs)) is fs
    assert type(fs)(**reach) is fs
    assert fsspec.AbstractFileSystem.from_json(fs.to_json()) is fs
    assert type(fs)(**reach, batch_size=3) is not fs
    assert str(reach.get("site", reach.get("endpoint"))) in fs.fsid


def test_a_closed_file_system_opens_anew(reach, bucket):
    own = fsspec.filesystem("entrepot", **reach, skip_instance_cache=True)
    own.pipe_file(f"{bucket}/x", b"1")
    own.close()
    own.close()
    assert own.cat_file(f"{bucket}/x") == b"1"
    own.close()


def test_a_mapper_is_a_dict_of_files(fs, bucket):
    mapper = fs.get_mapper(f"{bucket}/map")
    mapper["a/b"] = b"1"
    mapper.setitems({"c": b"2", "d": b"3"})
    assert sorted(mapper) == ["a/b", "c", "d"]
    assert mapper.getitems(["a/b", "none"], on_error="omit") == {"a/b": b"1"}
    assert "none" not in mapper
    with pytest.raises(KeyError):
        mapper["none"]
    mapper.delitems(["c", "d"])
    assert list(mapper) == ["a/b"]


@pytest.mark.parametrize("cache", ["simplecache", "filecache"])
def test_fsspecs_own_caches_go_in_front(fs, reach, bucket, tmp_path, cache):
    fs.pipe_file(f"{bucket}/x", b"one")
    options = {"entrepot": reach, cache: {"cache_storage": str(tmp_path / cache), "check_files": True}}
    if cache == "simplecache":
        options[cache].pop("check_files")
    for value in (b"one", b"two") if cache == "filecache" else (b"one",):
        fs.pipe_file(f"{bucket}/x", value)
        with fsspec.open(f"{cache}::entrepot://{bucket}/x", "rb", **options) as opened:
            assert opened.read() == value
    assert any((tmp_path / cache).iterdir())


def test_appending_keeps_what_is_said_of_the_file(fs, bucket):
    fs.pipe_file(f"{bucket}/x", b"one", content_type="text/plain", metadata={"a": "b"})
    with fs.open(f"{bucket}/x", "ab") as opened:
        opened.write(b"two")
    assert fs.metadata(f"{bucket}/x") == {"a": "b"}
    assert fs.info(f"{bucket}/x")["ContentType"] == "text/plain"


def test_a_pipe_is_stored_to_its_end_and_holds_up_nobody_while_it_has_nothing(fs, bucket, tmp_path):
    pipe, data = tmp_path / "pipe", os.urandom(9 * MIB)
    os.mkfifo(pipe)
    storing = threading.Thread(target=fs.put_file, args=(str(pipe), f"{bucket}/piped"), daemon=True)
    storing.start()
    fs.pipe_file(f"{bucket}/meanwhile", b"nobody has opened the pipe")
    with open(pipe, "wb") as end:
        end.write(data[:MIB])
        end.flush()
        fs.pipe_file(f"{bucket}/meanwhile", b"it has come in part")
        end.write(data[MIB:])
    storing.join(60)
    assert fs.cat_file(f"{bucket}/piped") == data
