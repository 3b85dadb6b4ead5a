"""What the local driver promises beyond the contract: clear words, several processes, bounded descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest

from backends import base, errors
from backends.base import Marker
from backends.local import backend as local
from backends.local import file_pool, listing
from backends.local.backend import Local
from tests.backends.contract import OTHER_SITE, SITE, key, listed, put
from tests.backends.opening import opened

# ---- opening ----------------------------------------------------------------------------------------------------


async def test_what_was_put_is_there_after_reopening(folder: Path) -> None:
    sizes = [0, 4_096, 300_000]
    async with opened(folder) as backend:
        for size in sizes:
            await put(backend, key(size), bytes(size))
    async with opened(folder, warm=False) as backend:
        assert [line.size for line in await listed(backend.list())] == sizes


async def test_a_missing_parent_is_told_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(errors.Misconfigured, match=r"parent .* does not exist; make it, or mount the disk"):
        await Local.open(str(tmp_path / "no" / "such"))
    assert not (tmp_path / "no").exists()


async def test_a_place_that_was_claimed_and_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    """What would be made in its stead would be in its way when it comes back."""
    at, away = tmp_path / "disk", tmp_path / "away"
    await (await Local.open(str(at), wal_bytes=0)).close()
    at.rename(away)
    with pytest.raises(errors.Misconfigured, match="it does not exist any more"):
        await Local.open(str(at), make=False)
    at.mkdir()  # where a disk would be mounted
    with pytest.raises(errors.Misconfigured, match="there is no backend in this folder; is its disk mounted"):
        await Local.open(str(at), make=False)
    assert list(at.iterdir()) == []
    away.rename(at)
    await (await Local.open(str(at), make=False)).close()


@pytest.mark.parametrize("below", ["", "/deeper"])
async def test_a_file_where_the_folder_should_be_is_told(folder: Path, below: str) -> None:
    folder.write_bytes(b"x")
    with pytest.raises(errors.Misconfigured, match=r"is a file, or is below one"):
        await Local.open(str(folder) + below)


async def test_a_file_where_a_session_should_be_is_told(folder: Path) -> None:
    async with opened(folder) as backend:
        (folder / "0000").write_bytes(b"x")
        for size in (10, 300_000):
            with pytest.raises(errors.Misconfigured, match="a file where a folder should be"):
                await put(backend, "0000/1", bytes(size))
        with pytest.raises(errors.NotFound):
            await backend.get("0000/1")


async def test_a_folder_of_another_site_is_told_by_its_marker(folder: Path) -> None:
    async with opened(folder) as backend:
        await backend.claim(Marker(OTHER_SITE, 1, 1))
    async with opened(folder, warm=False) as backend:
        with pytest.raises(errors.OwnedByAnotherSite, match=f"belongs to site {OTHER_SITE}"):
            await backend.claim(Marker(SITE, 1, 1))
        (folder / ".entrepot" / "marker").write_bytes(b"{}")
        with pytest.raises(errors.OwnedByAnotherSite, match="is no marker"):
            await backend.marker()


async def test_small_puts_work_on_while_no_file_can_be_made_ahead(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pool, "FILES", 0)
    async with opened(folder) as backend:
        await asyncio.gather(*(put(backend, key(number), b"x") for number in range(100)))
        assert len(await listed(backend.list())) == 100


async def test_what_is_not_ours_is_neither_listed_nor_removed(folder: Path) -> None:
    async with opened(folder) as backend:
        await put(backend, key(1), b"x")
        (folder / "lost+found").mkdir()
        (folder / "README.txt").write_bytes(b"")
        (folder / os.fsdecode(b"\xff")).mkdir()
        assert [line.key for line in await listed(backend.list())] == [key(1)]
        assert (folder / "lost+found").is_dir()


async def test_a_put_that_fails_leaves_nothing_half_made_behind(folder: Path) -> None:
    async with opened(folder) as backend:
        (folder / "0000").write_bytes(b"x")
        for size in (10, 300_000):
            with pytest.raises(errors.Misconfigured):
                await put(backend, "0000/1", bytes(size))
        assert all(path.stat().st_size == 0 for path in folder.rglob("new-*"))


async def test_settings_that_cannot_work_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="threads"):
        await Local.open(str(folder), threads=1)
    with pytest.raises(ValueError, match="write-ahead log"):
        await Local.open(str(folder), wal_bytes=4_096)


async def test_after_a_fork_it_refuses_to_work(folder: Path) -> None:
    async with opened(folder) as backend:
        await put(backend, key(1), b"x")
        backend._pid += 1  # what a forked child would see
        for call in (put(backend, key(2), b"x"), backend.get(key(1)), backend.delete(key(1)), listed(backend.list())):
            with pytest.raises(errors.Misconfigured, match="fork"):
                await call
        backend._pid -= 1


# ---- several on one folder --------------------------------------------------------------------------------------


async def test_two_on_one_folder_see_each_others_values_at_once(folder: Path) -> None:
    async with opened(folder) as one, opened(folder) as two:
        for number, size in enumerate((0, 4_096, 300_000)):
            await put(one, key(number), bytes(size))
            assert bytes(await two.get(key(number))) == bytes(size)
            await two.delete(key(number))
            with pytest.raises(errors.NotFound):
                await one.get(key(number))


async def test_a_put_survives_that_its_folder_is_removed_all_the_time(folder: Path) -> None:
    async with opened(folder) as one, opened(folder, warm=False) as two:

        async def churn(backend: Local, start: int, size: int) -> None:
            for number in range(start, start + 300):
                await put(backend, key(number), bytes(size))
                await backend.delete(key(number))

        await asyncio.gather(churn(one, 0, 10), churn(two, 1_000, 10), churn(two, 2_000, 10), churn(one, 3_000, 10))
        assert await listed(one.list()) == []
        assert [name for name in os.listdir(folder) if not name.startswith(".")] == []


async def test_space_of_a_value_that_another_deleted_is_given_back(folder: Path) -> None:
    async with opened(folder) as one, opened(folder) as two:
        await put(one, key(1), b"x")
        await one.get(key(1))
        if one.get_now(key(1)) is None:
            pytest.skip("NOT TESTED, for this file system has no RWF_NOWAIT")
        await two.delete(key(1))
        one._fd_cache.drop_deleted(one._fd_cache.keys())
        assert one.get_now(key(1)) is None
        assert len(one._fd_cache) == 0


# ---- reading ----------------------------------------------------------------------------------------------------


async def test_what_was_read_once_is_at_hand(folder: Path) -> None:
    async with opened(folder) as backend:
        value = os.urandom(100_000)
        await put(backend, key(1), value)
        await backend.get(key(1))
        assert backend.get_now(key(1), 10, 1_000) == value[10:1_010]


async def test_descriptors_stay_bounded_and_are_closed(folder: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with opened(folder, descriptors=10) as backend:
        for number in range(50):
            await put(backend, key(number), b"x")
            await backend.get(key(number))
        assert len(backend._fd_cache) == 10
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_running_out_of_descriptors_is_transient(folder: Path) -> None:
    """The files kept at hand are given up for it."""
    async with opened(folder, wal_bytes=0) as backend:
        for number in range(60):
            await put(backend, key(number), b"x")
            await backend.get(key(number))
        backend._fd_cache.drop(key(0))
        taken = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            with pytest.raises(errors.Unavailable, match="RLIMIT_NOFILE"):
                await backend.get(key(0))
            assert bytes(await backend.get(key(0))) == b"x"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in taken:
                os.close(fd)


async def test_a_cancelled_read_closes_what_it_opened(folder: Path) -> None:
    async with opened(folder, descriptors=0) as backend:
        await put(backend, key(1), bytes(1 << 20))
        before = open_below(folder)
        for _ in range(20):
            reading = asyncio.create_task(backend.get(key(1)))
            await asyncio.sleep(0)
            reading.cancel()
        await backend.get(key(1))
        async with asyncio.timeout(10):
            while open_below(folder) > before + 1:
                await asyncio.gather(*(backend.stat(key(1)) for _ in range(20)))


def open_below(folder: Path) -> int:
    """How many files below *folder* this process has open."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that the listing itself uses
            found += descriptor.readlink().is_relative_to(folder)
    return found


