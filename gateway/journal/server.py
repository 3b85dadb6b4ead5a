"""The committer's process: its lock, its socket, its clients' sessions.

One process holds the `flock` of the site's lock file, and it alone writes. The kernel drops the lock with the
process, however it ends; so a successor never meets a predecessor that still writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gateway.errors import EntrepotError, Misconfigured
from gateway.journal import session_commands
from gateway.journal.batch import Answer, Job
from gateway.journal.codec import COMMAND_CODEC
from gateway.journal.commands import CommandTable
from gateway.journal.committing import Committing
from gateway.journal.leases import Leases
from gateway.journal.paths import JournalPaths
from gateway.journal.session_commands import EndSession, OpenSession
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.wire import Frames, Kind, error_out, frame

log = logging.getLogger(__name__)


def unobserved(commands: int, records: int, seconds: float) -> None:
    """Nobody counts."""


@dataclass(frozen=True)
class CommitterSettings:
    lease_seconds: float = 30.0
    idle_exit_seconds: float | None = None
    """Exit after so long without a session: for a committer that a library client started."""
    observe: Callable[[int, int, float], None] = unobserved
    """Told of each commit: its commands, its records, the seconds that it took."""


@contextlib.contextmanager
def held_lock(paths: JournalPaths) -> Any:
    """The site's lock, for as long as the block runs. Raises `Misconfigured` if another process holds it."""
    handle = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode().strip()
            raise Misconfigured(f"process {holder} commits to {paths.folder} already") from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


class Server:
    """Serves a store to the clients of one socket."""

    def __init__(self, store: SqliteStore, commands: CommandTable, paths: JournalPaths, settings: CommitterSettings):
        self._settings = settings
        self._paths = paths
        self.store = store
        self.leases = Leases(settings.lease_seconds)
        self.committing = Committing(
            store, {**session_commands.COMMANDS, **commands}, paths.folder, self._answered, settings.observe
        )
        self._connections: set[Connection] = set()
        self._last_session = time.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until *stop* is set; then make durable what was taken."""
        loop = asyncio.get_running_loop()
        self.leases.inherit(self.store.live_sessions(), time.monotonic())
        committing = asyncio.create_task(self.committing.run())
        expiring = asyncio.create_task(self._expire(stop))
        address = self._paths.socket()
        address.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listening = await loop.create_unix_server(lambda: Connection(self), str(address))
        finally:
            os.umask(before)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([committing, expiring, stopping], return_when=asyncio.FIRST_COMPLETED)
        listening.close()
        for task in (committing, expiring, stopping):
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]
            task.cancel()
        await asyncio.gather(committing, expiring, stopping, return_exceptions=True)
        address.unlink(missing_ok=True)
        for connection in list(self._connections):
            connection.close()
        self.committing.close()

    async def _expire(self, stop: asyncio.Event) -> None:
        """End the sessions whose lease ran out, and the process where nobody comes any more."""
        while True:
            await asyncio.sleep(min(1.0, self._settings.lease_seconds / 4))
            now = time.monotonic()
            for session in self.leases.expired(now):
                log.warning("session %x is over: nothing was heard of it for %g s", session, self.leases.seconds)
                self.leases.end(session)
                self.committing.own(EndSession(session), None)
            if len(self.leases):
                self._last_session = now
            idle = self._settings.idle_exit_seconds
            if idle is not None and now - self._last_session > idle:
                stop.set()

    def _answered(self, answers: Sequence[Answer]) -> None:
        """Hand the answers of a batch to their connections, one frame each."""
        by_connection: dict[Any, list[Answer]] = {}
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

    async def floor(self) -> int:
        """The lowest number at which anybody may still read."""
        now_ns = time.time_ns()
        pins = await self.committing.in_thread(lambda: self.store.pins(now_ns))
        return self.leases.floor(self.committing.durable, pins)


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._session = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by descent
        self._server.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.left(self)

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more from it."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        try:
            for length, found in self._frames.feed(data):
                self._take(length, found)
        except (ValueError, TypeError, IndexError) as error:
            log.warning("a client sent what is no frame: %s", error)
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _take(self, length: int, found: tuple[Any, ...]) -> None:
        kind, *values = found
        match kind:
            case Kind.SEND:
                self._send(values[0], length)
            case Kind.BEAT:
                self._server.leases.beat(self._session, time.monotonic(), values[0])
                self._write(frame(Kind.BEATEN, self._server.committing.durable))
            case Kind.HELLO:
                self._hello(values[0], values[1])
            case Kind.FLOORS:
                self._later(self._floors(values[0]))
            case Kind.PIN:
                self._later(self._pin(*values))
            case Kind.GOODBYE:
                self._server.leases.end(self._session)
                done = frame(Kind.DONE, values[0], None)
                self._server.committing.own(EndSession(self._session), lambda _: self._write(done))
            case _:
                raise ValueError(f"a frame of kind {kind}")

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _floors(self, ask: int) -> None:
        self._write(frame(Kind.DONE, ask, await self._server.floor()))

    async def _pin(self, ask: int, name: str, number: int, until_ns: int) -> None:
        await self._server.committing.in_thread(lambda: self._server.store.pin(name, number, until_ns))
        self._write(frame(Kind.DONE, ask, None))

    def _hello(self, kind: str, session: int) -> None:
        if session == 0:
            self._server.committing.own(OpenSession(kind), self._opened)
        elif self._server.leases.knows(session):
            self._welcome(session)
        else:
            self._write(frame(Kind.OVER, session))

    def _opened(self, answer: Answer) -> None:
        if answer.error is not None:
            log.error("no session could be opened: %s", answer.error)
            self.close()
            return
        self._server.leases.open(answer.value, self._server.committing.durable, time.monotonic())
        self._welcome(answer.value)

    def _welcome(self, session: int) -> None:
        self._session = session
        self._server.leases.beat(session, time.monotonic())
        self._write(frame(Kind.WELCOME, session, self._server.leases.seconds, self._server.committing.durable))

    def _send(self, commands: Sequence[tuple[int, int, tuple[Any, ...]]], length: int) -> None:
        size = length // max(1, len(commands))
        self._server.leases.beat(self._session, time.monotonic())
        refused = []
        for slot, number, flat in commands:
            try:
                command = COMMAND_CODEC.make(flat)
                self._server.committing.add(Job(self._session, slot, number, command, size, self))
            except EntrepotError as error:
                refused.append((slot, number, *error_out(error)))
        if refused:
            self._write(frame(Kind.ANSWERS, refused))

    def answer(self, answers: Sequence[Answer]) -> None:
        """Send what came of this client's jobs."""
        flat = []
        for job, value, error in answers:
            name, payload = ("", value) if error is None else error_out(error)
            flat.append((job.slot, job.number, name, payload))
        self._write(frame(Kind.ANSWERS, flat))


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
        store = SqliteStore(paths.database)
        try:
            server = Server(store, commands, paths, settings)
            uvloop.run(run())
        finally:
            store.close()
