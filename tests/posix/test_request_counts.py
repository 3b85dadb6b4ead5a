"""How many requests a file system sends to its gateway."""

from __future__ import annotations

import asyncio

import pytest
from fsspec.asyn import sync

from gateway.errors import NoSuchName
from gateway.posix.fsspec.filesystem import EntrepotFileSystem
from tests.posix.conftest import OVER_HTTP

MANY = 300
pytestmark = pytest.mark.parametrize("way", [OVER_HTTP], indirect=True)


class Trips:
    """Counts what a file system posts."""

    def __init__(self, fs: EntrepotFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
        transport = sync(fs.loop, fs._connect)._transport
        post, self._count = transport.post, 0

        async def counted(*arguments, **options):
            self._count += 1
            return await post(*arguments, **options)

        monkeypatch.setattr(transport, "post", counted)

    def of(self, ask) -> int:
        """How many *ask* makes."""
        before = self._count
        ask()
        return self._count - before


@pytest.fixture
def trips(fs, monkeypatch) -> Trips:
    return Trips(fs, monkeypatch)


@pytest.fixture
def many(fs, bucket) -> list[str]:
    paths = [f"{bucket}/d/{number:03}" for number in range(MANY)]
    fs.pipe(dict.fromkeys(paths, b"x"))
    return paths


def test_what_is_asked_of_many_files_at_once_shares_its_trips(fs, trips, bucket, many):
    few = MANY // 3
    assert trips.of(lambda: fs.sizes(many)) < few
    assert trips.of(lambda: fs.cp(f"{bucket}/d", f"{bucket}/e", recursive=True)) < few
    assert len(fs.find(f"{bucket}/e")) == MANY
    fs.mkdir(f"{bucket}-2")
    assert trips.of(lambda: fs.mv(f"{bucket}/d", f"{bucket}-2/d", recursive=True)) < few
    assert fs.find(f"{bucket}-2") == [path.replace(bucket, f"{bucket}-2") for path in many]


def test_what_a_tree_holds_is_listed_and_not_asked_file_by_file(fs, trips, bucket, many):
    assert trips.of(lambda: fs.find(bucket, detail=True)) == 1
    assert trips.of(lambda: fs.du(bucket)) == 1
    assert trips.of(lambda: fs.glob(f"{bucket}/d/*7")) == 1
    assert trips.of(lambda: fs.cat(bucket, recursive=True)) == 1 + MANY
    assert trips.of(lambda: fs.rm(f"{bucket}/d", recursive=True, maxdepth=1)) == 2
    assert fs.find(bucket) == []


def test_a_directory_and_all_above_it_are_made_in_three_trips_and_beside_others_in_one(fs, trips, bucket):
    assert trips.of(lambda: fs.makedirs(f"{bucket}/a/b/c/d/e/f/g")) == 3
    assert trips.of(lambda: fs.mkdir(f"{bucket}/a/b/c/x")) == 1
    assert trips.of(lambda: fs.makedirs(f"{bucket}-new/a/b")) <= 4
    assert fs.isdir(f"{bucket}-new/a/b")


def test_one_who_is_alone_asks_at_once_and_each_is_told_what_is_his(fs, trips, bucket, many):
    assert trips.of(lambda: fs.info(many[0])) == 1

    async def all_of_them():
        api = await fs._connect()
        keys = [path.partition("/")[2].encode() for path in many]
        asked = [api.look(bucket, key) for key in (*keys, b"none", b"\xff", b"d")]
        return await asyncio.gather(*asked, return_exceptions=True)

    *found, none, odd, directory = sync(fs.loop, all_of_them)
    assert [f"{bucket}/{each.key.decode()}" for each in found] == many
    assert isinstance(none, NoSuchName)
    assert isinstance(odd, NoSuchName)
    assert not directory.made