async def test_a_folder_with_more_names_than_fit_is_listed_in_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "NAMES_AT_ONCE", 7)
    monkeypatch.setattr(local, "LISTED_AT_ONCE", 5)
    async with opened(folder) as backend:
        keys = sorted(key(number, session=number % 3) for number in range(60))
        for each in keys:
            await put(backend, each, b"x")
        assert [line.key for line in await listed(backend.list())] == keys
        assert [line.key for line in await listed(backend.list(after=keys[30]))] == keys[31:]


async def test_the_put_of_a_value_that_was_cancelled_leaves_no_file_half_made(folder: Path) -> None:
    async with opened(folder) as backend:
        for size in (4_096, 3 << 20):
            value = os.urandom(size)
            putting = asyncio.create_task(put(backend, key(size), value))
            await asyncio.sleep(0)
            putting.cancel()
    async with opened(folder) as backend:
        for line in await listed(backend.list()):
            assert len(bytes(await backend.get(line.key))) == line.size in (4_096, 3 << 20)
        assert base.check_key(key(1))


async def test_what_the_kernel_has_at_hand_needs_no_thread_though_nobody_read_it_here(folder: Path) -> None:
    async with opened(folder) as one, opened(folder) as two:
        await put(one, key(1), b"abc")
        if two._root.open_cached(key(1)) is None:
            pytest.skip("NOT TESTED, for this kernel has no openat2 with RESOLVE_CACHED")
        assert two.get_now(key(1), 1) == b"bc"
        assert two.get_now(key(2)) is None
        with pytest.raises(ValueError, match="key"):
            two.get_now("../escape")


async def test_a_kernel_without_openat2_is_read_from_in_threads(folder: Path) -> None:
    async with opened(folder) as one, opened(folder) as two:
        await put(one, key(1), b"abc")
        two._root._open_cached._call = None
        assert two.get_now(key(1)) is None
        assert await two.get(key(1)) == b"abc"


async def test_deleted_files_are_looked_for_some_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.local.backend.PRUNED_AT_ONCE", 2)
    async with opened(folder) as one, opened(folder) as two:
        for number in range(5):
            await put(one, key(number), b"x")
            await two.get(key(number))
            await one.delete(key(number))
        held = len(two._fd_cache)
        two._prune()
        assert len(two._fd_cache) == max(0, held - 2)
        await asyncio.sleep(0.1)
        assert len(two._fd_cache) == 0
