"""The committer's side of one client's connection: it decodes frames, and encodes answers.

The commands that a client has sent and that are not answered yet are bounded; beyond that a command is answered with
`Busy`. If a client does not read its answers, the committer stops reading from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, cast

from gateway.errors import Busy, EntrepotError, SessionExpired
from gateway.journal.codec import COMMAND_CODEC
from gateway.journal.inline_values import Attachment
from gateway.journal.server.batch import CommandResult, Job
from gateway.journal.server.committer import Committer
from gateway.journal.wire import (
    SLOTS_MAX,
    Accepts,
    FrameKind,
    FrameReader,
    attachment_of,
    encode_error,
    frame,
    read_values,
)

log = logging.getLogger(__name__)

SentCommand = tuple[Any, ...]
"""See `SEND` in `wire.py`."""
COMMANDS_MAX = 1024
"""How many commands of one connection may wait."""


class ServerConnection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._frames = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._session = 0
        """0: none is open."""
        self._pending = 0
        """Commands that wait."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it
        self._committer.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._committer.connections.discard(self)

    def pause_writing(self) -> None:
        """The client does not read its answers: stop reading from it."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        try:
            for length, values in self._frames.feed(data):
                self._handle(length, values)
        except (ValueError, TypeError, IndexError) as error:
            log.warning("a client sent an invalid frame: %s", error)
            self.close()

    def close(self) -> None:
        """Close the connection once all data written to it has been sent."""
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _handle(self, length: int, frame_values: tuple[Any, ...]) -> None:
        kind, *values = frame_values
        match kind:
            case FrameKind.SEND:
                self._send(values[0], values[1] if len(values) > 1 else (), length)
            case FrameKind.BEAT:
                self._beat(values[0])
            case FrameKind.HELLO:
                self._hello(values[0], values[1])
            case FrameKind.HORIZONS:
                self._write(frame(FrameKind.DONE, values[0], self._committer.horizon(pins=bool(values[1]))))
            case FrameKind.PIN:
                self._committer.spawn(self._pin(*values))
            case FrameKind.GOODBYE:
                # The session is forgotten here first: a beat that arrives later must not be answered with OVER.
                session, self._session = self._session, 0
                done = frame(FrameKind.DONE, values[0], None)
                self._committer.end_session(session, lambda: self._write(done))
            case _:
                raise ValueError(f"a frame of kind {kind}")

    async def _pin(self, request: int, name: str, number: int, until_ns: int) -> None:
        try:
            await self._committer.pin(name, number, until_ns)
        except EntrepotError as error:
            self._write(frame(FrameKind.FAILED, request, *encode_error(error)))
        else:
            self._write(frame(FrameKind.DONE, request, None))

    # --- its session --------------------------------------------------------------------------------------------------

    def _hello(self, kind: str, session: int) -> None:
        if session == 0:
            self._committer.open_session(kind, self._opened)
        elif self._committer.leases.knows(session):
            self._welcome(session)
        else:
            self._write(frame(FrameKind.OVER, session))

    def _opened(self, session: int | None) -> None:
        if session is None:
            self.close()
        else:
            self._welcome(session)

    def _welcome(self, session: int) -> None:
        leases = self._committer.leases
        self._session = session
        leases.renew(session, self._committer.clock.monotonic())
        self._write(frame(FrameKind.WELCOME, session, leases.seconds, self._committer.durable))

    def _beat(self, horizon: int) -> None:
        if not self._session:
            return
        if not self._committer.leases.knows(self._session):
            self.notify_session_ended(self._session)
            return
        self._committer.leases.renew(self._session, self._committer.clock.monotonic(), horizon)
        self._write(frame(FrameKind.BEATEN, self._committer.durable))

    def notify_session_ended(self, session: int) -> None:
        """Report the end of *session* to the client, if it is the client's own session."""
        if session == self._session:
            self._session = 0
            self._write(frame(FrameKind.OVER, session))

    # --- its commands -------------------------------------------------------------------------------------------------

    def _send(self, commands: Sequence[SentCommand], sent_values: Sequence[tuple[Any, ...]], length: int) -> None:
        values = read_values(sent_values)
        size = length // max(1, len(commands))
        self._committer.leases.renew(self._session, self._committer.clock.monotonic())
        refused = []
        for slot, number, flat, *references in commands:
            try:
                attachment = attachment_of(references[0], values) if references else ()
                self._queue(slot, number, flat, size, attachment)
            except EntrepotError as error:
                refused.append((slot, number, *encode_error(error)))
        if refused:
            self._write(frame(FrameKind.ANSWERS, refused))

    def _queue(self, slot: int, number: int, flat: tuple[Any, ...], size: int, attachment: Attachment) -> None:
        if not self._session:
            raise SessionExpired(0)
        if not 0 <= slot < SLOTS_MAX:
            raise ValueError(f"slot {slot}")
        if self._pending >= COMMANDS_MAX:
            raise Busy("the committer's queue for this process")
        command = COMMAND_CODEC.from_tuple(flat)
        self._committer.group.add(Job(self._session, slot, number, command, size, self, attachment))
        self._pending += 1

    def deliver(self, results: Sequence[CommandResult]) -> None:
        """Send the results of some of this client's commands."""
        self._pending -= len(results)
        answers = []
        for job, value, error in results:
            code, payload = ("", value) if error is None else encode_error(error)
            answers.append((job.slot, job.number, code, payload))
        accepts = Accepts.ONCE_IN_FRAME if self._committer.group.accepts_values else Accepts.NONE
        self._write(frame(FrameKind.ANSWERS, answers, int(accepts)))
