"""A site, opened: its config, its journal, its keys and its blocks, connected. What a gateway worker, the command
line and an in-process client hold alike.

The committer may be killed and succeeded, and the session may end, while this is open: the journal's client comes
back by itself, and what is written then bears the new session.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gateway.config import Config
from gateway.errors import Misconfigured
from gateway.identity.credentials import CredentialCache
from gateway.journal.client import Journal
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.site.active_config import follow_active_config, load_active
from gateway.site.committer_launcher import LaunchedCommitter, open_journal
from gateway.site.ownership import require_owner
from gateway.site.paths import UNFINISHED, journal_folder, master_key
from gateway.site.storage.block_storage import CACHED, BlockStorage
from gateway.site.storage.keyring import Keyring
from gateway.site.storage.marker_guard import site_row
from gateway.site.storage.registration import register_backends
from gateway.timing import Timing, timing_from_environment

if TYPE_CHECKING:
    from gateway.engine.engine import Engine

_log = logging.getLogger(__name__)

SUPERVISED = {"worker", "keeper"}
"""Processes that the supervisor has a committer for."""


class Site:
    """Made by `open`; an async context manager."""

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
        self.folder = folder
        self.timing = timing
        self.config = config
        self.journal = journal
        self.store = store
        self.keyring = keyring
        self.credentials = CredentialCache(store, keyring.unseal)
        self.id, self.incarnation = site_row(store)
        self._committer = committer
        self._held = AsyncExitStack()
        """What is to be let go of, whatever goes wrong with the rest."""
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
        """Open the site in *folder* as a session of this *kind*: worker, keeper, cli or client. Without *bytes_too*
        there are no blocks and no engine. Starts a committer if nobody commits, unless there is a supervisor; a client,
        which may stay for long, also when who commits goes away later. *strict*: as `BackendPool.open`.
        *timing*: what the environment says, unless given.

        Raises `Misconfigured`, and `CommitterGone` if nobody commits and nobody can."""
        timing = timing or timing_from_environment()
        config = load_active(folder)
        if (folder / UNFINISHED).exists():
            command = (folder / UNFINISHED).read_text().partition("\n")[0]
            raise Misconfigured(f"{folder} is not finished: `entrepot {command}` was cut short; run it again")
        require_owner(folder, config)
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
            if kind == "client":
                self._restarting = asyncio.create_task(committer.keep_running(folder, journal_path, journal))
                held.push_async_callback(self._stop_restarting)
            if with_storage:
                self._storage = await self._open_bytes(kind, strict=strict)
                held.push_async_callback(self._storage.close)
                if kind in {"worker", "client"}:  # the keeper does so itself, and ends with what it finds
                    self._watching = asyncio.create_task(self._watch_markers())
                    held.push_async_callback(self._stop_watching)
                if kind == "client":
                    self._following = asyncio.create_task(follow_active_config(folder, config, self.adopt, timing))
                    held.push_async_callback(self._stop_following)
            self._held = held.pop_all()
        return self

    async def _open_bytes(self, kind: str, *, strict: bool) -> BlockStorage:
        server, topology = self.config.server, self.config.topology(self.folder)
        if kind != "worker":  # for these there is a keeper, which was here before them
            for why in (await register_backends(topology, self.journal, self.store)).values():
                _log.error("a backend of the config is not in use yet: %s", why)
        return await BlockStorage.open(
            topology,
            self.store,
            self.keyring,
            self.journal,
            server.bytes_in_flight,
            writes_much=kind not in {"cli", "keeper"},
            wait_seconds=server.bytes_wait_seconds if kind == "worker" else None,  # others wait for themselves alone
            strict=strict,
            timing=self.timing,
            stamps=kind in {"keeper", "client"},  # workers delete nothing, and a command stamps if it does
        )

    @property
    def journal_path(self) -> Path:
        return journal_folder(self.folder, self.config)

    @property
    def storage(self) -> BlockStorage:
        """Its blocks. Only where they were opened."""
        assert self._storage is not None, "opened without bytes"
        return self._storage

    @property
    def engine(self) -> Engine:
        """Its front desk. Only where blocks were opened."""
        if self._engine is None:
            self._engine = make_engine(self)
        return self._engine

    async def open_new_backends(self, config: Config) -> None:
        """Open what *config* names anew, and the journal knows; nothing is written there yet."""
        await self.storage.open_new_backends(config.topology(self.folder))

    async def adopt(self, config: Config) -> None:
        """Go on under *config*: what a reload may change of it."""
        await self.storage.adopt(config.topology(self.folder))
        self.config = config

    def count(self) -> None:
        """Bring what its parts counted themselves to the metrics; called each second."""
        CACHED.reach(self.credentials.opened, "secrets", "miss")
        if self._storage is not None:
            self._storage.count()

    async def end_session(self) -> None:
        """End the session and nothing else: for a process that ends, and may start no more threads."""
        async with AsyncExitStack() as held:
            held.push_async_callback(self._committer.release)
            held.push_async_callback(self.journal.close)
            held.push_async_callback(self._stop_restarting)
            held.push_async_callback(self._stop_watching)
            held.push_async_callback(self._stop_following)

    async def _watch_markers(self) -> None:
        try:
            await self.storage.watch_markers()
        except Misconfigured as error:  # the site goes on elsewhere: nothing is written here any more, and
            self.journal.refuse(str(error))

    async def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _stop_restarting(self) -> None:
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)

    async def close(self) -> None:
        """Finish what is under way, end the session, and let go of everything, also where some of that fails: what
        went wrong is raised once it is done."""
        await self._held.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def make_engine(site: Site) -> Engine:
    """The front desk over the site's parts."""
    from gateway.engine.engine import Engine

    storage = site.storage
    return Engine(
        journal=site.journal,
        store=site.store,
        writer=storage.writer,
        reader=storage.reader,
        lookup=storage.lookup,
        ring=site.keyring,
        placing=storage.write_targets,
        credentials=site.credentials,
        region=site.config.site.region,
    )
