"""The committer's side of one client's connection: frames in, answers out.

What a client may have on its way is bounded; past that it is answered `Busy`. A client that does not read its answers
is not read from either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, cast

from gateway import failpoints
from gateway.errors import Busy, EntrepotError, SessionExpired
from gateway.journal.codec import COMMAND_CODEC
from gateway.journal.server.batch import Answer, Job
from gateway.journal.session_commands import OpenSession
from gateway.journal.wire import SLOTS_MAX, FrameKind, Frames, error_out, frame

if TYPE_CHECKING:
    from gateway.journal.server.server import Server

log = logging.getLogger(__name__)

COMMANDS_MAX = 1024
"""How many commands of one connection may wait."""


class ServerConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._session = 0
        self._pending = 0
        self._tasks: set[asyncio.Future[None]] = set()

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
        """What was written still goes out."""
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _take(self, length: int, found: tuple[Any, ...]) -> None:
        kind, *values = found
        match kind:
            case FrameKind.SEND:
                self._send(values[0], length)
            case FrameKind.BEAT:
                self._beat(values[0])
            case FrameKind.HELLO:
                self._hello(values[0], values[1])
            case FrameKind.HORIZONS:
                self._write(frame(FrameKind.DONE, values[0], self._server.horizon(pins=bool(values[1]))))
            case FrameKind.PIN:
                self._later(self._pin(*values))
            case FrameKind.GOODBYE:
                # A beat that crossed it on the way is no reason to tell of an end that was asked for.
                session, self._session = self._session, 0
                done = frame(FrameKind.DONE, values[0], None)
                self._server.end_session(session, lambda: self._write(done))
            case _:
                raise ValueError(f"a frame of kind {kind}")

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pin(self, ask: int, name: str, number: int, until_ns: int) -> None:
        try:
            await self._server.pin(name, number, until_ns)
        except EntrepotError as error:
            self._write(frame(FrameKind.FAILED, ask, *error_out(error)))
        else:
            self._write(frame(FrameKind.DONE, ask, None))

    # --- its session --------------------------------------------------------------------------------------------------

    def _hello(self, kind: str, session: int) -> None:
        if session == 0:
            self._server.committer.own(OpenSession(kind), self._opened)
        elif self._server.leases.knows(session):
            self._welcome(session)
        else:
            self._write(frame(FrameKind.OVER, session))

    def _opened(self, answer: Answer) -> None:
        if answer.error is not None:
            log.error("no session could be opened: %s", answer.error)
            self.close()
            return
        failpoints.reach("session-opened")
        self._server.leases.open(answer.value, self._server.committer.durable, self._server.clock.monotonic())
        self._welcome(answer.value)

    def _welcome(self, session: int) -> None:
        self._session = session
        self._server.leases.beat(session, self._server.clock.monotonic())
        self._write(frame(FrameKind.WELCOME, session, self._server.leases.seconds, self._server.committer.durable))

    def _beat(self, horizon: int) -> None:
        if not self._session:
            return
        if not self._server.leases.knows(self._session):
            self.told_over(self._session)
            return
        self._server.leases.beat(self._session, self._server.clock.monotonic(), horizon)
        self._write(frame(FrameKind.BEATEN, self._server.committer.durable))

    def told_over(self, session: int) -> None:
        """*session* has ended: tell the client, if it is its."""
        if session == self._session:
            self._session = 0
            self._write(frame(FrameKind.OVER, session))

    # --- its commands -------------------------------------------------------------------------------------------------

    def _send(self, commands: Sequence[tuple[int, int, tuple[Any, ...]]], length: int) -> None:
        size = length // max(1, len(commands))
        self._server.leases.beat(self._session, self._server.clock.monotonic())
        refused = []
        for slot, number, flat in commands:
            try:
                self._queue(slot, number, flat, size)
            except EntrepotError as error:
                refused.append((slot, number, *error_out(error)))
        if refused:
            self._write(frame(FrameKind.ANSWERS, refused))

    def _queue(self, slot: int, number: int, flat: tuple[Any, ...], size: int) -> None:
        if not self._session:
            raise SessionExpired(0)
        if not 0 <= slot < SLOTS_MAX:
            raise ValueError(f"slot {slot}")
        if self._pending >= COMMANDS_MAX:
            raise Busy("the committer's queue for this process")
        command = COMMAND_CODEC.from_tuple(flat)
        self._server.committer.add(Job(self._session, slot, number, command, size, self))
        self._pending += 1

    def answer(self, answers: Sequence[Answer]) -> None:
        """Send what came of this client's jobs."""
        self._pending -= len(answers)
        flat = []
        for job, value, error in answers:
            name, payload = ("", value) if error is None else error_out(error)
            flat.append((job.slot, job.number, name, payload))
        self._write(frame(FrameKind.ANSWERS, flat))
