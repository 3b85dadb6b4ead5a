"""The committer's process: its start, its socket, and the expiry of sessions.

**Each start draws a fencing token**, and makes it durable before the socket accepts connections (`DrawToken`). The
keeper stamps the token on the backends, and every process that deletes there obeys the stamp
(`gateway/site/storage/fencing.py`). If the process is killed before the token is durable, no client was served. If it
is killed later, the next start draws another token, and the backends still have an older one of this history.

**A start may be that of a copy.** The folder may have been cloned, restored from a snapshot, or moved to another
machine. Then the original may go on with the sessions that this journal believes to be open, and name blocks under
their ids. Whether that is possible follows from where the journal was last used (`whereabouts`). If it is possible:

- A session that this start inherits ends as one that was never *seen*, unless its process reconnects here. What is
  stored under its id is kept for the grace period.
- What dies in this history is kept for the same time by a pin, since the original may still name it.

The pin is durable before the token is. Without the token, the next start finds the same whereabouts as this one, and
pins again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway import failpoints
from gateway.errors import DiskFull, Misconfigured
from gateway.journal import session_commands
from gateway.journal.commands import CommandTable
from gateway.journal.lock import hold_lock
from gateway.journal.paths import JournalPaths
from gateway.journal.server.batch import CommandResult
from gateway.journal.server.committer import Committer
from gateway.journal.server.connection import ServerConnection
from gateway.journal.server.leases import Leases
from gateway.journal.server.reserve import RESERVE_BYTES, Reserve
from gateway.journal.session_commands import DrawToken
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.whereabouts import FORK_GRACE_SECONDS, FORK_PIN, whereabouts
from gateway.timing import Timing

__all__ = ["CommitterSettings", "Server", "hold_lock", "open_store", "serve"]

NONCE_BYTES = 16

log = logging.getLogger(__name__)


def _no_observer(commands: int, records: int, seconds: float) -> None:
    """Ignore a commit."""


@dataclass(frozen=True)
class CommitterSettings:
    lease_seconds: float = 30.0
    idle_exit_seconds: float | None = None
    """Exit after this time without a session: for a committer that a library client started. None: never."""
    observe: Callable[[int, int, float], None] = _no_observer
    """Called after each commit, in the thread that wrote it, with the number of commands, the number of records and the
    seconds that it took."""
    reserve_bytes: int = RESERVE_BYTES
    """Space on the journal's disk that is reserved for deletions."""
    fork_grace_seconds: float = FORK_GRACE_SECONDS
    """After a start that may be that of a copy: for how long nothing is deleted that the original may name."""
    timing: Timing = field(default_factory=Timing)


