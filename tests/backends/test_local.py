"""What the local driver promises beyond the contract: clear words, several processes, bounded descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from backends import base, desk, errors, intake, intake_log, local, local_files, local_listing, local_values, stock
from backends.base import Marker
from backends.intake import LOG_BYTES_MIN
from backends.intake_log import DELETED, PUT
from backends.local import Local
from tests.backends.contract import OTHER_SITE, SITE, key, listed, put
from tests.backends.mounts import mounted
from tests.backends.recorded_disk import Recorder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blocks"


@contextlib.asynccontextmanager
async def opened(
    folder: Path, *, warm: bool = True, intake_bytes: int = LOG_BYTES_MIN, descriptors: int = 100
) -> AsyncIterator[Local]:
    backend = await Local.open(str(folder), intake_bytes=intake_bytes, descriptors=descriptors)
    try:
        if warm:
            await backend.warm()
        yield backend
    finally:
        await backend.close()


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
    await (await Local.open(str(at), intake_bytes=0)).close()
    at.rename(away)
    with pytest.raises(errors.Misconfigured, match="it is not there any more"):
        await Local.open(str(at), make=False)
    at.mkdir()  # where a disk would be mounted
    with pytest.raises(errors.Misconfigured, match="no backend lies there; is its disk mounted"):
        await Local.open(str(at), make=False)
    assert list(at.iterdir()) == []
    away.rename(at)
    await (await Local.open(str(at), make=False)).close()


@pytest.mark.parametrize("below", ["", "/deeper"])
async def test_a_file_where_the_folder_should_be_is_told(folder: Path, below: str) -> None:
    folder.write_bytes(b"x")
    with pytest.raises(errors.Misconfigured, match=r"is a file, or lies below one"):
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
        with pytest.raises(errors.Foreign, match=f"belongs to site {OTHER_SITE}"):
            await backend.claim(Marker(SITE, 1, 1))
        (folder / ".entrepot" / "marker").write_bytes(b"{}")
        with pytest.raises(errors.Foreign, match="is no marker"):
            await backend.marker()


async def test_closing_leaves_nothing_half_made_behind(folder: Path) -> None:
    async with opened(folder) as backend:
        await asyncio.gather(*(put(backend, key(number), b"x") for number in range(100)))
    assert list(folder.rglob("new-*")) == []


async def test_small_puts_work_on_while_no_file_can_be_made_ahead(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stock, "FILES", 0)
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


async def test_logs_that_another_made_are_synced_before_they_are_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their maker may have died before it synced their names."""
    async with opened(folder):
        pass
    recorder = Recorder()
    recorder.adopt(folder)
    begun = len(recorder.events)
    with recorder.standing_in(monkeypatch, [desk, intake_log, local_files]):
        async with opened(folder):
            synced = {event.path for event in recorder.events[begun:] if event.what == "sync names"}
    assert any(path.startswith(".entrepot/desk-") for path in synced)
    assert {"", ".entrepot"} <= synced


async def test_settings_that_cannot_work_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="threads"):
        await Local.open(str(folder), threads=1)
    with pytest.raises(ValueError, match="intake log"):
        await Local.open(str(folder), intake_bytes=4_096)


async def test_after_a_fork_it_refuses_to_work(folder: Path) -> None:
    async with opened(folder) as backend:
        await put(backend, key(1), b"x")
        backend._pid += 1  # what a forked child would see
        for call in (put(backend, key(2), b"x"), backend.get(key(1)), backend.delete(key(1)), listed(backend.list())):
            with pytest.raises(errors.Misconfigured, match="fork"):
                await call
        backend._pid -= 1


async def test_a_closed_one_says_so(folder: Path) -> None:
    async with opened(folder) as backend:
        pass
    with pytest.raises(errors.Misconfigured, match="closed"):
        await backend.get(key(1))


