"""A site whose processes are dead, opened in this one: what a restart recovers, without the processes of a restart.

The same parts do the work (SQLite's recovery, the driver's restoring of its logs, the keeper's workers); only the
socket to the committer is left out.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gateway.blocks.fsck.findings import Severity
from gateway.blocks.types import block_path
from gateway.cli.text import maintenance as maintenance_text
from gateway.config import load
from gateway.engine.types import Caller
from gateway.errors import Misconfigured, NoSuchBucket, NoSuchKey
from gateway.journal.history.replay import verify
from gateway.journal.inline_values import AttachedValues
from gateway.journal.lock import hold_lock
from gateway.journal.paths import JournalPaths
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.session_commands import COMMANDS as SESSION_COMMANDS
from gateway.journal.session_commands import EndSession, OpenSession
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.reconcile.mover import Mover
from gateway.reconcile.planner import Planner
from gateway.site.admin import maintenance
from gateway.site.commands import COMMANDS
from gateway.site.committer_launcher import LaunchedCommitter
from gateway.site.paths import journal_folder, master_key
from gateway.site.site import Site
from gateway.site.storage import backend_factory
from gateway.site.storage.keyring import Keyring
from gateway.timing import parse_timing

MOVES = 1_200

ABSENT = ""
"""Stands where a digest stands, for a key that is not there."""
Possible = Mapping[str, Collection[str]]
"""key -> SHA-256 digests of what may stand there."""


def digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


class Broken(AssertionError):
    """A promise was not kept."""


class _Journal:
    """A client of a committer in the same process."""

    def __init__(self, store: SqliteStore, committer: InlineCommitter) -> None:
        self._store, self._committer = store, committer
        self.session = 0
        self._reads: Counter[int] = Counter()
        self.attached = AttachedValues()

    async def send(self, command: Any) -> Any:
        return self._committer.run(command, self.session)

    async def horizons(self, *, pins: bool = True) -> int:
        return min([self._store.head().number, *self._reads])

    @contextmanager
    def reading(self) -> Iterator[None]:
        number = self._store.head().number
        self._reads[number] += 1
        try:
            yield
        finally:
            self._reads -= Counter([number])

    async def close(self) -> None:
        if self.session:
            self._committer.run(EndSession(self.session))


class Reopened:
    """Made by `reopened`. All that is wrong raises."""

    def __init__(self, site: Site, store: SqliteStore, committer: InlineCommitter, journal: _Journal) -> None:
        self.site = site
        self._store, self._committer, self._journal = store, committer, journal
        self._root = Caller("root", 0, 0, True)

    def check_journal(self) -> None:
        """SQLite finds its file whole, and every record is what was written."""
        self._store.check()
        verify(self._store)

    async def check_sound(self, worst: Severity = Severity.NONE) -> None:
        """`fsck --read` finds nothing worse than *worst*."""
        report = await maintenance.fsck(self.site, read=True)
        if report.worst > worst:
            raise Broken("\n".join(maintenance_text.fsck_to_text(report)))

    async def check_bucket(self, bucket: str, possible: Possible, *, made: bool = True) -> None:
        """Every key has a value that it may have, each that is listed can be read, and no other is. *made*: the bucket
        was acknowledged."""
        try:
            there = await self._read_all(bucket)
        except NoSuchBucket:
            if made:
                raise Broken(f"the bucket {bucket} is lost") from None
            there = {}
        for key, values in possible.items():
            found = there.pop(key, ABSENT)
            if found not in values:
                word = "is lost" if found == ABSENT else "has a value that it never had or no longer has"
                raise Broken(f"{bucket}/{key} {word}")
        if there:
            raise Broken(f"keys that nobody put into {bucket}: {sorted(there)}")

    async def _read_all(self, bucket: str) -> dict[str, str]:
        found: dict[str, str] = {}
        after = b""
        while True:
            page = await self.site.engine.list(self._root, bucket, after=after)
            for entry in page.keys:
                found[entry.key.decode()] = await self._read(bucket, entry.key)
            if page.next is None:
                return found
            after = page.next

    async def _read(self, bucket: str, key: bytes) -> str:
        try:
            opened = await self.site.engine.open(self._root, bucket, key)
        except NoSuchKey:
            raise Broken(f"{bucket}/{key.decode()} is listed and not there") from None
        summed = hashlib.sha256()
        if opened.whole is not None:
            summed.update(opened.whole)
        else:
            async for piece in opened.chunks:
                summed.update(piece)
        return summed.hexdigest()

    async def check_parts(self, bucket: str, key: str, upload: str, etags: Mapping[int, str]) -> None:
        """The parts of an open upload that were acknowledged are there."""
        page = await self.site.engine.list_parts(self._root, bucket, key.encode(), upload)
        found = {part.number: part.etag for part in page.parts}
        if any(found.get(number) != etag for number, etag in etags.items()):
            raise Broken(f"parts of {bucket}/{key} are lost: {etags} were acknowledged, {found} are there")

    async def keep_house(self) -> None:
        """The dead processes' sessions end, and the keeper does all that it finds to do."""
        for session in self._store.live_sessions():
            self._committer.run(EndSession(session))
        self._store.drop_slots()
        self._journal.session = self._committer.run(OpenSession("keeper"))
        await maintenance.gc(self.site)

    async def move_copies(self) -> None:
        """And brings every block where it should be."""
        workers = [each for each in maintenance.background_workers(self.site) if isinstance(each, Planner | Mover)]
        for _ in range(MOVES):
            await self.site.storage.stamp()  # as the keeper does all the time
            while any([await worker.step() for worker in workers]):
                pass
            if not self.site.store.query("SELECT 1 FROM work LIMIT 1"):
                return
            await asyncio.sleep(0.1)
        raise Broken(f"work stays: {self.site.store.query('SELECT * FROM work')}")

    async def check_tidy(self) -> None:
        """Behind `keep_house`: a sound site, on whose disk lies nothing that no row names."""
        await self.check_sound()
        ((freed, gone, dead),) = self.site.store.query(
            "SELECT (SELECT count(*) FROM freed), (SELECT count(*) FROM gone), "
            "(SELECT count(*) FROM block WHERE died > 0)"
        )
        if freed or gone or dead:
            raise Broken(f"{freed} freed rows, {gone} of gone buckets and {dead} dead blocks stay")
        named = {block_path(row[0]) for row in self.site.store.query("SELECT id FROM block")}
        for backend in self.site.storage.backends.values():
            there = {line.key async for line in backend.list()}
            if there != named:
                raise Broken(f"orphans: {sorted(there - named)}; lost: {sorted(named - there)}")
        left = list((self.site.folder / "blocks" / ".entrepot").glob("desk-*/new-*"))
        if left:
            raise Broken(f"temporary files stay: {left}")


