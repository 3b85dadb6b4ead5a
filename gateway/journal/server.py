"""The committer's process: its socket, and its clients' sessions and leases."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway import failpoints
from gateway.errors import DiskFull
from gateway.journal import session_commands
from gateway.journal.batch import Answer
from gateway.journal.commands import CommandTable
from gateway.journal.committing import Committing
from gateway.journal.connection import Connection
from gateway.journal.holding import held_lock
from gateway.journal.leases import Leases
from gateway.journal.paths import JournalPaths
from gateway.journal.reserve import RESERVE_BYTES, Reserve
from gateway.journal.session_commands import EndSession
from gateway.journal.sqlite.store import SqliteStore

__all__ = ["CommitterSettings", "Server", "held_lock", "serve"]

log = logging.getLogger(__name__)


def unobserved(commands: int, records: int, seconds: float) -> None:
    """Nobody counts."""


@dataclass(frozen=True)
class CommitterSettings:
    lease_seconds: float = 30.0
    idle_exit_seconds: float | None = None
    """Exit after so long without a session: for a committer that a library client started."""
    observe: Callable[[int, int, float], None] = unobserved
    """Told of each commit, in the commit thread: its commands, its records, the seconds that it took."""
    reserve_bytes: int = RESERVE_BYTES
    """Kept back on the journal's disk, for deletions."""


class Server:
    """Serves a store to the clients of one socket."""

    def __init__(self, store: SqliteStore, commands: CommandTable, paths: JournalPaths, settings: CommitterSettings):
        self._settings = settings
        self._paths = paths
        self.store = store
        self.leases = Leases(settings.lease_seconds)
        self.committing = Committing(
            store,
            {**session_commands.COMMANDS, **commands},
            Reserve(paths.reserve, settings.reserve_bytes),
            self._answered,
            settings.observe,
        )
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_session = time.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until *stop* is set; then make durable, and answer, what was taken. Raises what a commit failed with:
        the process should end then, and a successor find out what stands."""
        self.leases.inherit(self.store.live_sessions(), time.monotonic())
        self._forget_slots()
        committing = asyncio.create_task(self.committing.run())
        expiring = asyncio.create_task(self._expire(stop))
        stopping = asyncio.create_task(stop.wait())
        listening = await self._listen()
        try:
            await asyncio.wait((committing, expiring, stopping), return_when=asyncio.FIRST_COMPLETED)
            if expiring.done():
                expiring.result()
            listening.close()
            self.committing.stop()
            await committing
        finally:
            listening.close()
            for task in (committing, expiring, stopping):
                task.cancel()
            await asyncio.gather(committing, expiring, stopping, return_exceptions=True)
            self._paths.socket().unlink(missing_ok=True)
            for connection in list(self._connections):
                connection.close()

    async def _listen(self) -> asyncio.AbstractServer:
        """Only this user may connect."""
        address = self._paths.socket()
        address.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            return await asyncio.get_running_loop().create_unix_server(lambda: Connection(self), str(address))
        finally:
            os.umask(before)

    async def _expire(self, stop: asyncio.Event) -> None:
        """End the sessions whose lease ran out, and the process where nobody comes any more."""
        interval = min(1.0, self._settings.lease_seconds / 4)
        heard = time.monotonic()
        while True:
            await asyncio.sleep(interval)
            now = time.monotonic()
            if now - heard > 2 * interval:
                # This process stood still: what its clients sent meanwhile has not been read yet.
                self.leases.wait(now - heard)
            heard = now
            for session in self.leases.expired(now):
                log.warning("session %x is over: nothing was heard of it for %g s", session, self.leases.seconds)
                self.end_session(session)
                for connection in self._connections:
                    connection.told_over(session)
            if len(self.leases):
                self._last_session = now
            idle = self._settings.idle_exit_seconds
            if idle is not None and now - self._last_session > idle:
                stop.set()

    def end_session(self, session: int, done: Callable[[], None] = lambda: None) -> None:
        """From now on it is not known; once that is durable, its floor and its slots go, and *done* is called."""
        self.leases.end(session)

        def ended(answer: Answer) -> None:
            failpoints.reach("session-ended")
            if answer.error is None:
                self.leases.ended(session)
            else:
                log.error("session %x could not be ended: %s", session, answer.error)
                self.leases.revive(session, time.monotonic())
            self._later_forget_slots()
            done()

        self.committing.own(EndSession(session), ended)

    def _later_forget_slots(self) -> None:
        task = asyncio.create_task(self.committing.in_thread(self._forget_slots))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget_slots(self) -> None:
        try:
            self.store.drop_slots()
        except DiskFull:
            log.warning("the slots of ended sessions stay for now: the journal's disk is full")

    def _answered(self, answers: Sequence[Answer]) -> None:
        """Hand the answers of a batch to their connections, one frame each."""
        by_connection: dict[Connection, list[Answer]] = {}
        for answer in answers:
            waiter = answer.job.waiter
            if isinstance(waiter, Connection):
                by_connection.setdefault(waiter, []).append(answer)
            elif waiter is not None:
                waiter(answer)
        for connection, some in by_connection.items():
            connection.answer(some)

    def joined(self, connection: Connection) -> None:
        self._connections.add(connection)

    def left(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def floor(self, *, pins: bool = True) -> int:
        """The lowest number at which anybody may still read: live sessions and, with *pins*, backups."""
        pinned = self.store.pins(time.time_ns()) if pins else []
        return self.leases.floor(self.committing.durable, pinned)


def open_store(paths: JournalPaths) -> SqliteStore:
    """The committer's store; where the disk has no room for SQLite's own files, they have the reserve's. Raises
    `Misconfigured` for a newer schema, `DiskFull` where there is no reserve left either."""
    try:
        return SqliteStore(paths.database)
    except DiskFull:
        paths.reserve.unlink(missing_ok=True)
        return SqliteStore(paths.database)


def serve(
    folder: Path,
    commands: CommandTable,
    settings: CommitterSettings,
    stop_on: Callable[[asyncio.AbstractEventLoop, asyncio.Event], None],
) -> None:
    """Be the committer of the journal in *folder* until *stop_on*'s event is set. Raises `Misconfigured` if another
    process is, or if the file is of a newer schema."""
    import uvloop

    paths = JournalPaths(folder)

    async def run() -> None:
        stop = asyncio.Event()
        stop_on(asyncio.get_running_loop(), stop)
        await server.run(stop)

    with held_lock(paths):
        store = open_store(paths)
        try:
            server = Server(store, commands, paths, settings)
            uvloop.run(run())
        finally:
            store.close()
