"""The file system by its protocol name, and below fsspec's own layers: mappers and caches."""

from __future__ import annotations

import pickle

import fsspec
import pytest


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
