"""A local backend on a disk that will not: full, read-only, forbidden, gone. It says so in clear words."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from backends import errors
from backends.base import Marker
from backends.local.wal import LOG_BYTES_MIN
from tests.backends.contract import SITE, key, listed, put
from tests.backends.mounts import mounted
from tests.backends.opening import opened


@pytest.mark.parametrize("wal_bytes", [0, LOG_BYTES_MIN])
async def test_a_full_disk_is_told_and_still_reads_and_deletes(tmp_path: Path, wal_bytes: int) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=32m", "tmpfs"):
        async with opened(tmp_path / "disk" / "blocks", wal_bytes=wal_bytes) as backend:
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
            assert backend._wal is None
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
from backends.local.backend import Local
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
    async with opened(folder, wal_bytes=0) as backend:
        await put(backend, "0001/1", b"x")
    folder.chmod(mode)
    for parent in folder.parents:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(0o711)
    command = [sys.executable, "-c", AS_NOBODY, str(folder), verb]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert "permission denied; give this user" in done.stdout, done.stderr
    assert str(folder) in done.stdout


def remove_while_in_use(folder: Path) -> None:
    """Remove *folder* although a thread of the backend may be creating files ahead in it: `rm` fails with "Directory
    not empty" where a file comes after it listed the folder. The thread creates a bounded number of files."""
    for _ in range(100):
        if subprocess.run(["rm", "-rf", str(folder)], capture_output=True).returncode == 0:
            return
    pytest.fail(f"{folder} cannot be removed")


async def test_a_folder_that_was_removed_while_in_use_is_reported(folder: Path) -> None:
    async with opened(folder) as backend:
        await put(backend, key(1), b"x")
        remove_while_in_use(folder)
        with pytest.raises(errors.Misconfigured, match="was the folder removed while in use"):
            await put(backend, key(2), b"x")
        with pytest.raises(errors.Misconfigured, match="was the folder removed while in use"):
            await put(backend, key(2), bytes(300_000))
