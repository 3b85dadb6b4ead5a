"""A site in one process for the tests of workers: real tables, commands and read-only store, without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backends.base import Backend
from backends.testing.memory import Memory
from gateway import blocks, identity, namespace, placement
from gateway.blocks.budget import Budget
from gateway.blocks.digests import Digests
from gateway.blocks.maintenance.compactor import Compactor
from gateway.blocks.maintenance.expiry import Expiry
from gateway.blocks.maintenance.release import ContentReleaser
from gateway.blocks.maintenance.sweeper import Sweeper
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import WantedBackends
from gateway.blocks.read.copy_reader import CopyReader
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.read.read_plan import plan_read
from gateway.blocks.read.reader import Reader
from gateway.blocks.types import Target, Targets, WriteContext
from gateway.blocks.write.writer import StoredRun, Writer
from gateway.crypto.ring import new_ring_key
from gateway.crypto.sealing import BlockKeys
from gateway.identity.users import AddTenant, AddUser
from gateway.journal import session_commands
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.session_commands import EndSession, FoundSite, OpenSession
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.namespace.commands.buckets import MakeBucket
from gateway.namespace.commands.complete import CompleteUpload, WantedPart
from gateway.namespace.commands.copy import CopyObject, Source
from gateway.namespace.commands.objects import DeleteObject, PutObject
from gateway.namespace.commands.uploads import CreateUpload, PutPart
from gateway.namespace.read import lookups
from gateway.placement.commands import NameBackend, NameBackendSet, NamePolicy
from gateway.reconcile import commands as reconcile
from gateway.timing import Timing, parse_timing
from tests.blocks.world import chunks

COMMANDS = {
    **session_commands.COMMANDS,
    **namespace.COMMANDS,
    **identity.COMMANDS,
    **placement.COMMANDS,
    **blocks.COMMANDS,
    **reconcile.COMMANDS,
}


TIMING = parse_timing("scale=0.01")


class Client:
    """The journal client of one process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.session: int = site.committer.run(OpenSession("test"))
        self.held: list[int] = []
        self.sent: list[Any] = []

    async def send(self, command: Any) -> Any:
        self.sent.append(command)
        return self._site.committer.run(command, self.session)

    async def horizons(self, *, pins: bool = True) -> int:
        held = [number for client in self._site.clients for number in client.held]
        return min([self._site.store.head(), *held, *(self._site.pins if pins else [])])

    @contextmanager
    def reading(self) -> Iterator[None]:
        number = self._site.store.head()
        self.held.append(number)
        try:
            yield
        finally:
            self.held.remove(number)


class IgnoringReaders(Client):
    """A client that acts as if nobody read."""

    async def horizons(self, *, pins: bool = True) -> int:
        return self._site.store.head()


