"""Directories, buckets, copies, moves and removals, and their costs."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest
from fsspec.asyn import sync

from gateway.engine.types import ObjectMeta
from gateway.journal.records.tree import EntryMoved
from gateway.posix.bodies import BytesBody
from gateway.posix.fsspec.base import in_batches
from gateway.posix.fsspec.filesystem import EntrepotFileSystem
from gateway.site.admin.users import add_user
from gateway.site.site import Site
from tests.posix.journal_view import blocks_of, head_of, records_after


def test_directories_are_made_kept_and_removed(fs, bucket):
    fs.makedirs(f"{bucket}/a/b/c")
    assert fs.isdir(f"{bucket}/a/b")
    with pytest.raises(FileExistsError):
        fs.makedirs(f"{bucket}/a/b/c")
    fs.makedirs(f"{bucket}/a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{bucket}/a")
    with pytest.raises(FileNotFoundError):
        fs.mkdir(f"{bucket}/x/y", create_parents=False)
    with pytest.raises(OSError) as full:
        fs.rmdir(f"{bucket}/a/b")
    assert full.value.errno == errno.ENOTEMPTY
    fs.rmdir(f"{bucket}/a/b/c")
    assert fs.isdir(f"{bucket}/a/b"), "what was made went with what was in it"


def test_a_directory_that_keys_imply_goes_with_them_unless_it_is_made_first(fs, bucket):
    fs.pipe_file(f"{bucket}/implied/x", b"")
    fs.pipe_file(f"{bucket}/made/x", b"")
    fs.makedirs(f"{bucket}/made", exist_ok=True)
    fs.rm([f"{bucket}/implied/x", f"{bucket}/made/x"])
    assert fs.ls(bucket, detail=False) == [f"{bucket}/made"]


def test_a_file_is_in_the_way_of_a_directory(fs, bucket):
    fs.pipe_file(f"{bucket}/f", b"")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{bucket}/f")
    with pytest.raises(OSError):
        fs.makedirs(f"{bucket}/f", exist_ok=True)
    with pytest.raises(OSError):
        fs.makedirs(f"{bucket}/f/below")


def test_buckets_are_made_and_removed_as_directories(fs):
    fs.mkdir("made-here")
    with pytest.raises(FileExistsError):
        fs.mkdir("made-here")
    fs.makedirs("made-here", exist_ok=True)
    fs.makedirs("made-below/a/b")
    fs.pipe_file("made-here/x", b"1")
    with pytest.raises(OSError) as full:
        fs.rmdir("made-here")
    assert full.value.errno == errno.ENOTEMPTY
    fs.rm("made-here", recursive=True)
    fs.rm("made-below", recursive=True)
    assert not fs.exists("made-here")
    assert not fs.exists("made-below")
    with pytest.raises(OSError, match="InvalidBucketName"):
        fs.mkdir("No_Bucket")
    with pytest.raises(FileNotFoundError):
        fs.pipe_file("made-here/x", b"1")
    with pytest.raises(IsADirectoryError):
        fs.pipe_file("made-here", b"1")
    with pytest.raises(PermissionError):
        fs.rm("", recursive=True)


def test_renaming_a_directory_is_one_record_and_moves_no_bytes(fs, folder, bucket):
    data = os.urandom(100_000)
    fs.pipe({f"{bucket}/old/{number}/x": data for number in range(300)})
    fs.mkdir(f"{bucket}/other")
    blocks, head = blocks_of(folder), head_of(folder)
    fs.mv(f"{bucket}/old", f"{bucket}/other/new", recursive=True)
    assert not blocks_of(folder) - blocks, "bytes moved"
    names = [each for each in records_after(folder, head) if type(each).__module__.endswith(".tree")]
    assert len([each for each in names if isinstance(each, EntryMoved)]) == 1
    assert len(names) <= 8, "a rename cost as many records as files lie below it"
    assert len(fs.find(f"{bucket}/other/new")) == 300
    assert not fs.exists(f"{bucket}/old")
    assert fs.cat_file(f"{bucket}/other/new/77/x") == data


@pytest.mark.parametrize("batch_size", [-1, 3])
def test_a_directory_moved_to_another_bucket_is_there_whatever_the_size_of_a_batch(fs, reach, bucket, batch_size):
    own = EntrepotFileSystem(**reach, batch_size=batch_size)
    fs.pipe({f"{bucket}/d/{number}": b"%d" % number for number in range(10)})
    fs.mkdir(f"{bucket}-other")
    own.mv(f"{bucket}/d", f"{bucket}-other/d", recursive=True)
    assert fs.cat(f"{bucket}-other/d", recursive=True) == {f"{bucket}-other/d/{n}": b"%d" % n for n in range(10)}
    assert not fs.exists(f"{bucket}/d")
    assert len(own.find(bucket, maxdepth=3)) == 0
    own.close()


def test_a_batch_has_a_size(reach):
    with pytest.raises(ValueError, match="batch_size"):
        EntrepotFileSystem(**reach, batch_size=-2)


def test_the_first_error_ends_what_else_runs_and_begins_nothing_more():
    seen: list[str] = []

    async def fails() -> None:
        raise OSError("this one")

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    async def never() -> None:
        seen.append("begun")

    with pytest.raises(OSError, match="this one"):
        asyncio.run(in_batches([waits(), fails(), never()], 2))
    assert seen == ["ended"]


def test_copies_move_no_bytes(fs, folder, bucket):
    data = os.urandom(3 << 20)
    fs.pipe({f"{bucket}/from/{number}": data for number in range(20)})
    blocks = blocks_of(folder)
    fs.cp(f"{bucket}/from", f"{bucket}/to", recursive=True)
    fs.cp_file(f"{bucket}/from/3", f"{bucket}/three")
    assert not blocks_of(folder) - blocks, "bytes moved"
    fs.rm(f"{bucket}/from", recursive=True)
    assert fs.cat_file(f"{bucket}/to/7") == data
    assert fs.cat_file(f"{bucket}/three") == data


def test_what_is_moved_goes_where_a_copy_would_go(fs, bucket):
    fs.pipe({f"{bucket}/{name}": name.encode() for name in ("f", "g", "h", "d/x", "e/x")})
    fs.mkdir(f"{bucket}/into")
    fs.mv(f"{bucket}/f", f"{bucket}/into")
    fs.mv(f"{bucket}/g", f"{bucket}/fresh/")
    fs.mv(f"{bucket}/h", f"{bucket}/deep/er/i")
    fs.mv(f"{bucket}/d", f"{bucket}/into", recursive=True)
    fs.mv(f"{bucket}/e/", f"{bucket}/into", recursive=True)
    wanted = {"into/f": b"f", "fresh/g": b"g", "deep/er/i": b"h", "into/d/x": b"d/x", "into/x": b"e/x"}
    assert {path: fs.cat_file(path) for path in fs.find(bucket)} == {
        f"{bucket}/{name}": data for name, data in wanted.items()
    }
    fs.mv([f"{bucket}/into/f", f"{bucket}/fresh/g"], f"{bucket}/into/d")
    fs.mv(f"{bucket}/into/d/*", f"{bucket}/flat")
    assert fs.ls(f"{bucket}/flat", detail=False) == [f"{bucket}/flat/{name}" for name in "fgx"]
    fs.mv([f"{bucket}/flat/f", f"{bucket}/flat/g"], [f"{bucket}/1", f"{bucket}/2"])
    assert fs.cat([f"{bucket}/1", f"{bucket}/2"]) == {f"{bucket}/1": b"f", f"{bucket}/2": b"g"}


def test_what_is_named_longer_than_posix_allows_is_moved_as_s3_has_it(fs, bucket):
    long, longer = f"{bucket}/{'n' * 256}", f"{bucket}/{'m' * 900}"
    fs.pipe({long: b"file", f"{bucket}/d/x": b"in a directory"})
    fs.mv(long, longer)
    fs.mv(longer, f"{bucket}/short")
    fs.mv(f"{bucket}/d", long)
    assert fs.cat(bucket, recursive=True) == {f"{long}/x": b"in a directory", f"{bucket}/short": b"file"}
    fs.mv(long, f"{bucket}/d")
    assert fs.find(bucket) == [f"{bucket}/d/x", f"{bucket}/short"]


def test_a_move_replaces_a_file_and_never_a_directory_with_something_in_it(fs, bucket):
    fs.pipe({f"{bucket}/{name}": name.encode() for name in ("a", "b", "d/x", "into/d/y")})
    fs.mv(f"{bucket}/a", f"{bucket}/b")
    assert fs.cat_file(f"{bucket}/b") == b"a"
    with pytest.raises(OSError) as full:
        fs.mv(f"{bucket}/d", f"{bucket}/into", recursive=True)
    assert full.value.errno == errno.ENOTEMPTY
    assert fs.cat_file(f"{bucket}/d/x") == b"d/x"
    with pytest.raises(OSError):
        fs.mv(f"{bucket}/d", f"{bucket}/d/below", recursive=True)
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{bucket}/none", f"{bucket}/b")
    with pytest.raises(ValueError, match="maxdepth"):
        fs.mv(f"{bucket}/d", f"{bucket}/e", recursive=True, maxdepth=1)


def test_moves_cross_buckets_without_moving_bytes(fs, folder, bucket):
    fs.mkdir(f"{bucket}-2")
    fs.pipe({f"{bucket}/d/{number}": b"%d" % number for number in range(30)})
    fs.makedirs(f"{bucket}/d/empty")
    blocks = blocks_of(folder)
    fs.mv(f"{bucket}/d", f"{bucket}-2/e", recursive=True)
    fs.mv(f"{bucket}-2/e/7", f"{bucket}/seven")
    assert not blocks_of(folder) - blocks, "bytes moved"
    assert fs.find(bucket) == [f"{bucket}/seven"]
    assert fs.cat_file(f"{bucket}/seven") == b"7"
    assert len(fs.find(f"{bucket}-2/e")) == 29
    assert fs.isdir(f"{bucket}-2/e/empty")


@pytest.mark.parametrize("moved", ["d/x", "d"], ids=["a file", "a directory"])
def test_what_is_written_to_the_source_between_the_steps_of_a_move_is_not_lost(fs, bucket, moved, monkeypatch):
    """Whatever a move between buckets consists of: before each step, and behind the last, somebody writes."""
    fs.mkdir(f"{bucket}-2")
    fs.pipe_file(f"{bucket}/d/x", b"first")
    api = sync(fs.loop, fs._connect)
    written: list[bytes] = []

    async def write() -> None:
        data = b"write %d" % len(written)
        await api.put(bucket, b"d/x", BytesBody(data), len(data), ObjectMeta())
        written.append(data)

    for step in ("look", "page", "copy", "move", "remove", "rename"):

        def besieged(bound: Any) -> Any:
            async def call(*arguments: Any, **keywords: Any) -> Any:
                await write()
                return await bound(*arguments, **keywords)

            return call

        monkeypatch.setattr(api, step, besieged(getattr(api, step)))
    fs.mv(f"{bucket}/{moved}", f"{bucket}-2/{moved}", recursive=True)
    assert len(written) >= 2
    monkeypatch.undo()
    left = [fs.cat_file(path) for path in fs.find(bucket) + fs.find(f"{bucket}-2")]
    assert written[-1] in left, f"the last of {written} is gone; there are {left}"


def test_removing_says_what_it_will_not_remove(fs, bucket):
    fs.pipe({f"{bucket}/d/{number}": b"" for number in range(5)})
    with pytest.raises(IsADirectoryError):
        fs.rm(f"{bucket}/d")
    with pytest.raises(IsADirectoryError):
        fs.rm_file(bucket)
    fs.rm(f"{bucket}/d/[01]")
    assert len(fs.find(bucket)) == 3
    fs.rm([f"{bucket}/d/2", f"{bucket}/d/3"])
    assert fs.find(bucket) == [f"{bucket}/d/4"]
    fs.makedirs(f"{bucket}/d/e/f")
    fs.rm(f"{bucket}/d", recursive=True)
    assert fs.ls(bucket) == []
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{bucket}/d", recursive=True)


def test_a_bounded_removal_leaves_what_lies_deeper(fs, bucket):
    fs.pipe({f"{bucket}/d/{name}": b"" for name in ("x", "y", "e/z")})
    fs.rm(f"{bucket}/d", recursive=True, maxdepth=1)
    assert fs.find(bucket) == [f"{bucket}/d/e/z"]


def test_touching_makes_empties_or_renews(fs, bucket):
    fs.touch(f"{bucket}/x")
    assert fs.info(f"{bucket}/x")["size"] == 0
    fs.pipe_file(f"{bucket}/x", b"kept", metadata={"a": "b"})
    before = fs.info(f"{bucket}/x")
    fs.touch(f"{bucket}/x", truncate=False)
    assert fs.cat_file(f"{bucket}/x") == b"kept"
    assert fs.metadata(f"{bucket}/x") == {"a": "b"}
    assert fs.info(f"{bucket}/x")["mtime"] > before["mtime"]
    fs.touch(f"{bucket}/x")
    assert fs.cat_file(f"{bucket}/x") == b""
    fs.touch(f"{bucket}/new", truncate=False)
    assert fs.isfile(f"{bucket}/new")


def test_metadata_is_set_and_taken_away_without_touching_the_bytes(fs, bucket):
    fs.pipe_file(f"{bucket}/x", b"bytes", content_type="text/plain", metadata={"keep": "1", "drop": "2"})
    fs.setxattr(f"{bucket}/x", drop=None, new="3")
    assert fs.metadata(f"{bucket}/x") == {"keep": "1", "new": "3"}
    assert fs.getxattr(f"{bucket}/x", "new") == "3"
    assert fs.getxattr(f"{bucket}/x", "drop") is None
    assert fs.info(f"{bucket}/x")["ContentType"] == "text/plain"
    assert fs.cat_file(f"{bucket}/x") == b"bytes"


def test_a_user_has_what_is_his_and_no_more(fs, reach, folder, bucket):
    async def make() -> tuple[str, str]:
        async with await Site.open(folder, "cli", with_storage=False) as site:
            made = await add_user(site, "carla")
            return made.access_key, made.secret

    key, secret = asyncio.run(make())
    fs.pipe_file(f"{bucket}/x", b"root's")
    served = "endpoint" in reach
    carla = EntrepotFileSystem(**(reach | {"key": key, "secret": secret} if served else reach | {"user": "carla"}))
    assert bucket not in carla.ls("", detail=False)
    for ask in (carla.cat_file, carla.info, carla.rm):
        with pytest.raises(PermissionError):
            ask(f"{bucket}/x")
    carla.mkdir("carlas")
    carla.pipe_file("carlas/x", b"hers")
    assert EntrepotFileSystem(site=folder, access_key=key).cat_file("carlas/x") == b"hers"
    assert fs.cat_file("carlas/x") == b"hers"
    with pytest.raises(PermissionError, match="nobody"):
        EntrepotFileSystem(site=folder, user="nobody").ls("")
    stranger = reach | {"key": "AKNONE", "secret": secret} if served else reach | {"access_key": "AKNONE"}
    with pytest.raises(PermissionError):
        EntrepotFileSystem(**stranger).ls("")
    carla.rm("carlas", recursive=True)


def test_a_tree_is_copied_to_a_bucket_that_is_made_for_it_and_a_file_is_not(fs, bucket):
    """What could not be copied must not look as if there was nothing to copy."""
    fs.pipe({f"{bucket}/d/x": b"1", f"{bucket}/d/e/y": b"2"})
    fs.cp(f"{bucket}/d", f"{bucket}-a/d", recursive=True)
    assert fs.cat(f"{bucket}-a", recursive=True) == {f"{bucket}-a/d/x": b"1", f"{bucket}-a/d/e/y": b"2"}
    fs.cp(bucket, f"{bucket}-b", recursive=True)
    assert fs.find(f"{bucket}-b") == [f"{bucket}-b/d/e/y", f"{bucket}-b/d/x"]
    with pytest.raises(FileNotFoundError, match=f"{bucket}-c"):
        fs.cp(f"{bucket}/d/x", f"{bucket}-c/x")
    with pytest.raises(FileNotFoundError, match=f"{bucket}-none"):
        fs.cp(f"{bucket}-none/x", f"{bucket}/x")
    with pytest.raises(OSError, match="InvalidBucketName"):
        fs.cp(f"{bucket}/d", "No_Bucket", recursive=True)


def test_what_is_not_there_is_not_moved_to_where_it_is(fs, bucket):
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{bucket}/none", f"{bucket}/none")
    fs.pipe_file(f"{bucket}/x", b"1")
    fs.mv(f"{bucket}/x", f"{bucket}/x")
    assert fs.cat_file(f"{bucket}/x") == b"1"


def test_a_bounded_removal_counts_a_pattern_as_a_level(fs, bucket):
    fs.pipe({f"{bucket}/{name}": b"" for name in ("a1/x", "a1/e/y", "a2", "b")})
    fs.rm(f"{bucket}/a*", recursive=True, maxdepth=1)
    assert fs.find(bucket) == [f"{bucket}/a1/e/y", f"{bucket}/a1/x", f"{bucket}/b"]
    fs.rm(f"{bucket}/a*", recursive=True, maxdepth=2)
    assert fs.find(bucket) == [f"{bucket}/a1/e/y", f"{bucket}/b"]