async def test_a_deletion_under_way_is_made_durable_before_it_closes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, remove = threading.Event(), local_values.remove

    def held_up(root: local_files.Root, name: str) -> None:
        assert go_on.wait(60)
        remove(root, name)

    monkeypatch.setattr(local_values, "remove", held_up)
    backend = await Local.open(str(folder), intake_bytes=0)
    await put(backend, key(1), b"x")
    deleting = asyncio.create_task(backend.delete(key(1)))
    await asyncio.sleep(0)
    closing = asyncio.create_task(backend.close())
    await asyncio.sleep(0.05)
    go_on.set()
    await closing
    await deleting
    assert not (folder / key(1)).exists()


async def test_calls_under_way_come_to_their_end_before_it_closes(folder: Path) -> None:
    backend = await Local.open(str(folder), intake_bytes=LOG_BYTES_MIN)
    await asyncio.gather(*(put(backend, key(n), bytes(300_000 * (n % 2))) for n in range(8)))
    calls = [backend.delete(key(n)) for n in range(8)]
    calls += [put(backend, key(10 + n), bytes(300_000 * (n % 2) + 1)) for n in range(8)]
    calls += [backend.claim(Marker(SITE, 1, 1))]
    running = [asyncio.create_task(each) for each in calls]
    await asyncio.sleep(0)
    await backend.close()
    assert all(task.done() and task.exception() is None for task in running)
    async with opened(folder, warm=False) as again:
        assert sorted(line.key for line in await listed(again.list())) == [key(10 + n) for n in range(8)]
        assert await again.marker() == Marker(SITE, 1, 1)


async def test_closing_a_second_time_waits_for_the_first_and_goes_on_if_that_is_cancelled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    backend = await Local.open(str(folder), intake_bytes=LOG_BYTES_MIN)
    await put(backend, key(1), b"x")
    go_on, sync_values = threading.Event(), local_files.Root.sync_values

    def held_up(self: local_files.Root, keys: Sequence[str]) -> None:
        assert go_on.wait(60)
        sync_values(self, keys)

    monkeypatch.setattr(local_files.Root, "sync_values", held_up)
    await backend.warm()
    await put(backend, key(2), b"in a log")
    first = asyncio.create_task(backend.close())
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second, third = (asyncio.create_task(backend.close()) for _ in range(2))
    await asyncio.sleep(0.01)
    go_on.set()
    await second
    await third
    assert len(os.listdir("/proc/self/fd")) <= before
    await backend.close()


async def test_a_step_of_closing_that_fails_keeps_none_of_the_others_from_being_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> None:
        raise OSError("broken")

    before = len(os.listdir("/proc/self/fd"))
    backend = await Local.open(str(folder))
    await put(backend, key(1), bytes(300_000))
    monkeypatch.setattr(backend._removals, "close", fails)
    with pytest.raises(OSError, match="broken"):
        await backend.close()
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_what_is_asked_of_a_closed_one_is_refused_whatever_it_is(folder: Path) -> None:
    async with opened(folder) as backend:
        await put(backend, key(1), b"x")
        lines = backend.list()
        await anext(lines)
    for call in (backend.marker(), backend.claim(Marker(SITE, 1, 1)), backend.delete(key(1)), anext(lines)):
        with pytest.raises(errors.Misconfigured, match="closed"):
            await call


# ---- disks that will not ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("intake_bytes", [0, LOG_BYTES_MIN])
async def test_a_full_disk_is_told_and_still_reads_and_deletes(tmp_path: Path, intake_bytes: int) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=32m", "tmpfs"):
        async with opened(tmp_path / "disk" / "blocks", intake_bytes=intake_bytes) as backend:
            stored = []
            for size in (300_000, 4_096):
                with pytest.raises(errors.Full, match=r"disk is full; free some space") as caught:
                    for number in range(20_000):
                        await put(backend, f"{size}/{number}", bytes(size))
                        stored.append(f"{size}/{number}")
                assert isinstance(caught.value.__cause__, OSError)
            assert len(stored) > 20
            assert bytes(await backend.get(stored[0])) == bytes(300_000)
            assert len(await listed(backend.list())) == len(stored)
            for each in stored[:10]:
                await backend.delete(each)
            await put(backend, key(1), bytes(300_000))


