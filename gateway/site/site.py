"""An open site: its config, its journal, its keys and its block storage. Workers, commands and in-process clients use
it.

While a site is open, the committer may be killed and replaced, and the session may end. The journal's client reconnects
by itself, and blocks that are written afterwards belong to the new session.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gateway.config import Config
from gateway.errors import Misconfigured, ReadOnlySite
from gateway.identity.credentials import CredentialCache
from gateway.journal.client import Journal
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.site.active_config import follow_active_config
from gateway.site.committer_launcher import LaunchedCommitter, open_journal
from gateway.site.paths import journal_folder, master_key
from gateway.site.rehearsal import READ_ONLY
from gateway.site.site_view import SiteView, load_config_checked
from gateway.site.storage.block_storage import CACHED, BlockStorage
from gateway.site.storage.keyring import Keyring
from gateway.site.storage.registration import register_backends
from gateway.timing import Timing, timing_from_environment

if TYPE_CHECKING:
    from gateway.engine.engine import Engine

_log = logging.getLogger(__name__)

SUPERVISED = {"worker", "keeper"}
"""Kinds of processes whose committer is started by the supervisor."""


class Site(SiteView):
    """An open site. Made by `open`; an async context manager."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        journal: Journal,
        committer: LaunchedCommitter,
        store: ReadStore,
        keyring: Keyring,
        timing: Timing,
    ) -> None:
        super().__init__(folder, config, store, keyring, timing)
        self.journal = journal
        self.credentials = CredentialCache(store, keyring.unseal)
        self._committer = committer
        self._held = AsyncExitStack()
        """What `close` closes, each whatever goes wrong with the rest."""
        self._storage: BlockStorage | None = None
        self._engine: Engine | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        folder: Path,
        kind: str = "client",
        *,
        with_storage: bool = True,
        strict: bool = True,
        timing: Timing | None = None,
    ) -> Site:
        """Open the site in *folder* as a session of this *kind*: `worker`, `keeper`, `cli` or `client`.

        Starts a committer if none runs, unless the supervisor does that (`SUPERVISED`). A client, which may stay for
        long, also restarts it later. *with_storage*: also open the block storage; without it there is no engine.
        *strict*: see `BackendPool.open`. *timing*: by default what the environment says.

        Raises `Misconfigured`, and `CommitterGone` if no committer runs and none can be started."""
        timing = timing or timing_from_environment()
        config = load_config_checked(folder)
        ring_path = master_key(folder, config)
        journal_path = journal_folder(folder, config)
        async with AsyncExitStack() as held:
            if kind in SUPERVISED:
                journal, committer = await Journal.open(journal_path, kind, timing), LaunchedCommitter(None, timing)
            else:
                journal, committer = await open_journal(folder, journal_path, kind, timing)
            held.push_async_callback(committer.release)
            held.push_async_callback(journal.close)
            store = ReadStore(JournalPaths(journal_path).database, timing=timing)
            held.callback(store.close)
            self = cls(folder, config, journal, committer, store, Keyring(ring_path, store), timing)
            if self.is_rehearsal:
                journal.refuse(READ_ONLY, ReadOnlySite)
            if kind == "client":
                self._restarting = asyncio.create_task(committer.keep_running(folder, journal_path, journal))
                held.push_async_callback(_stop, self._restarting)
            if with_storage:
                self._storage = await self._open_bytes(kind, strict=strict and not self.is_rehearsal)
                held.push_async_callback(self._storage.close)
                # The keeper does so itself, and ends when it fails. A rehearsal writes nothing, whatever markers say.
                if kind in {"worker", "client"} and not self.is_rehearsal:
                    self._watching = asyncio.create_task(self._watch_markers())
                    held.push_async_callback(_stop, self._watching)
                if kind == "client":
                    self._following = asyncio.create_task(follow_active_config(folder, config, self.adopt, timing))
                    held.push_async_callback(_stop, self._following)
            self._held = held.pop_all()
        return self

    async def _open_bytes(self, kind: str, *, strict: bool) -> BlockStorage:
        server, topology = self.config.server, self.config.topology(self.folder)
        if kind != "worker" and not self.is_rehearsal:  # before a worker starts, the keeper has done this
            for why in (await register_backends(topology, self.journal, self.store)).values():
                _log.error("a backend of the config is not in use yet: %s", why)
        storage = await BlockStorage.open(
            topology,
            self.store,
            self.keyring,
            self.journal,
            server.bytes_in_flight,
            writes_much=kind != "cli",
            journal_device=self.journal_path.stat().st_dev,
            inline_bytes=self.config.journal.inline_bytes,
            # In a worker clients wait for each other's memory; another process waits only for its own.
            wait_seconds=server.bytes_wait_seconds if kind == "worker" else None,
            strict=strict,
            timing=self.timing,
            stamps=kind in {"keeper", "client"},  # workers delete nothing, and commands that delete stamp first
            read_only=self.is_rehearsal,
        )
        if self.is_rehearsal:
            storage.write_targets.refuse(READ_ONLY)
        return storage

    def require_writable(self) -> None:
        """Raise `ReadOnlySite` if the site is a rehearsal. Each command that writes to backends itself calls this."""
        if self.is_rehearsal:
            raise ReadOnlySite(READ_ONLY)

    @property
    def storage(self) -> BlockStorage:
        """The block storage. Only if the site was opened with it."""
        assert self._storage is not None, "opened without bytes"
        return self._storage

    @property
    def engine(self) -> Engine:
        """The engine. Only if the site was opened with its block storage."""
        if self._engine is None:
            self._engine = make_engine(self)
        return self._engine

    async def open_new_backends(self, config: Config) -> None:
        """Open the backends that only the new *config* names, and that the journal knows. Nothing is written there
        yet."""
        await self.storage.open_new_backends(config.topology(self.folder))

    async def adopt(self, config: Config) -> None:
        """Switch to *config*, as far as a reload may change settings."""
        await self.storage.adopt(config.topology(self.folder))
        self.config = config

    def count(self) -> None:
        """Update the metrics from the counters of the parts. Called each second."""
        CACHED.reach(self.credentials.opened, "secrets", "miss")
        if self._storage is not None:
            self._storage.count()

    async def end_session(self) -> None:
        """End the session and close nothing else: for a process that is exiting, and may start no more threads."""
        async with AsyncExitStack() as held:
            held.push_async_callback(self._committer.release)
            held.push_async_callback(self.journal.close)
            held.push_async_callback(_stop, self._restarting)
            held.push_async_callback(_stop, self._watching)
            held.push_async_callback(_stop, self._following)

    async def _watch_markers(self) -> None:
        try:
            await self.storage.watch_markers()
        except Misconfigured as error:  # another instance has taken over: nothing is written here any more
            self.journal.refuse(str(error))

    async def close(self) -> None:
        """Finish what is under way, end the session and close everything. Errors are raised after all of that."""
        await self._held.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _stop(task: asyncio.Task[None] | None) -> None:
    """Cancel *task*, if there is one, and wait until it has ended."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def make_engine(site: Site) -> Engine:
    """Return an engine over the parts of *site*."""
    from gateway.engine.engine import Engine

    storage = site.storage
    return Engine(
        journal=site.journal,
        store=site.store,
        writer=storage.writer,
        reader=storage.reader,
        lookup=storage.lookup,
        keyring=site.keyring,
        write_targets=storage.write_targets,
        credentials=site.credentials,
        region=site.config.site.region,
    )
