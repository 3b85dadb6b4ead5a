"""The committer's process: its socket, and its clients' sessions and leases.

**Each start draws a fencing token**, durably, before anybody is listened to (`DrawToken`); the keeper stamps it on the
backends, and whatever deletes there obeys the stamp (`gateway/site/storage/fencing.py`). Killed before the token is
durable, nobody was served; behind it, the next start draws another, and the places still bear an older one of this
history.

**A start may be that of a copy**: the folder was cloned, restored from a snapshot, or moved to another machine, and the
original may go on with the sessions that this journal believes to be open, and name blocks under their ids. Whether it
may is told by where the journal was used last (`whereabouts`). Where it may, such a session ends as one that was never
*seen*, unless its process comes back here, and what lies under its id is kept for the grace; and what dies in this
history is kept as long, by a pin, for whoever goes on with the original. The pin is durable before the token is, and
without the token the next start finds the same whereabouts as this one, and pins again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway import failpoints
from gateway.errors import DiskFull, Misconfigured
from gateway.journal import session_commands
from gateway.journal.commands import CommandTable
from gateway.journal.lock import held_lock
from gateway.journal.paths import JournalPaths
from gateway.journal.server.batch import Answer
from gateway.journal.server.connection import ServerConnection
from gateway.journal.server.group_commit import GroupCommitter
from gateway.journal.server.leases import Leases
from gateway.journal.server.reserve import RESERVE_BYTES, Reserve
from gateway.journal.session_commands import DrawToken, EndSession
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.whereabouts import FORK_GRACE_SECONDS, FORK_PIN, whereabouts
from gateway.timing import Timing

__all__ = ["CommitterSettings", "Server", "held_lock", "serve"]

"""Before a token that could not be made durable, since the disk is full, is drawn again."""
NONCE_BYTES = 16

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
    fork_grace_seconds: float = FORK_GRACE_SECONDS
    """How long nothing is deleted that another copy of this journal may name, after a start that may be a copy's."""
    timing: Timing = field(default_factory=Timing)


