"""A site on a disk of its own that fills up. `python -m tests.journal.full_disk FOLDER`, in a mount namespace.

Prints `no mount` if the machine allows no mounts; exits with an error if a promise is broken.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import DiskFull
from gateway.identity.users import AddTenant, AddUser
from gateway.journal.client import Journal
from gateway.journal.history.replay import verify
from gateway.journal.paths import JournalPaths
from gateway.journal.session_commands import OpenSession
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.namespace.commands.buckets import MakeBucket
from gateway.namespace.commands.objects import DeleteObject, PutObject
from tests.journal.process import end, found, start

DISK_BYTES = 40 << 20
RESERVE_BYTES = 8 << 20
COMMITTERS: list[subprocess.Popen[bytes]] = []


def put(key: bytes, user: int) -> PutObject:
    return PutObject("b", key, user, False, 0, "0" * 32, (), (), 1, os.urandom(2000), b"", b"")


def committer(folder: Path) -> subprocess.Popen[bytes]:
    COMMITTERS.append(start(folder, reserve_bytes=RESERVE_BYTES))
    return COMMITTERS[-1]


async def scenario(folder: Path) -> None:
    process = committer(folder)
    journal = await Journal.open(folder, "worker")
    tenant = await journal.send(AddTenant("t"))
    user = await journal.send(AddUser("alice", "t", False, "", b"", ""))
    await journal.send(MakeBucket("b", user, "alice", tenant, "here", 1))
    stored = await fill(journal, user)
    print(f"full behind {len(stored)} objects")

    # reads go on
    store = ReadStore(JournalPaths(folder).database)
    assert store.query_one("SELECT objects FROM bucket")[0] == len(stored)
    # what does not free is refused, also with something to free beside it
    with pytest.raises(DiskFull):
        await journal.send(put(b"another", user))
    # deletions go on, from a session that was opened on the full disk, under a committer that was started there
    process.kill(), process.wait()
    process = committer(folder)
    other = await Journal.open(folder, "cli")
    for key in stored[:300]:
        await other.send(DeleteObject("b", key, user, False))
    assert store.query_one("SELECT objects FROM bucket")[0] == len(stored) - 300
    with pytest.raises(DiskFull):
        await journal.send(put(b"another", user))

    # with room again, the reserve comes back, and then everything goes on
    (folder.parent / "ballast").unlink()
    for _ in range(200):
        try:
            await journal.send(put(b"another", user))
            break
        except DiskFull:
            await asyncio.sleep(0.05)
    assert (folder / "reserve").stat().st_size == RESERVE_BYTES
    assert await journal.send(OpenSession("x"))
    store.close()
    await other.close(), await journal.close()
    end(process)
    again = SqliteStore(JournalPaths(folder).database)
    verify(again), again.check(), again.close()


async def fill(journal: Journal, user: int) -> list[bytes]:
    """Put until the disk is full, many at once, with a deletion now and then. Returns what is stored."""
    stored: list[bytes] = []
    full = 0
    for round_ in range(1000):
        keys = [f"{round_}/{each}".encode() for each in range(64)]
        answers = await asyncio.gather(
            *(journal.send(put(key, user)) for key in keys),
            journal.send(DeleteObject("b", b"nothing", user, False)),
            return_exceptions=True,
        )
        assert not isinstance(answers.pop(), BaseException), "a deletion was refused"
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, DiskFull):
                full += 1
            else:
                assert not isinstance(answer, BaseException), answer
                stored.append(key)
        if full:
            return stored
    raise AssertionError("it never filled up")


def main(folder: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]).returncode:
        print("no mount")
        return
    journal = folder / "journal"
    journal.mkdir()
    found(journal)
    (folder / "ballast").write_bytes(bytes(DISK_BYTES - (20 << 20)))
    try:
        asyncio.run(scenario(journal))
        print("kept every promise")
    finally:
        for process in COMMITTERS:
            process.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
