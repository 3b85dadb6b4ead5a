"""A process's connection to the committer: its session, its commands, and the horizon of its reads.

**Theory of operation.** The client connects, and connects again whenever the connection is lost. After `HELLO` the
committer answers `WELCOME`, with a new session or with the one that the client had, or `OVER` if that session has
ended. In the latter case the client opens a new session.

A command is sent under a slot of the session and a number that the slot has never had before. All commands of one turn
of the event loop are sent in one frame. The slot is occupied until the command is answered, even if its caller is
cancelled. When the connection is lost, unanswered commands are sent again after the next `WELCOME` of the same session,
under the same (session, slot, number). The committer stores the last answer of each slot, so each command is run once.

Invariants: a command is sent only under the session under which it was first sent. If that session has ended, it is not
known whether the command was committed, and its caller gets `SessionExpired`. A caller that gets `Busy` or `DiskFull`
may assume that the command was not committed (`pending_commands.py`).

The commands that wait are bounded, in number and in bytes; beyond that a command is refused with `Busy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar, cast

from gateway.errors import CommitterGone, EntrepotError, Misconfigured
from gateway.journal.codec import COMMAND_CODEC
from gateway.journal.commands import HEAVY_WEIGHT, Command, weight_of
from gateway.journal.inline_values import AttachedValues
from gateway.journal.paths import JournalPaths
from gateway.journal.pending_commands import PendingCommand, PendingCommands
from gateway.journal.slots import TOO_MANY, WAITERS_MAX
from gateway.journal.turns import Turns
from gateway.journal.wire import Accepts, FrameKind, FrameReader, decode_error, frame, pack_command, send_frames
from gateway.timing import Timing, timing_from_environment

R = TypeVar("R")

log = logging.getLogger(__name__)

HEAVY_SLOTS = 64
"""Slots that heavy commands (`commands.HEAVY_WEIGHT`) may occupy. The others are left for light commands, which are
answered sooner."""
CLOSED = "this connection to the committer was closed"


class Journal(asyncio.Protocol):
    """The client of a journal's committer: `journal = await Journal.open(folder, kind)`, then
    `await journal.send(command)`. For one event loop of one process; a forked child must open its own."""

    def __init__(self, folder: Path, kind: str, timing: Timing) -> None:
        self.timing = timing
        self._paths = JournalPaths(folder)
        self._kind = kind
        self._pid = os.getpid()
        self.session = 0
        """The session's id, with which the ids of this process's blocks begin. It changes when a session is lost; it is
        0 while there is none."""
        self.on_session_lost: list[Callable[[int], None]] = []
        """Functions that are called with the id of a session that has ended. The client opens a new one by itself."""
        self._refused = ""
        self._refused_with: type[EntrepotError] = Misconfigured
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader()
        self._welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost = asyncio.Event()
        self._heavy = Turns(deque(range(HEAVY_SLOTS)), WAITERS_MAX, TOO_MANY)
        self.attached = AttachedValues()
        """Values of blocks, which commands that name these blocks bring along."""
        self._pending = PendingCommands()
        self._outgoing: list[PendingCommand] = []  # those to send at the end of this turn of the event loop
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._requests_count = 0
        self._head = 0  # the greatest number of a durable record that the committer has reported
        self._reads: Counter[int] = Counter()
        self._lease_seconds = 30.0
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    @classmethod
    async def open(cls, folder: Path, kind: str, timing: Timing | None = None) -> Journal:
        """Connect to the committer of *folder* and open a session. *timing* defaults to what the environment sets.

        Raises `CommitterGone` if no committer answers within `answer_seconds`."""
        timing = timing or timing_from_environment()
        journal = cls(folder, kind, timing)
        journal._tasks += (asyncio.create_task(journal._keep_connected()), asyncio.create_task(journal._beat()))
        try:
            async with asyncio.timeout(timing.journal.answer_seconds):
                await journal._welcome
        except BaseException as error:
            await journal.close()
            if isinstance(error, TimeoutError):
                raise CommitterGone(f"no committer answers for {folder}") from None
            raise
        return journal

    @property
    def connected(self) -> bool:
        """Whether a committer is connected and knows this session."""
        return self._transport is not None and self._welcome.done()

    async def wait_until_lost(self) -> None:
        """Wait until the connection to the committer is lost. Returns at once if there is none."""
        if self._transport is not None:
            await self._lost.wait()

    # --- commands -----------------------------------------------------------------------------------------------------

    async def send(self, command: Command[R]) -> R:
        """Send *command* and return its answer once it is durable. A NamedTuple is returned as such.

        Raises the error that refused the command; `Busy` if too many commands wait; `CommitterGone` if no answer
        arrives (the command may still be committed), or after `close`; `SessionExpired` if the session ended before an
        answer arrived; after `refuse`, the error that it names."""
        if os.getpid() != self._pid:
            raise CommitterGone("this connection was opened before a fork: open another one")
        if weight_of(command) < HEAVY_WEIGHT:
            return await self._send(command)
        slot = await self._heavy.acquire(_user_of(command), self.timing.journal.slot_seconds)
        try:
            return await self._send(command)
        finally:
            self._heavy.release(slot)

    async def _send(self, command: Command[R]) -> R:
        slot, number = await self._pending.slots.acquire(_user_of(command), self.timing.journal.slot_seconds)
        try:
            if self._closing:
                raise CommitterGone(CLOSED)
            if self._refused:
                raise self._refused_with(self._refused)
            packed = pack_command(slot, number, COMMAND_CODEC.to_tuple(command), self.attached.of(command))
            pending = self._pending.add(slot, number, packed, self.timing.clock.monotonic())
        except BaseException:
            self._pending.slots.release(slot)
            raise
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(pending)
        # If the caller is cancelled, only the future is: the command may be on its way, and its slot is released when
        # the committer answers it.
        answer = await pending.answer
        convert = type(command).ANSWER
        return answer if convert is None else convert(answer)  # type: ignore[no-any-return]

    def refuse(self, why: str, error: type[EntrepotError] = Misconfigured) -> None:
        """Send no commands from now on, since this journal must not grow. Callers get *error*, with the message
        *why*."""
        self._refused, self._refused_with = why, error

    def _flush(self) -> None:
        """Send the commands of this turn of the event loop in one frame. Before a `WELCOME` nothing is sent; then all
        pending commands are."""
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None and self._welcome.done():
            self._write_commands(outgoing)

    def _write_commands(self, outgoing: list[PendingCommand]) -> None:
        assert self._transport is not None
        for pending in outgoing:
            pending.session = pending.session or self.session
        of_session = [pending for pending in outgoing if pending.session == self.session]
        for pending in of_session:
            pending.times_sent += 1
        for framed in send_frames(pending.packed for pending in of_session):
            self._transport.write(framed)

    def _overdue_since(self) -> float:
        """Commands from before this time, by the monotonic clock, have waited for `answer_seconds`."""
        return self.timing.clock.monotonic() - self.timing.journal.answer_seconds

    def _no_answer(self) -> str:
        return f"no answer from the committer of {self._paths.folder} within {self.timing.journal.answer_seconds:g} s"

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it
        self._frames = FrameReader()
        self._transport.write(frame(FrameKind.HELLO, self._kind, self.session))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        requests, self._requests = self._requests, {}
        for answer in requests.values():
            if not answer.done():
                answer.set_exception(CommitterGone("the connection to the committer was lost"))
        self._lost.set()

    def data_received(self, data: bytes) -> None:
        for _, (kind, *values) in self._frames.feed(data):
            match kind:
                case FrameKind.ANSWERS:
                    self._pending.receive(values[0])
                    self.attached.accepted = len(values) > 1 and values[1] >= Accepts.ONCE_IN_FRAME
                case FrameKind.BEATEN:
                    self._head = max(self._head, values[0])
                case FrameKind.WELCOME:
                    self._welcomed(*values)
                case FrameKind.OVER:
                    self._session_ended(values[0])
                case FrameKind.DONE | FrameKind.FAILED:
                    answer = self._requests.pop(values[0], None)
                    if answer is not None and not answer.done():
                        if kind == FrameKind.DONE:
                            answer.set_result(values[1])
                        else:
                            answer.set_exception(decode_error(values[1], values[2]))

    def _welcomed(self, session: int, lease_seconds: float, head: int) -> None:
        self.session = session
        self._lease_seconds = lease_seconds
        self._head = max(self._head, head)
        if not self._welcome.done():
            self._welcome.set_result(None)
        self._pending.drop_abandoned(self._overdue_since())
        self._outgoing.clear()
        self._write_commands(list(self._pending.by_slot.values()))

    def _session_ended(self, session: int) -> None:
        """The committer has ended *session*. Its unanswered commands may or may not have been committed."""
        if session != self.session:
            return
        log.warning("the session %x is over; what it wrote and did not commit is lost", session)
        self.session = 0
        self._pending.fail_session(session)
        for callback in self.on_session_lost:
            callback(session)
        if self._transport is not None and not self._closing:
            self._welcome = asyncio.get_running_loop().create_future()
            self._transport.write(frame(FrameKind.HELLO, self._kind, 0))

    async def _keep_connected(self) -> None:
        """Connect, and connect again whenever the connection is lost, until `close`."""
        loop = asyncio.get_running_loop()
        while not self._closing:
            self._lost.clear()
            try:
                await loop.create_unix_connection(lambda: self, str(self._paths.socket()))
            except OSError:
                await self.timing.clock.sleep(self.timing.journal.reconnect_seconds)
                continue
            await self._lost.wait()
            if self._welcome.done():
                self._welcome = loop.create_future()
            await self.timing.clock.sleep(self.timing.journal.reconnect_seconds / 5)

    # --- reads --------------------------------------------------------------------------------------------------------

    def reading(self) -> ReadHorizon:
        """Return a context for a read: nothing that was alive on entry is deleted before the exit."""
        return ReadHorizon(self._reads, self._head)

    async def _beat(self) -> None:
        """Renew the lease and report the horizon, several times per lease, until cancelled."""
        while True:
            await self.timing.clock.sleep(min(self.timing.journal.beat_seconds, self._lease_seconds / 5))
            self._pending.fail_older(self._overdue_since(), self._no_answer())
            if self._transport is not None and self.session:
                self._transport.write(frame(FrameKind.BEAT, min(self._reads, default=self._head)))

    async def horizons(self, *, pins: bool = True) -> int:
        """Return the lowest record number at which any session may still read. What died at it or before is not read
        any more. Without *pins*, the pins of backups do not count: a backup reads no block until it is restored."""
        return int(await self._request(FrameKind.HORIZONS, pins))

    async def pin(self, name: str, number: int, until_ns: int) -> None:
        """Keep the bytes of what dies after record *number* until *until_ns* by the wall clock, since the backup *name*
        refers to them. Raises as `send` after `refuse`."""
        if self._refused:
            raise self._refused_with(self._refused)
        await self._request(FrameKind.PIN, name, number, until_ns)

    async def _request(self, kind: FrameKind, *values: Any) -> Any:
        """Send a frame that is not a command, and return the answer to it. Raises `CommitterGone`."""
        if self._transport is None:
            raise CommitterGone("the connection to the committer was lost")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests_count = number = self._requests_count + 1
        requests = self._requests
        requests[number] = answer
        self._transport.write(frame(kind, number, *values))
        try:
            # Not asyncio.wait_for: that of Python 3.11 loses a cancellation that arrives together with the answer, as
            # it
            # does if the supervisor and the committer die at once. A process that should end would then run on forever.
            async with asyncio.timeout(self.timing.journal.answer_seconds):
                return await answer
        except TimeoutError:
            raise CommitterGone(self._no_answer()) from None
        finally:
            requests.pop(number, None)

    async def close(self) -> None:
        """End the session and close the connection. Blocks that the session did not name may be deleted then. Callers
        that still wait for an answer get `CommitterGone`. If `close` is cancelled, it releases everything all the
        same."""
        self._closing = True
        try:
            with contextlib.suppress(EntrepotError):
                if self._transport is not None and self.session:
                    await self._request(FrameKind.GOODBYE)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._transport is not None:
                self._transport.close()
            self._pending.fail_all(CLOSED)
        await asyncio.gather(*self._tasks, return_exceptions=True)


class ReadHorizon:
    """Holds the horizon at a record number while it is entered. Not a generator-based context, since each GET makes one
    and a class is faster."""

    __slots__ = ("_number", "_reads")

    def __init__(self, reads: Counter[int], number: int) -> None:
        self._reads = reads
        self._number = number

    def __enter__(self) -> None:
        self._reads[self._number] += 1

    def __exit__(self, *_: object) -> None:
        others = self._reads[self._number] - 1
        if others:
            self._reads[self._number] = others
        else:
            del self._reads[self._number]


def _user_of(command: Any) -> Hashable:
    """The user for whom *command* is sent; 0 if it is sent for no particular user."""
    user: Hashable = getattr(command, "user", 0)
    return user