class Server:
    """Serves a store to the clients of one socket."""

    def __init__(self, store: SqliteStore, commands: CommandTable, paths: JournalPaths, settings: CommitterSettings):
        self._settings = settings
        self.clock = settings.timing.clock
        self._paths = paths
        self.store = store
        self.leases = Leases(settings.lease_seconds)
        self.committer = GroupCommitter(
            store,
            {**session_commands.COMMANDS, **commands},
            Reserve(paths.reserve, settings.reserve_bytes),
            self._answered,
            settings.observe,
            timing=settings.timing,
        )
        self._connections: set[ServerConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_session = self.clock.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until *stop* is set; then make durable, and answer, what was taken. Raises what a commit failed with:
        the process should end then, and a successor find out what stands."""
        self._paths.socket().unlink(missing_ok=True)  # a predecessor's, who was killed
        self._forget_slots()
        committing = asyncio.create_task(self.committer.run())
        serving = asyncio.create_task(self._serve(stop))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((committing, serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            self.committer.stop()
            await committing
        finally:
            for task in (committing, serving, stopping):
                task.cancel()
            await asyncio.gather(committing, serving, stopping, return_exceptions=True)
            self._paths.socket().unlink(missing_ok=True)
            for connection in list(self._connections):
                connection.close()

    async def _serve(self, stop: asyncio.Event) -> None:
        """Draw a token, then take connections and end sessions, until cancelled."""
        await self._begin()
        listening = await self._listen()
        try:
            await self._expire(stop)
        finally:
            listening.close()

    async def _begin(self) -> None:
        """Take the sessions over that a predecessor left, and draw a token. Retries while the disk is full."""
        here, before, live = whereabouts(self._paths), self.store.token(), self.store.live_sessions()
        known = (
            before.first_id if before is not None and before.whereabouts == here != "" else self.store.head().next_id
        )
        unseen = frozenset(session for session in live if session < known)
        self.leases.inherit(live, self.clock.monotonic(), unseen)
        while self.store.is_founded():  # or `init` is about to do that, and nobody else can use this journal
            try:
                if unseen:
                    await self.committer.in_thread(self._pin_for_the_original)
                await self._draw(here)
            except DiskFull:
                log.warning("no fencing token is drawn for now: the journal's disk is full")
                await self.clock.sleep(self._settings.timing.journal.draw_again_seconds)
            else:
                return

    def _pin_for_the_original(self) -> None:
        seconds = self._settings.fork_grace_seconds
        log.warning(
            "this journal was last used elsewhere, or on an earlier boot of this machine, by processes that may still "
            "go on with a copy of it: what they may name is kept for %g h (journal.fork_grace_hours)", seconds / 3_600
        )  # fmt: skip
        number = self.store.head().number
        now_ns = self.committer.clock.now_ns()
        self.store.pin(f"{FORK_PIN} {number}", number, now_ns + int(seconds * 1e9), now_ns)

    async def _draw(self, here: str) -> None:
        """Raises `DiskFull`, and `Misconfigured` where no token can be drawn."""
        drawn: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        nonce = secrets.token_hex(NONCE_BYTES)
        self.committer.own(
            DrawToken(nonce, secrets.randbits(63), here),
            lambda answer: None if drawn.done() else drawn.set_result(answer),
        )
        answer = await drawn
        if isinstance(answer.error, DiskFull):
            raise answer.error
        if answer.error is not None:
            raise Misconfigured(f"no fencing token can be drawn: {answer.error}")
        failpoints.reach("token-drawn")

    async def _listen(self) -> asyncio.AbstractServer:
        """Only this user may connect."""
        address = self._paths.socket()
        address.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            return await asyncio.get_running_loop().create_unix_server(lambda: ServerConnection(self), str(address))
        finally:
            os.umask(before)

    async def _expire(self, stop: asyncio.Event) -> None:
        """End the sessions whose lease ran out, and the process where nobody comes any more."""
        interval = min(1.0, self._settings.lease_seconds / 4)
        heard = self.clock.monotonic()
        while True:
            await self.clock.sleep(interval)
            now = self.clock.monotonic()
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
        """From now on it is not known; once that is durable, its horizon and its slots go, and *done* is called."""
        seen = self.leases.end(session)

        def ended(answer: Answer) -> None:
            failpoints.reach("session-ended")
            if answer.error is None:
                self.leases.ended(session)
            else:
                log.error("session %x could not be ended: %s", session, answer.error)
                self.leases.revive(session, self.clock.monotonic())
            self._later_forget_slots()
            done()

        self.committer.own(EndSession(session, seen), ended)

    def _later_forget_slots(self) -> None:
        task = asyncio.create_task(self.committer.in_thread(self._forget_slots))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget_slots(self) -> None:
        try:
            self.store.drop_slots()
        except DiskFull:
            log.warning("the slots of ended sessions stay for now: the journal's disk is full")

    def _answered(self, answers: Sequence[Answer]) -> None:
        """Hand the answers of a batch to their connections, one frame each."""
        by_connection: dict[ServerConnection, list[Answer]] = {}
        for answer in answers:
            waiter = answer.job.waiter
            if isinstance(waiter, ServerConnection):
                by_connection.setdefault(waiter, []).append(answer)
            elif waiter is not None:
                waiter(answer)
        for connection, some in by_connection.items():
            connection.answer(some)

    def joined(self, connection: ServerConnection) -> None:
        self._connections.add(connection)

    def left(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)

    async def pin(self, name: str, number: int, until_ns: int) -> None:
        """Keep what dies behind record *number* for as long as there is from now to *until_ns*, by the wall clock. That
        time is measured by the site's clock, so no wall clock that is put ahead later ends it. Raises `DiskFull`."""
        now_ns = self.committer.clock.now_ns()
        kept_until_ns = now_ns + until_ns - self.clock.wall_ns()
        await self.committer.in_thread(lambda: self.store.pin(name, number, kept_until_ns, now_ns))

    def horizon(self, *, pins: bool = True) -> int:
        """The lowest number at which anybody may still read: live sessions and, with *pins*, backups."""
        pinned = self.store.pins(self.committer.clock.now_ns()) if pins else []
        return self.leases.horizon(self.committer.durable, pinned)


def open_store(paths: JournalPaths, timing: Timing | None = None) -> SqliteStore:
    """The committer's store; where the disk has no room for SQLite's own files, they have the reserve's. Raises
    `Misconfigured` for a newer schema, `DiskFull` where there is no reserve left either."""
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
    """Be the committer of the journal in *folder* until *stop_on*'s event is set. Raises `Misconfigured` if another
    process is, or if the file is of a newer schema."""
    import uvloop

    paths = JournalPaths(folder)

    async def run() -> None:
        stop = asyncio.Event()
        stop_on(asyncio.get_running_loop(), stop)
        await server.run(stop)

    with held_lock(paths):
        store = open_store(paths, settings.timing)
        try:
            server = Server(store, commands, paths, settings)
            uvloop.run(run())
        finally:
            store.close()