async def _until_locked(held: ExitStack, paths: JournalPaths) -> None:
    """A process that dies has no command line any more for a while before it lets go of its lock."""
    for tries_left in reversed(range(1_000)):
        try:
            held.enter_context(hold_lock(paths))
        except Misconfigured:
            if not tries_left:
                raise
            await asyncio.sleep(0.02)
        else:
            return


@asynccontextmanager
async def reopened(folder: Path) -> AsyncIterator[Reopened]:
    """The dead site in *folder*, recovered."""
    config = load(folder)
    paths = JournalPaths(journal_folder(folder, config))
    with ExitStack() as held:
        await _until_locked(held, paths)
        store = SqliteStore(paths.database)
        committer = InlineCommitter(store, {**SESSION_COMMANDS, **COMMANDS})
        journal = _Journal(store, committer)
        tables = ReadStore(paths.database)
        ring, timing = Keyring(master_key(folder, config), tables), parse_timing("scale=0.1")
        site = Site(folder, config, journal, LaunchedCommitter(None, timing), tables, ring, timing)  # type: ignore[arg-type]
        site._held.callback(tables.close)
        try:
            with patch.object(backend_factory, "WAL_BYTES", 0):  # logs would have temporary files, see `check_tidy`
                site._storage = await site._open_bytes("keeper", strict=True)
            site._held.push_async_callback(site._storage.close)
            yield Reopened(site, store, committer, journal)
        finally:
            await site.close()
            store.close()


async def main() -> None:
    """Recover a site, keep house, and go."""
    async with reopened(Path(sys.argv[1])) as site:
        await site.keep_house()


if __name__ == "__main__":
    asyncio.run(main())
