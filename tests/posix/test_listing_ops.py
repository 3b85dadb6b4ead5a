"""Infos, listings, trees, globs, and the cache of listings."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta

import pytest

from gateway.posix.fsspec.filesystem import EntrepotFileSystem

NAMES = ("a/1.txt", "a/2.csv", "a/b/3.txt", "a/b/c/4.txt", "top.txt")


@pytest.fixture
def tree(fs, bucket) -> str:
    fs.pipe({f"{bucket}/{name}": name.encode() for name in NAMES})
    return bucket


def test_a_file_tells_its_size_its_times_and_its_etag(fs, bucket):
    fs.pipe_file(f"{bucket}/x", b"12345", content_type="text/plain", metadata={"Run": "7"})
    info = fs.info(f"{bucket}/x")
    assert (info["name"], info["size"], info["type"]) == (f"{bucket}/x", 5, "file")
    assert info["ETag"] == "827ccb0eea8a706c4c34a16891f84e7b"
    assert info["ContentType"] == "text/plain"
    assert info["metadata"] == {"run": "7"}
    assert abs(fs.modified(f"{bucket}/x") - datetime.now(UTC)) < timedelta(minutes=5)
    assert fs.created(f"{bucket}/x") == fs.modified(f"{bucket}/x")
    assert fs.modified(f"{bucket}/x").timestamp() == pytest.approx(info["mtime"], abs=1e-5)


def test_directories_and_buckets_have_no_bytes(fs, tree):
    for path in (f"{tree}/a", tree, ""):
        assert (fs.info(path)["type"], fs.info(path)["size"]) == ("directory", 0)
        assert fs.isdir(path)
        assert not fs.isfile(path)
    assert fs.created(tree).tzinfo is UTC


def test_a_path_is_the_same_with_and_without_protocol_and_slashes(fs, tree):
    spellings = (f"{tree}/top.txt", f"/{tree}/top.txt", f"entrepot://{tree}/top.txt", f"entrepot:///{tree}/top.txt")
    assert {fs.info(path)["name"] for path in spellings} == {f"{tree}/top.txt"}
    assert fs.unstrip_protocol(f"{tree}/top.txt") == f"entrepot://{tree}/top.txt"


@pytest.mark.parametrize("path", ["{}/none", "{}/top.txt/below", "{}/a/none/x", "no-such-bucket", "no-such-bucket/x"])
def test_what_is_not_there_is_not_found(fs, tree, path):
    path = path.format(tree)
    assert not fs.exists(path)
    assert fs.find(path) == []
    for ask in (fs.info, fs.ls, fs.cat_file, fs.rm, fs.rm_file, fs.modified):
        with pytest.raises(FileNotFoundError):
            ask(path)


@pytest.mark.parametrize("length", [1025, 5000])
def test_what_is_longer_than_a_name_can_be_is_not_there(fs, bucket, length):
    path = f"{bucket}/{'k' * length}"
    assert not fs.exists(path)
    for ask in (fs.info, fs.touch, fs.cat_file):
        with pytest.raises(OSError) as long:
            ask(path)
        assert long.value.errno == errno.ENAMETOOLONG


HALVES = ["\ud800", "a\ud83d/\ude00"]
"""Halves of pairs of surrogates, which neither UTF-8 has nor Python's file names."""


@pytest.mark.parametrize("half", HALVES)
def test_what_no_text_can_be_named_is_not_there_and_refused(fs, bucket, half):
    fs.pipe_file(f"{bucket}/x", b"bytes")
    path = f"{bucket}/{half}"
    assert not fs.exists(path)
    assert not fs.isdir(path)
    for ask in (
        fs.info, fs.touch, fs.cat_file, fs.ls, fs.mkdir, fs.rm, fs.open, fs.modified, fs.rmdir,
        lambda path: fs.pipe_file(path, b""), lambda path: fs.mv(f"{bucket}/x", path),
        lambda path: fs.cp_file(f"{bucket}/x", path), lambda path: fs.info(half + path),
    ):  # fmt: skip
        with pytest.raises(OSError) as impossible:
            ask(path)
        assert impossible.value.errno == errno.EILSEQ
        assert half in impossible.value.filename
    for say in ({"metadata": {"a": half}}, {"content_type": half}):
        with pytest.raises(OSError) as impossible:
            fs.pipe_file(f"{bucket}/y", b"", **say)
        assert impossible.value.errno == errno.EINVAL
    assert fs.find(bucket) == [f"{bucket}/x"]