class Server:
    """Serves a store to the clients of one socket."""

    def __init__(self, store: SqliteStore, commands: CommandTable, paths: JournalPaths, settings: CommitterSettings):
        self._settings = settings
        self.clock = settings.timing.clock
        self._paths = paths
        self.store = store
        self.committer = Committer(
            store,
            {**session_commands.COMMANDS, **commands},
            Reserve(paths.reserve, settings.reserve_bytes),
            settings.observe,
            lease_seconds=settings.lease_seconds,
            timing=settings.timing,
        )
        self._last_session = self.clock.monotonic()

    @property
    def leases(self) -> Leases:
        """The leases of the clients' sessions."""
        return self.committer.leases

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until *stop* is set, then commit and answer what was accepted. Raises the error of a commit that
        failed: the process must end then, and its successor finds out what is durable."""
        self._paths.socket().unlink(missing_ok=True)  # a predecessor that was killed leaves its socket
        self.committer.drop_slots()
        committing = asyncio.create_task(self.committer.group.run())
        serving = asyncio.create_task(self._serve(stop))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((committing, serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            self.committer.group.stop()
            await committing
        finally:
            for task in (committing, serving, stopping):
                task.cancel()
            await asyncio.gather(committing, serving, stopping, return_exceptions=True)
            self._paths.socket().unlink(missing_ok=True)
            for connection in list(self.committer.connections):
                connection.close()

    async def _serve(self, stop: asyncio.Event) -> None:
        """Draw a token, then accept connections and end expired sessions, until cancelled."""
        await self._begin()
        listening = await self._listen()
        try:
            await self._expire_sessions(stop)
        finally:
            listening.close()

    # --- the start ----------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Inherit the sessions of the last committer, and draw a token. Retries while the disk is full."""
        here, before, live = whereabouts(self._paths), self.store.token(), self.store.live_sessions()
        known = (
            before.first_id if before is not None and before.whereabouts == here != "" else self.store.head().next_id
        )
        unseen = frozenset(session for session in live if session < known)
        self.leases.inherit(live, self.clock.monotonic(), unseen)
        while self.store.is_founded():  # otherwise `init` is about to found the site, and no copy can exist
            try:
                if unseen:
                    await self.committer.group.in_thread(self._pin_for_original)
                await self._draw_token(here)
            except DiskFull:
                log.warning("no fencing token is drawn for now: the journal's disk is full")
                await self.clock.sleep(self._settings.timing.journal.draw_again_seconds)
            else:
                return

    def _pin_for_original(self) -> None:
        """Pin what dies from now on for the grace period: the original of this journal may name it."""
        seconds = self._settings.fork_grace_seconds
        log.warning(
            "this journal was last used elsewhere, or on an earlier boot of this machine, by processes that may still "
            "use a copy of it: what they may refer to is kept for %g h (journal.fork_grace_hours)", seconds / 3_600
        )  # fmt: skip
        number = self.store.head().number
        now_ns = self.committer.group.clock.now_ns()
        self.store.pin(f"{FORK_PIN} {number}", number, now_ns + int(seconds * 1e9), now_ns)

    async def _draw_token(self, here: str) -> None:
        """Raises `DiskFull`, and `Misconfigured` if no token can be drawn for another reason."""
        drawn: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        nonce = secrets.token_hex(NONCE_BYTES)
        self.committer.group.add_internal(
            DrawToken(nonce, secrets.randbits(63), here),
            lambda result: None if drawn.done() else drawn.set_result(result),
        )
        result = await drawn
        if isinstance(result.error, DiskFull):
            raise result.error
        if result.error is not None:
            raise Misconfigured(f"no fencing token can be drawn: {result.error}")
        failpoints.reach("token-drawn")

    # --- serving ------------------------------------------------------------------------------------------------------

    async def _listen(self) -> asyncio.AbstractServer:
        """Listen on the socket, to which only this user may connect."""
        address = self._paths.socket()
        address.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            return await asyncio.get_running_loop().create_unix_server(
                lambda: ServerConnection(self.committer), str(address)
            )
        finally:
            os.umask(before)

    async def _expire_sessions(self, stop: asyncio.Event) -> None:
        """End the sessions whose lease expires. Set *stop* after `idle_exit_seconds` without a session."""
        interval = min(1.0, self._settings.lease_seconds / 4)
        checked = self.clock.monotonic()
        while True:
            await self.clock.sleep(interval)
            now = self.clock.monotonic()
            if now - checked > 2 * interval:
                # This process did not run: what its clients sent meanwhile has not been read yet.
                self.leases.extend_all(now - checked)
            checked = now
            self.committer.end_expired_sessions(now)
            if len(self.leases):
                self._last_session = now
            idle = self._settings.idle_exit_seconds
            if idle is not None and now - self._last_session > idle:
                stop.set()


def open_store(paths: JournalPaths, timing: Timing | None = None) -> SqliteStore:
    """Open the committer's store. If the disk has no space for SQLite's own files, the reserve is deleted for them.
    Raises `Misconfigured` for a newer schema, `DiskFull` if the space of the reserve does not suffice either."""
    try:
        return SqliteStore(paths.database, timing=timing)
    except DiskFull:
        paths.reserve.unlink(missing_ok=True)
        return SqliteStore(paths.database, timing=timing)


def serve(
    folder: Path,
    commands: CommandTable,
    settings: CommitterSettings,
    stop_on: Callable[[asyncio.AbstractEventLoop, asyncio.Event], None],
) -> None:
    """Run as the committer of the journal in *folder* until the event that *stop_on* gets is set. Raises
    `Misconfigured` if another process is the committer, or if the file has a newer schema."""
    import uvloop

    paths = JournalPaths(folder)

    async def run() -> None:
        stop = asyncio.Event()
        stop_on(asyncio.get_running_loop(), stop)
        await server.run(stop)

    with hold_lock(paths):
        store = open_store(paths, settings.timing)
        try:
            server = Server(store, commands, paths, settings)
            uvloop.run(run())
        finally:
            store.close()
