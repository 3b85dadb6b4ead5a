"""A small PUT's command through the committer's socket, beside SQLite's bare commit of the same rows."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from gateway.journal.client import Journal
from gateway.journal.columns import Checksum, Extent, pack_list
from gateway.journal.records.bytes import NewBlock
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.session_commands import OpenSession
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import Batch
from gateway.namespace.commands.objects import PutObject
from gateway.site.admin.create_site import create_site
from gateway.site.commands import COMMANDS
from gateway.site.site import Site
from tests.bench.ceilings import scratch_folder
from tests.bench.plan import Plan
from tests.bench.table import Row, interleave
from tests.journal.memory_store import MemoryStore

AT_ONCE = 64
BUCKET = "bench-commit"


def put(session: int, number: int, user: int, policy: int) -> PutObject:
    """A PUT of 4 KiB into a pack that 64 share."""
    pack = session.to_bytes(8, "big") + (number // AT_ONCE).to_bytes(16, "big")
    place = number % AT_ONCE
    return PutObject(
        BUCKET, b"key/%08x-%s" % (number, os.urandom(4).hex().encode()), user, True, 4096, os.urandom(16).hex(),
        (Extent(pack, 16 + place * 4112, place, 4096),), (NewBlock(pack, 1, 16 + AT_ONCE * 4112, 1, 1),),
        policy, b"", pack_list([Checksum("CRC64NVME", "FULL_OBJECT", "AAAAAAAAAAA=")]), b"",
    )  # fmt: skip


class _Capturing(MemoryStore):
    """Keeps the batches that it is asked to write."""

    def __init__(self) -> None:
        super().__init__()
        self.batches_written: list[Batch] = []

    def write(self, batch: Batch) -> None:
        super().write(batch)
        self.batches_written.append(batch)


def bare(folder: Path, batches: list[Batch]) -> float:
    """Commands a second if their rows fell from the sky, 64 a commit."""
    path = folder / f"bare-{os.urandom(4).hex()}.db"
    store = SqliteStore(path)
    started = time.perf_counter()
    for batch in batches:
        store.write(batch)
    rate = len(batches) * AT_ONCE / (time.perf_counter() - started)
    store.close()
    return rate


def capture(count: int) -> list[Batch]:
    """The batches of so many PUTs, 64 each, as the committer would write them."""
    from gateway.identity.users import AddTenant, AddUser
    from gateway.journal.session_commands import COMMANDS as JOURNAL_COMMANDS
    from gateway.journal.session_commands import FoundSite
    from gateway.namespace.commands.buckets import MakeBucket

    store = _Capturing()
    local = InlineCommitter(store, {**JOURNAL_COMMANDS, **COMMANDS})
    local.run(FoundSite("0" * 32, "bench"))
    tenant = local.run(AddTenant("default"))
    user = local.run(AddUser("root", "default", True, "", b"", ""))
    session = local.run(OpenSession("bench"))
    local.run(MakeBucket(BUCKET, user, "root", tenant, "us-east-1", 1))
    store.batches_written.clear()
    for at in range(0, count, AT_ONCE):
        local.run_all([put(session, number, user, 1) for number in range(at, at + AT_ONCE)], session)
    return store.batches_written


async def through_socket(folder: Path, count: int) -> float:
    """Commands a second by 64 who each wait for their answer, through the socket of a committer's process."""
    site_folder = folder / f"site-{os.urandom(4).hex()}"
    await create_site(site_folder)
    async with await Site.open(site_folder) as site:
        journal: Journal = site.journal
        user, name, tenant = site.store.query_one("SELECT u.id, u.name, u.tenant FROM user u")
        from gateway.namespace.commands.buckets import MakeBucket

        policy = site.storage.targets.policy
        await journal.send(MakeBucket(BUCKET, user, name, tenant, "us-east-1", policy))
        numbers = iter([put(journal.session, number, user, policy) for number in range(count)])

        async def one() -> None:
            for command in numbers:
                await journal.send(command)

        started = time.perf_counter()
        await asyncio.gather(*[one() for _ in range(AT_ONCE)])
        return count / (time.perf_counter() - started)


def rows(plan: Plan, folder: Path) -> list[Row]:
    name = "a small PUT's command through the socket, by 64"
    if not plan.wants(name):
        return []
    count = 20_000 // AT_ONCE * AT_ONCE
    batches = capture(count)
    row = Row(name, "commands/s", "SQLite's bare commit of the same rows by 64", 0.15)
    with scratch_folder() as scratch:
        interleave(
            row,
            lambda: asyncio.run(through_socket(Path(scratch), count)),
            lambda: bare(Path(scratch), batches),
            plan.runs,
        )
    return [row]
