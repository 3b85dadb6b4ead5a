"""A process's connection to the committer: its session, its commands, the horizon of its reads.

A command is sent under a slot of the session and a number that the slot never used before. When the connection is
lost it is sent again to whoever commits then, under the same (session, slot, number), and so it is answered once.
What waits is bounded, in commands and in bytes; past that a command is refused with `Busy`.
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

from gateway.errors import Busy, CommitterGone, DiskFull, EntrepotError, Misconfigured, SessionExpired
from gateway.journal.codec import COMMAND_CODEC
from gateway.journal.commands import HEAVY_WEIGHT, Command, weight_of
from gateway.journal.paths import JournalPaths
from gateway.journal.slots import TOO_MANY, WAITERS_MAX, Slots
from gateway.journal.turns import Turns
from gateway.journal.wire import FrameKind, FrameReader, decode_error, frame, pack_command, send_frames
from gateway.timing import Timing, timing_from_environment

R = TypeVar("R")

log = logging.getLogger(__name__)

BYTES_MAX = 64 << 20
HEAVY_SLOTS = 64
"""Slots that heavy commands (`job_queue`) may take: the others are left to light ones, which are done sooner."""
CLOSED = "this connection to who commits was closed"


class _PendingCommand:
    """A command that waits for its answer."""

    __slots__ = ("answer", "number", "packed", "session", "since", "written")

    def __init__(self, number: int, packed: bytes, answer: asyncio.Future[Any], since: float) -> None:
        self.number = number
        self.packed = packed
        self.answer = answer
        self.session = 0
        """Under which it was first sent; 0: it never was."""
        self.since = since
        self.written = 0
        """How often it went out."""


class Journal(asyncio.Protocol):
    """`await Journal.open(folder, kind)`; then `await journal.send(command)`. For one event loop of one process: a
    forked child opens its own."""

    def __init__(self, folder: Path, kind: str, timing: Timing) -> None:
        self.timing = timing
        self._paths = JournalPaths(folder)
        self._kind = kind
        self._pid = os.getpid()
        self.session = 0
        """The session's id, with which the ids of this process's blocks begin. Changes when a session is lost; 0 while
        there is none."""
        self.on_session_lost: list[Callable[[int], None]] = []
        """Called with the id of a session that is over; a new one is opened by itself."""
        self._refused = ""
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader()
        self._welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost = asyncio.Event()
        self._slots = Slots()
        self._heavy = Turns(deque(range(HEAVY_SLOTS)), WAITERS_MAX, TOO_MANY)
        self._sent: dict[int, _PendingCommand] = {}
        self._sent_bytes = 0
        self._outgoing: list[_PendingCommand] = []
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._asks = 0
        self._seen = 0
        self._reads: Counter[int] = Counter()
        self._lease_seconds = 30.0
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    @classmethod
    async def open(cls, folder: Path, kind: str, timing: Timing | None = None) -> Journal:
        """Open a session. *timing*: what the environment says, unless given.

        Raises `CommitterGone` if nobody commits within some seconds."""
        timing = timing or timing_from_environment()
        journal = cls(folder, kind, timing)
        journal._tasks += (asyncio.create_task(journal._stay()), asyncio.create_task(journal._beat()))
        try:
            async with asyncio.timeout(timing.journal.answer_seconds):
                await journal._welcome
        except BaseException as error:
            await journal.close()
            if isinstance(error, TimeoutError):
                raise CommitterGone(f"nobody commits to {folder}") from None
            raise
        return journal

    @property
    def connected(self) -> bool:
        """Whether a committer is there, and knows this session."""
        return self._transport is not None and self._welcome.done()

    async def wait_until_lost(self) -> None:
        """Return once the connection to the committer is lost; at once if there is none."""
        if self._transport is not None:
            await self._lost.wait()

    # --- commands -----------------------------------------------------------------------------------------------------

    async def send(self, command: Command[R]) -> R:
        """The command's answer, once it is durable. Raises what it was refused with; `Busy` where too many wait,
        `CommitterGone` where no answer comes (it may be committed yet), `SessionExpired` where the session ended before
        it was known to commit. Where this was closed, that is `CommitterGone` as well; after `refuse`, it is
        `Misconfigured`."""
        if os.getpid() != self._pid:
            raise CommitterGone("this connection was opened before a fork: open another")
        if weight_of(command) < HEAVY_WEIGHT:
            return await self._send(command)
        slot = await self._heavy.acquire(_user_of(command), self.timing.journal.slot_seconds)
        try:
            return await self._send(command)
        finally:
            self._heavy.release(slot)

    async def _send(self, command: Command[R]) -> R:
        slot, number = await self._slots.acquire(_user_of(command), self.timing.journal.slot_seconds)
        try:
            if self._closing:
                raise CommitterGone(CLOSED)
            if self._refused:
                raise Misconfigured(self._refused)
            packed = pack_command(slot, number, COMMAND_CODEC.to_tuple(command))
            if self._sent_bytes + len(packed) > BYTES_MAX:
                raise Busy(TOO_MANY)
        except BaseException:
            self._slots.release(slot)
            raise
        loop = asyncio.get_running_loop()
        sent = _PendingCommand(number, packed, loop.create_future(), self.timing.clock.monotonic())
        self._sent[slot] = sent
        self._sent_bytes += len(packed)
        if not self._outgoing:
            loop.call_soon(self._flush)
        self._outgoing.append(sent)
        # A caller that goes away, which cancels the future and nothing else, leaves its command on its way; the slot is
        # free only once it was answered.
        answer = await sent.answer
        convert = type(command).ANSWER
        return answer if convert is None else convert(answer)  # type: ignore[no-any-return]

    def refuse(self, why: str) -> None:
        """Send nothing from here on: this journal must not grow. *why*: what callers are told."""
        self._refused = why

    def _done(self, slot: int) -> _PendingCommand:
        """Its slot is free again."""
        sent = self._sent.pop(slot)
        self._sent_bytes -= len(sent.packed)
        self._slots.release(slot)
        return sent

    def _flush(self) -> None:
        """Send what came in this tick in one frame. Before a welcome nothing goes out; then everything does."""
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None and self._welcome.done():
            self._write_commands(outgoing)

    def _write_commands(self, outgoing: list[_PendingCommand]) -> None:
        assert self._transport is not None
        for sent in outgoing:
            sent.session = sent.session or self.session
        mine = [sent for sent in outgoing if sent.session == self.session]
        for sent in mine:
            sent.written += 1
        for framed in send_frames([sent.packed for sent in mine]):
            self._transport.write(framed)

    def _answers(self, answers: Any) -> None:
        for slot, number, name, payload in answers:
            sent = self._sent.get(slot)
            if sent is None or sent.number != number:
                continue
            self._done(slot)
            if not sent.answer.done():
                if name:
                    sent.answer.set_exception(_judged(sent, decode_error(name, payload)))
                else:
                    sent.answer.set_result(payload)

    def _give_up(self) -> None:
        """Tell those that waited too long."""
        latest = self.timing.clock.monotonic() - self.timing.journal.answer_seconds
        for sent in self._sent.values():
            if sent.since < latest and not sent.answer.done():
                sent.answer.set_exception(CommitterGone(f"no answer from who commits to {self._paths.folder}"))

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by descent
        self._frames = FrameReader()
        self._transport.write(frame(FrameKind.HELLO, self._kind, self.session))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            if not answer.done():
                answer.set_exception(CommitterGone("the committer went away"))
        self._lost.set()

    def data_received(self, data: bytes) -> None:
        for _, (kind, *values) in self._frames.feed(data):
            match kind:
                case FrameKind.ANSWERS:
                    self._answers(values[0])
                case FrameKind.BEATEN:
                    self._seen = max(self._seen, values[0])
                case FrameKind.WELCOME:
                    self._welcomed(*values)
                case FrameKind.OVER:
                    self._over(values[0])
                case FrameKind.DONE | FrameKind.FAILED:
                    asked = self._asked.pop(values[0], None)
                    if asked is not None and not asked.done():
                        if kind == FrameKind.DONE:
                            asked.set_result(values[1])
                        else:
                            asked.set_exception(decode_error(values[1], values[2]))

    def _welcomed(self, session: int, lease_seconds: float, head: int) -> None:
        self.session = session
        self._lease_seconds = lease_seconds
        self._seen = max(self._seen, head)
        if not self._welcome.done():
            self._welcome.set_result(None)
        # Those whose callers were told that nobody commits are not sent again; nor, as late, those whose callers went.
        latest = self.timing.clock.monotonic() - self.timing.journal.answer_seconds
        for slot, sent in list(self._sent.items()):
            if sent.answer.done() and (sent.since < latest or not sent.answer.cancelled()):
                self._done(slot)
        self._outgoing.clear()
        self._write_commands(list(self._sent.values()))

    def _over(self, session: int) -> None:
        """The session ended without us. What it sent and got no answer for may or may not have been committed."""
        if session != self.session:
            return
        log.warning("the session %x is over; what it wrote and did not name is lost", session)
        self.session = 0
        for slot, sent in list(self._sent.items()):
            if sent.session == session:
                self._done(slot)
                if not sent.answer.done():
                    sent.answer.set_exception(SessionExpired(session))
        for told in self.on_session_lost:
            told(session)
        if self._transport is not None and not self._closing:
            self._welcome = asyncio.get_running_loop().create_future()
            self._transport.write(frame(FrameKind.HELLO, self._kind, 0))

    async def _stay(self) -> None:
        """Connect, and whenever the connection is lost, again."""
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
        """A read in flight: nothing that was alive when it began is deleted before it ends."""
        return ReadHorizon(self._reads, self._seen)

    async def _beat(self) -> None:
        """Renew the lease and raise the horizon, several times a lease."""
        while True:
            await self.timing.clock.sleep(min(self.timing.journal.beat_seconds, self._lease_seconds / 5))
            self._give_up()
            if self._transport is not None and self.session:
                self._transport.write(frame(FrameKind.BEAT, min(self._reads, default=self._seen)))

    async def horizons(self, *, pins: bool = True) -> int:
        """The lowest number at which anybody may still read: what died at it or before is out of everybody's sight.
        Without *pins*, backups are not asked: they read nothing before they are restored."""
        return int(await self._ask(FrameKind.HORIZONS, pins))

    async def pin(self, name: str, number: int, until_ns: int) -> None:
        """Keep the bytes of what dies behind *number* until then: the backup *name* refers to them."""
        await self._ask(FrameKind.PIN, name, number, until_ns)

    async def _ask(self, kind: FrameKind, *values: Any) -> Any:
        if self._transport is None:
            raise CommitterGone("the committer went away")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asks = number = self._asks + 1
        asked = self._asked
        asked[number] = answer
        self._transport.write(frame(kind, number, *values))
        try:
            # Not wait_for: Python 3.11's drops a cancellation that comes with the answer, as where the supervisor and
            # the committer die at once, and a process that should end goes on for ever.
            async with asyncio.timeout(self.timing.journal.answer_seconds):
                return await answer
        except TimeoutError:
            raise CommitterGone("the committer does not answer") from None
        finally:
            asked.pop(number, None)

    async def close(self) -> None:
        """Say goodbye: the session ends, and what it did not name may go. Who still waits for an answer is told that
        none comes. Cut short, it lets go of everything all the same."""
        self._closing = True
        try:
            with contextlib.suppress(EntrepotError):
                if self._transport is not None and self.session:
                    await self._ask(FrameKind.GOODBYE)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._transport is not None:
                self._transport.close()
            for slot, sent in list(self._sent.items()):
                self._done(slot)
                if not sent.answer.done():
                    sent.answer.set_exception(CommitterGone(CLOSED))
        await asyncio.gather(*self._tasks, return_exceptions=True)


class ReadHorizon:
    """Holds the horizon at a number while it is entered. A plain class: each GET makes one."""

    __slots__ = ("_number", "_reads")

    def __init__(self, reads: Counter[int], number: int) -> None:
        self._reads = reads
        self._number = number

    def __enter__(self) -> None:
        self._reads[self._number] += 1

    def __exit__(self, *_: object) -> None:
        left = self._reads[self._number] - 1
        if left:
            self._reads[self._number] = left
        else:
            del self._reads[self._number]


def _user_of(command: Any) -> Hashable:
    """For whom *command* is sent; 0 where it is nobody's in particular."""
    user: Hashable = getattr(command, "user", 0)
    return user


def _judged(sent: _PendingCommand, error: EntrepotError) -> EntrepotError:
    """What the caller is told. `Busy` and `DiskFull` say that this time it was not even looked at; if it went out
    before, that one may have been committed, or may yet be, so its caller must not take it for refused."""
    if sent.written > 1 and isinstance(error, Busy | DiskFull):
        return CommitterGone(f"no answer when it was first sent, and then: {error}")
    return error
