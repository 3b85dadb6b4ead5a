"""Content without open files: values, ranges, trees, local files."""

from __future__ import annotations

import io
import os
import random
import threading

import numpy
import pytest
from fsspec.callbacks import Callback
from hypothesis import given
from hypothesis import strategies as st

from gateway.posix.bodies import as_bytes_view

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
    starts, ends = zip(*ranges, strict=True)
    found = shared.cat_ranges([file] * len(ranges), list(starts), list(ends), max_gap=gap)
    assert found == [DATA[start:end] for start, end in ranges]


def test_offsets_are_whole_numbers_of_any_kind_in_any_row(fs, file):
    first, last = numpy.int64(5), numpy.uint8(9)
    assert fs.cat_file(file, start=first, end=last) == DATA[5:9]
    assert fs.cat_file(file, start=numpy.int32(-7)) == DATA[-7:]
    for gap in (None, 10):
        rows = numpy.array([0, 5, 9]), numpy.array([3, 7, 20])
        assert fs.cat_ranges((file,) * 3, *rows, max_gap=gap) == [DATA[0:3], DATA[5:7], DATA[9:20]]
        assert fs.cat_ranges([file] * 2, range(2), last, max_gap=gap) == [DATA[:9], DATA[1:9]]
        with pytest.raises(ValueError, match=r"zip|^$"):
            fs.cat_ranges([file], [0, 1], [2], max_gap=gap)
    with pytest.raises(TypeError):
        fs.cat_file(file, start=1.0)


@pytest.mark.parametrize("far", [1 << 63, 1 << 70])
def test_offsets_that_no_file_reaches_are_as_those_of_a_slice(fs, file, far):
    for start, end in ((far, None), (0, far), (-far, None), (None, -far), (-far, 5)):
        assert fs.cat_file(file, start=start, end=end) == DATA[start:end]


def test_a_range_of_what_is_not_there_is_an_error_in_its_place(fs, file):
    for gap in (None, 10):
        missing, there = fs.cat_ranges(["bytes/none", f"entrepot://{file}"], [0, 5], [10, 10], max_gap=gap)
        assert isinstance(missing, FileNotFoundError)
        assert there == DATA[5:10]
        with pytest.raises(FileNotFoundError):
            fs.cat_ranges(["bytes/none", file], 0, 10, max_gap=gap, on_error="raise")
    with pytest.raises(FileNotFoundError):
        fs.cat_file("bytes/none", start=5, end=5)


@pytest.mark.parametrize("value", [b"", b"x", bytearray(b"xy"), memoryview(b"abcdef")[::2], numpy.zeros((0, 3))])
def test_anything_that_is_bytes_is_stored(fs, bucket, value):
    fs.pipe_file(f"{bucket}/x", value)
    assert fs.cat_file(f"{bucket}/x") == bytes(value)
    assert bytes(as_bytes_view(value)) == bytes(value)


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
    monkeypatch.setattr("gateway.posix.fsspec.data_ops.SINGLE_BYTES", 12 * MIB)
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