async def test_a_full_disk_has_no_room_for_the_logs_and_stores_all_the_same(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=12m", "tmpfs"):
        async with opened(tmp_path / "disk" / "blocks") as backend:
            assert backend._intake is None
            await put(backend, key(1), b"x")
            assert bytes(await backend.get(key(1))) == b"x"


async def test_a_file_size_limit_is_told(folder: Path) -> None:
    async with opened(folder) as backend:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        try:
            with pytest.raises(errors.Full, match="larger than"):
                await put(backend, key(1), bytes(2 << 20))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert await listed(backend.list()) == []


async def test_a_read_only_disk_is_told_and_still_reads(tmp_path: Path) -> None:
    folder = tmp_path / "blocks"
    async with opened(folder) as backend:
        await put(backend, key(1), b"x")
        await backend.claim(Marker(SITE, 1, 1))
    with mounted(tmp_path / "view", "--bind", "-o", "ro", str(folder)):
        async with opened(tmp_path / "view", warm=False) as backend:
            assert bytes(await backend.get(key(1))) == b"x"
            assert await backend.marker() == Marker(SITE, 1, 1)
            assert len(await listed(backend.list())) == 1
            for call in (put(backend, key(2), b"x"), backend.delete(key(1)), backend.claim(Marker(SITE, 1, 1))):
                with pytest.raises(errors.ReadOnly, match="read-only; remount it writable"):
                    await call


async def test_an_empty_read_only_disk_opens_and_is_empty(tmp_path: Path) -> None:
    (tmp_path / "blocks").mkdir()
    with mounted(tmp_path / "view", "--bind", "-o", "ro", str(tmp_path / "blocks")):
        async with opened(tmp_path / "view", warm=False) as backend:
            assert await listed(backend.list()) == []
            assert await backend.marker() is None


AS_NOBODY = """
import asyncio, os, sys
from backends import errors
from backends.local import Local
os.setgid(65534); os.setuid(65534)
async def main():
    try:
        backend = await Local.open(sys.argv[1])
        if sys.argv[2] == "get":
            await backend.get("0001/1")
        else:
            await backend.put("0001/2", [b"x"], 0xd55bdfc5)
    except errors.Denied as error:
        print(error)
asyncio.run(main())
"""


@pytest.mark.parametrize(("mode", "verb"), [(0o000, "get"), (0o555, "put")])
async def test_missing_permissions_are_told(folder: Path, mode: int, verb: str) -> None:
    if os.geteuid():
        pytest.skip("NOT TESTED, for only root can become somebody who lacks a permission")
    async with opened(folder, intake_bytes=0) as backend:
        await put(backend, "0001/1", b"x")
    folder.chmod(mode)
    for parent in folder.parents:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(0o711)
    command = [sys.executable, "-c", AS_NOBODY, str(folder), verb]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert "permission denied; give this user" in done.stdout, done.stderr
    assert str(folder) in done.stdout


async def test_a_folder_that_was_removed_under_it_is_told(folder: Path) -> None:
    async with opened(folder) as backend:
        await put(backend, key(1), b"x")
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        with pytest.raises(errors.Misconfigured, match="was the folder removed while in use"):
            await put(backend, key(2), b"x")
        with pytest.raises(errors.Misconfigured, match="was the folder removed while in use"):
            await put(backend, key(2), bytes(300_000))


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
        one._descriptors.drop_deleted(one._descriptors.keys())
        assert one.get_now(key(1)) is None
        assert len(one._descriptors) == 0


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
        assert len(backend._descriptors) == 10
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_running_out_of_descriptors_is_transient(folder: Path) -> None:
    """The files kept at hand are given up for it."""
    async with opened(folder, intake_bytes=0) as backend:
        for number in range(60):
            await put(backend, key(number), b"x")
            await backend.get(key(number))
        backend._descriptors.drop(key(0))
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
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            reading = asyncio.create_task(backend.get(key(1)))
            await asyncio.sleep(0)
            reading.cancel()
        await backend.get(key(1))
        await asyncio.gather(*(backend.stat(key(1)) for _ in range(20)))
        assert len(os.listdir("/proc/self/fd")) <= before + 1


async def test_a_folder_with_more_names_than_fit_is_listed_in_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_listing, "NAMES_AT_ONCE", 7)
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
        if two._root.open_now(key(1)) is None:
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
    monkeypatch.setattr("backends.local.PRUNED_AT_ONCE", 2)
    async with opened(folder) as one, opened(folder) as two:
        for number in range(5):
            await put(one, key(number), b"x")
            await two.get(key(number))
            await one.delete(key(number))
        held = len(two._descriptors)
        two._prune()
        assert len(two._descriptors) == max(0, held - 2)
        await asyncio.sleep(0.1)
        assert len(two._descriptors) == 0


