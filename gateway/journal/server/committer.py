"""What the committer does for its clients: their sessions, leases, horizons and pins. Knows no sockets.

A session ends in three steps: from `end_session` on it is not known, and its later commands are refused; the command
`EndSession` is committed; then its horizon and its slots are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from gateway import failpoints
from gateway.errors import DiskFull
from gateway.journal.commands import CommandTable
from gateway.journal.server.batch import CommandResult
from gateway.journal.server.group_commit import GroupCommitter
from gateway.journal.server.leases import Leases
from gateway.journal.server.reserve import Reserve
from gateway.journal.session_commands import EndSession, OpenSession
from gateway.journal.sqlite.store import SqliteStore
from gateway.timing import Timing

log = logging.getLogger(__name__)


class ClientConnection(Protocol):
    """A client's connection, as far as the committer uses it. It is the `waiter` of its jobs."""

    def deliver(self, results: Sequence[CommandResult], /) -> None:
        """Send the results of some of this client's jobs."""

    def notify_session_ended(self, session: int, /) -> None:
        """Report the end of *session* to the client, if it is the client's own session."""

    def close(self) -> None: ...


class Committer:
    """Commits the commands of all clients, and keeps their sessions. For one event loop."""

    def __init__(
        self,
        store: SqliteStore,
        commands: CommandTable,
        reserve: Reserve,
        observe: Callable[[int, int, float], None],
        *,
        lease_seconds: float,
        timing: Timing,
    ) -> None:
        """*observe*: as of `GroupCommitter`."""
        self.clock = timing.clock
        self.store = store
        self.leases = Leases(lease_seconds)
        self.group = GroupCommitter(store, commands, reserve, self._deliver, observe, timing=timing)
        self.connections: set[ClientConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def durable(self) -> int:
        """The number of the last durable record."""
        return self.group.durable

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* as a task, which is referenced until it is done."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _deliver(self, results: Sequence[CommandResult]) -> None:
        """Pass the results of a batch to the waiters of its jobs; each connection gets all of its own in one call."""
        by_connection: dict[ClientConnection, list[CommandResult]] = {}
        for result in results:
            waiter = result.job.waiter
            if callable(waiter):
                waiter(result)
            elif waiter is not None:
                by_connection.setdefault(waiter, []).append(result)
        for connection, some in by_connection.items():
            connection.deliver(some)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def open_session(self, kind: str, opened: Callable[[int | None], None]) -> None:
        """Open a session. *opened* is called with its id once that is durable, or with None if it was refused."""

        def answered(result: CommandResult) -> None:
            if result.error is not None:
                log.error("no session could be opened: %s", result.error)
                opened(None)
                return
            failpoints.reach("session-opened")
            self.leases.open(result.value, self.durable, self.clock.monotonic())
            opened(result.value)

        self.group.add_internal(OpenSession(kind), answered)

    def end_session(self, session: int, done: Callable[[], None] = lambda: None) -> None:
        """End *session*: from now on it is not known. Once its end is durable, its horizon and its slots are dropped,
        and *done* is called."""
        seen = self.leases.end(session)

        def ended(result: CommandResult) -> None:
            failpoints.reach("session-ended")
            if result.error is None:
                self.leases.ended(session)
            else:
                log.error("session %x could not be ended: %s", session, result.error)
                self.leases.revive(session, self.clock.monotonic())
            self.spawn(self.group.in_thread(self.drop_slots))
            done()

        self.group.add_internal(EndSession(session, seen), ended)

    def end_expired_sessions(self, now: float) -> None:
        """End the sessions whose lease has expired at *now*, and tell their clients."""
        for session in self.leases.expired(now):
            log.warning("session %x is over: its client sent nothing for %g s", session, self.leases.seconds)
            self.end_session(session)
            for connection in self.connections:
                connection.notify_session_ended(session)

    def drop_slots(self) -> None:
        """Delete the slot rows of ended sessions. Called by the thread that writes the store."""
        try:
            self.store.drop_slots()
        except DiskFull:
            log.warning("the slots of ended sessions are kept for now: the journal's disk is full")

    # --- horizons and pins --------------------------------------------------------------------------------------------

    async def pin(self, name: str, number: int, until_ns: int) -> None:
        """Keep the bytes of what dies after record *number* for as long as from now to *until_ns* by the wall clock.
        That duration is measured by the site's clock, so a wall clock that is later put ahead does not end it early.
        Raises `DiskFull`."""
        now_ns = self.group.clock.now_ns()
        kept_until_ns = now_ns + until_ns - self.clock.wall_ns()
        await self.group.in_thread(lambda: self.store.pin(name, number, kept_until_ns, now_ns))

    def horizon(self, *, pins: bool = True) -> int:
        """Return the lowest record number at which a live session may still read or, with *pins*, a backup is
        pinned."""
        pinned = self.store.pins(self.group.clock.now_ns()) if pins else []
        return self.leases.horizon(self.durable, pinned)