@pytest.mark.parametrize("impossible", [*HALVES, "y" * 5000])
def test_of_what_cannot_be_nothing_is_found(fs, bucket, impossible):
    fs.pipe_file(f"{bucket}/x", b"")
    for path in (f"{bucket}/{impossible}", impossible + bucket):
        assert fs.find(path) == fs.glob(path) == fs.glob(f"{path}*") == fs.glob(f"{path}/**") == []
        assert fs.find(path, detail=True) == {}
        assert fs.du(path) == 0
    assert fs.glob(f"{bucket}/[x{'y' * 5000}]") == [f"{bucket}/x"], "a long pattern is no long name"


def test_a_name_that_is_empty_does_not_make_a_directory_hold_itself(fs, bucket):
    fs.pipe({f"{bucket}/a//b": b"1", f"{bucket}//lead": b"2"})
    assert fs.ls(bucket, detail=False) == [f"{bucket}/a"]
    assert fs.ls(f"{bucket}/a") == []
    assert fs.find(bucket) == [f"{bucket}//lead", f"{bucket}/a//b"]
    assert fs.find(bucket, withdirs=True) == [bucket, f"{bucket}//lead", f"{bucket}/a", f"{bucket}/a//b"]
    assert fs.find(bucket, withdirs=True, maxdepth=5) == [bucket, f"{bucket}/a"]
    assert list(fs.walk(bucket)) == [(bucket, ["a"], []), (f"{bucket}/a", [], [])]


def test_as_much_metadata_as_s3_takes_is_told(fs, bucket):
    said = {f"{number:x}": "" for number in range(600)}
    fs.pipe_file(f"{bucket}/x", b"", metadata=said)
    assert fs.metadata(f"{bucket}/x") == said


def test_a_directory_lists_what_stands_in_it(fs, tree):
    assert fs.ls(f"{tree}/a", detail=False) == [f"{tree}/a/1.txt", f"{tree}/a/2.csv", f"{tree}/a/b"]
    found = {each["name"]: (each["type"], each["size"]) for each in fs.ls(f"{tree}/a")}
    assert found[f"{tree}/a/b"] == ("directory", 0)
    assert found[f"{tree}/a/1.txt"] == ("file", len("a/1.txt"))
    assert fs.ls(f"{tree}/top.txt", detail=False) == [f"{tree}/top.txt"]
    assert tree in fs.ls("", detail=False)


def test_an_empty_directory_lists_nothing_and_is_there(fs, bucket):
    fs.mkdir(f"{bucket}/empty")
    assert fs.ls(f"{bucket}/empty") == []
    assert fs.ls(bucket, detail=False) == [f"{bucket}/empty"]


def test_a_tree_is_found_whole_or_down_to_a_depth(fs, tree):
    assert fs.find(tree) == [f"{tree}/{name}" for name in sorted(NAMES)]
    directories = [f"{tree}/{name}" for name in ("a", "a/b", "a/b/c")]
    assert fs.find(tree, withdirs=True) == sorted([tree, *directories, *fs.find(tree)])
    assert fs.find(tree, maxdepth=2) == [f"{tree}/a/1.txt", f"{tree}/a/2.csv", f"{tree}/top.txt"]
    assert fs.find(f"{tree}/a", maxdepth=1, withdirs=True) == [
        f"{tree}/{name}" for name in ("a", "a/1.txt", "a/2.csv", "a/b")
    ]
    assert fs.find(f"{tree}/top.txt") == [f"{tree}/top.txt"]
    infos = fs.find(tree, detail=True)
    assert {name: each["size"] for name, each in infos.items()} == {f"{tree}/{each}": len(each) for each in NAMES}
    assert set(fs.find(tree)) < set(fs.find(""))


def test_what_find_says_of_a_file_is_what_info_says(fs, tree):
    for info in fs.find(tree, detail=True, withdirs=True).values():
        own = fs.info(info["name"])
        assert {name: own[name] for name in info} == info


def test_walking_and_globbing_agree_with_finding(fs, tree):
    walked = [f"{folder}/{name}" for folder, _, files in fs.walk(tree) for name in files]
    assert sorted(walked) == fs.find(tree)
    assert fs.glob(f"{tree}/a/*.txt") == [f"{tree}/a/1.txt"]
    assert fs.glob(f"{tree}/**/*.txt") == [each for each in fs.find(tree) if each.endswith(".txt")]
    assert fs.glob(f"{tree}/a/*") == [f"{tree}/a/1.txt", f"{tree}/a/2.csv", f"{tree}/a/b"]
    assert fs.glob(f"{tree[:-1]}[{tree[-1]}]/top*") == [f"{tree}/top.txt"]
    assert fs.glob(f"{tree}/no*") == []