# ---- giving the logs back ---------------------------------------------------------------------------------------


def logs(folder: Path) -> list[Path]:
    return [*folder.glob(".entrepot/*/*.log")]


async def until_no_logs(folder: Path) -> None:
    while logs(folder):
        await asyncio.sleep(0.01)


async def test_idle_logs_give_their_room_back_until_the_next_small_put(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "TURN_SECONDS", 0.05)
    async with opened(folder) as backend:
        for round_ in range(3):
            assert len(logs(folder)) == 2
            await asyncio.gather(*(put(backend, key(round_ * 10 + n), bytes([n]) * 100) for n in range(10)))
            await until_no_logs(folder)
            assert not [*folder.glob(".entrepot/*/new-*")], "files made ahead go, too"
            await put(backend, key(100 + round_), b"without a log")
            await backend.delete(key(round_ * 10))
            await backend.warm()
        assert len([line async for line in backend.list()]) == 3 * 9 + 3
    async with opened(folder, warm=False) as backend:
        assert bytes(await backend.get(key(11))) == bytes([1]) * 100


async def test_puts_lose_nothing_while_logs_come_and_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "TURN_SECONDS", 0.002)
    gone = 0
    discard = desk.Desk.discard_logs

    def counted(self: desk.Desk) -> None:
        nonlocal gone
        gone += 1
        discard(self)

    monkeypatch.setattr(desk.Desk, "discard_logs", counted)
    async with opened(folder) as backend:
        for n in range(400):
            await asyncio.gather(*(put(backend, key(4 * n + each), b"%d" % n) for each in range(4)))
            if n % 10 == 0:
                await asyncio.sleep(0.02)
        assert gone > 3
        for n in range(400):
            for each in range(4):
                assert bytes(await backend.get(key(4 * n + each))) == b"%d" % n


async def test_logs_are_not_given_back_while_a_group_is_on_its_way_into_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits no more, and is not among the keys yet. Without the log its deletion would not be logged, and a crash
    before the log is reset would bring the value back."""
    begun, go_on = threading.Event(), threading.Event()
    append = intake_log.Log.append

    def held_up(self: intake_log.Log, entries: Sequence[intake_log.Entry]) -> None:
        begun.set()
        assert go_on.wait(60)
        append(self, entries)

    async with opened(folder) as backend:
        monkeypatch.setattr(intake_log.Log, "append", held_up)
        putting = asyncio.create_task(put(backend, key(1), b"on its way"))
        await asyncio.to_thread(begun.wait, 60)
        own = backend._intake
        assert own is not None
        own._tick()
        assert backend._intake is own, "taken for idle"
        go_on.set()
        await putting
        await backend.delete(key(1))
        assert [found.kind for log in own._desk.logs for found in log.records()] == [PUT, DELETED]
        own._tick()
        assert backend._intake is own, "there are records to be superseded"


async def test_a_log_whose_sync_fails_is_not_given_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    async with opened(folder) as backend:
        await put(backend, key(1), b"acknowledged")
        monkeypatch.setattr(local_files.Root, "sync_values", fails)
        monkeypatch.setattr(intake, "restore", fails)
        backend._put_intake_away()
        assert backend._preparing is not None
        await backend._preparing
        assert len(logs(folder)) == 2
        await put(backend, key(2), b"the plain way")
        assert backend._intake is None
        monkeypatch.undo()
    (folder / key(1)).write_bytes(b"torn")
    async with opened(folder, warm=False) as backend:
        assert bytes(await backend.get(key(1))) == b"acknowledged"