class WantedAsHeld:
    """Policies that want each block where it is."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def refresh(self) -> bool:
        return True

    def desired(self, policy: int, held: tuple[int, ...]) -> frozenset[int]:
        return frozenset(held)

    @property
    def recheck_seconds(self) -> float:
        return self._site.recheck_seconds


class Site:
    """A site with one bucket `b` of one user."""

    def __init__(self, folder: Path, *places: Backend, timing: Timing = TIMING) -> None:
        folder.mkdir(exist_ok=True)
        self.timing = timing
        self.path = folder / "journal.db"
        self._sqlite = SqliteStore(self.path)
        self.committer = InlineCommitter(self._sqlite, COMMANDS, timing=timing)
        self.committer.run(FoundSite("0" * 32, "test"))
        self.store = ReadStore(self.path)
        self.places = places or (Memory(),)
        self.clients: list[Client] = []
        self.recheck_seconds = 0.0
        self.is_final = True
        """Blocks that are on all backends need no further work."""
        self.pins: list[int] = []
        """Record numbers of backups, whose blocks must stay."""
        self.journal = self.client()
        tenant = self.committer.run(AddTenant("default"))
        self.user = self.committer.run(AddUser("alice", "default", True, "", b"", ""))
        self.backends = {self.committer.run(NameBackend(f"b{n}")): place for n, place in enumerate(self.places)}
        self.set_id = self.committer.run(NameBackendSet(tuple(self.backends)))
        self.policy = self.committer.run(NamePolicy("all"))
        self.committer.run(MakeBucket("b", self.user, "alice", tenant, "us-east-1", self.policy))
        self.keys = {5: new_ring_key(5)}
        self.active = 5
        self.lookup = Lookup(self.store, self.backends)
        opened = BlockKeys(lambda key_id: (self.keys[key_id].key, self.keys[key_id].mode))
        self.block_keys = opened
        copies = CopyReader(self.lookup.facts, self.lookup.copies_of, opened, self.lookup.extent_at, timing=timing)
        self.reader = Reader(copies, Budget(64 << 20))
        self.writer = self.new_writer(self.journal)
        self.wanted: WantedBackends = WantedAsHeld(self)
        self.worker_journal = self.client()
        journal = self.worker_journal
        self.releaser = ContentReleaser(self.store, journal, timing=timing, remember_seconds=3600)
        self.sweeper = Sweeper(self.store, journal, self.backends, timing=timing)
        self.expiry = Expiry(self.store, journal, timing=timing, expire_seconds=3600)
        self.compactor = Compactor(
            self.store,
            journal,
            self.lookup,
            self.reader,
            self.new_writer(journal),
            lambda _, policy, wanted: self.write_context(policy),
            self.wanted,
            timing=timing,
        )
        self.workers: list[Worker] = [self.expiry, self.releaser, self.compactor, self.sweeper]

    def close(self) -> None:
        self.store.close()
        self._sqlite.close()

    def client(self) -> Client:
        self.clients.append(Client(self))
        return self.clients[-1]

    def end(self, client: Client) -> None:
        self.clients.remove(client)
        self.committer.run(EndSession(client.session))

    def new_writer(self, journal: Client, **options: int) -> Writer:
        return Writer(lambda: journal.session, journal.reading, Budget(96 << 20), timing=self.timing, **options)

    def write_context(self, policy: int = 0) -> WriteContext:
        copies = tuple(Target(place, number) for number, place in self.backends.items())
        return WriteContext(self.keys[self.active], Targets(policy or self.policy, self.set_id, copies, self.is_final))

    async def work(self) -> None:
        """Let the workers step until none of them has more to do."""
        while any([await worker.step() for worker in self.workers]):
            pass
        await self.compactor._writer.close()

    async def release_at_once(self) -> None:
        """Release all queued content, whoever reads."""
        releaser = ContentReleaser(self.store, IgnoringReaders(self), timing=self.timing, remember_seconds=3600)
        while await releaser.step():
            pass

    # ---- the operations of clients ----------------------------------------------------------------------------------

    async def put(self, key: bytes, data: bytes, **more: Any) -> None:
        digests = Digests()
        async with self.writer.storing(self.write_context(), chunks(data, 1 << 20), len(data), digests) as stored:
            await self.journal.send(self.put_command(key, stored, **more))

    def put_command(self, key: bytes, stored: StoredRun, **more: Any) -> PutObject:
        return PutObject(
            "b", key, self.user, True, stored.size, "0" * 32, stored.extents, stored.blocks, self.policy, b"", b"", b"",
            **more,
        )  # fmt: skip

    async def delete(self, key: bytes) -> None:
        await self.journal.send(DeleteObject("b", key, self.user, True))

    async def copy(self, source: bytes, key: bytes) -> None:
        await self.journal.send(CopyObject("b", key, self.user, True, Source("b", source)))

    async def upload(self, key: bytes) -> str:
        return await self.journal.send(CreateUpload("b", key, self.user, True, "", "", b"", b""))

    async def part(self, key: bytes, upload: str, number: int, data: bytes) -> str:
        digests = Digests()
        async with self.writer.storing(self.write_context(), chunks(data, 1 << 20), len(data), digests) as stored:
            await digests.finish()
            etag = digests.md5.hex()
            await self.journal.send(
                PutPart(
                    "b", key, self.user, True, upload, number, stored.size, etag, stored.extents, stored.blocks,
                    self.policy, digests.crc64nvme, "",
                )
            )  # fmt: skip
        return etag

    async def complete(self, key: bytes, upload: str, etags: list[str]) -> None:
        parts = tuple(WantedPart(number, etag) for number, etag in enumerate(etags, 1))
        await self.journal.send(CompleteUpload("b", key, self.user, True, upload, parts))

    def open(self, key: bytes) -> AsyncIterator[Any]:
        """Look the object up now. Returns an iterator that reads its bytes later."""
        found = lookups.find(self.store, "b", key)
        assert found is not None and found.file is not None, key
        file = found.file
        lookup = self.lookup
        wanted = plan_read(file.shape, file.content, 0, file.size, lookup.extents_of, lookup.pieces_of)
        return self.reader.read(wanted)

    async def get(self, key: bytes) -> bytes:
        return b"".join([bytes(piece) async for piece in self.open(key)])

    async def stored(self, place: int = 0) -> dict[str, int]:
        """Return the keys on a backend, and the sizes of their values in bytes."""
        return {listed.key: listed.size async for listed in self.places[place].list()}

    def rows(self, table: str) -> int:
        return int(self.store.query(f"SELECT count(*) FROM {table}")[0][0])