def test_disk_usage_is_the_sum_of_sizes(fs, tree):
    assert fs.du(tree) == sum(map(len, NAMES))
    assert fs.du(f"{tree}/a/b", total=False) == {f"{tree}/a/b/3.txt": 9, f"{tree}/a/b/c/4.txt": 11}
    assert fs.sizes([f"{tree}/top.txt", f"{tree}/a/1.txt"]) == [7, 7]


def test_more_than_a_page_is_listed(fs, bucket):
    names = [f"{bucket}/many/{number:04}" for number in range(1100)]
    fs.pipe(dict.fromkeys(names, b""))
    assert fs.ls(f"{bucket}/many", detail=False) == names
    assert fs.find(bucket) == names
    fs.rm(f"{bucket}/many", recursive=True)
    assert fs.find(bucket) == []


def test_odd_keys_are_named_as_s3_has_them(fs, bucket):
    odd = ["a//b", "a/./b", "a/../b", "/lead", "a b+c%20", "héllo/日本", "a\udcff", "*?", "a" * 300]
    for name in odd:
        fs.pipe_file(f"{bucket}/{name}", name.encode("utf-8", "surrogateescape"))
    assert set(fs.find(bucket)) == {f"{bucket}/{name}" for name in odd}
    for name in odd:
        assert fs.cat_file(f"{bucket}/{name}") == name.encode("utf-8", "surrogateescape")
        assert fs.info(f"{bucket}/{name}")["type"] == "file"
    assert fs.isdir(f"{bucket}/a/")
    fs.mv_file(f"{bucket}/a//b", f"{bucket}/a//c")
    assert fs.cat_file(f"{bucket}/a//c") == b"a//b"
    with pytest.raises(OSError, match="empty name"):
        fs.mkdir(f"{bucket}/x//y")


def test_an_object_beside_a_directory_of_its_name_is_the_file(fs, bucket):
    fs.pipe({f"{bucket}/a": b"file", f"{bucket}/a/b": b"below"})
    assert fs.info(f"{bucket}/a")["type"] == "file"
    assert fs.cat_file(f"{bucket}/a") == b"file"
    assert fs.ls(f"{bucket}/a", detail=False) == [f"{bucket}/a/b"]
    fs.mv_file(f"{bucket}/a", f"{bucket}/moved")
    assert fs.find(bucket) == [f"{bucket}/a/b", f"{bucket}/moved"]
    assert fs.cat_file(f"{bucket}/moved") == b"file"


def test_a_checksum_changes_with_the_content_only(fs, bucket):
    fs.pipe({f"{bucket}/x": b"one", f"{bucket}/y": b"one", f"{bucket}/z": b"two"})
    assert fs.checksum(f"{bucket}/x") == fs.checksum(f"{bucket}/y") != fs.checksum(f"{bucket}/z")
    before = fs.ukey(f"{bucket}/x")
    assert before == fs.ukey(f"{bucket}/x")
    fs.pipe_file(f"{bucket}/x", b"two")
    assert fs.ukey(f"{bucket}/x") != before


def test_listings_are_kept_only_where_that_was_asked_for_and_forgotten_with_each_change(fs, reach, bucket):
    cached = EntrepotFileSystem(**reach, use_listings_cache=True)
    fs.pipe_file(f"{bucket}/d/x", b"1")
    assert cached.ls(f"{bucket}/d", detail=False) == [f"{bucket}/d/x"]
    fs.pipe_file(f"{bucket}/d/y", b"22")
    assert len(cached.ls(f"{bucket}/d")) == 1, "a listing was not kept"
    assert len(fs.ls(f"{bucket}/d")) == 2
    assert len(cached.ls(f"{bucket}/d", refresh=True)) == 2
    fs.pipe_file(f"{bucket}/d/x", b"333")
    assert cached.info(f"{bucket}/d/x")["size"] == 1
    with cached.open(f"{bucket}/d/x") as opened:
        assert opened.read() == b"333", "what others wrote is read, whatever is kept of listings"
    for change in (
        lambda: cached.pipe_file(f"{bucket}/d/z", b""),
        lambda: cached.mv(f"{bucket}/d/z", f"{bucket}/d/w"),
        lambda: cached.cp_file(f"{bucket}/d/w", f"{bucket}/d/v"),
        lambda: cached.rm(f"{bucket}/d/v"),
        lambda: cached.mkdir(f"{bucket}/d/e"),
        lambda: cached.rmdir(f"{bucket}/d/e"),
        lambda: cached.rm(f"{bucket}/d", recursive=True),
    ):
        change()
        assert cached.find(bucket) == fs.find(bucket)
        assert cached.ls(bucket) == fs.ls(bucket)
        if fs.exists(f"{bucket}/d"):
            assert cached.ls(f"{bucket}/d") == fs.ls(f"{bucket}/d")
    cached.close()
