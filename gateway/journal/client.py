"""A process's connection to the committer: its session, its commands, the floor of its reads.

A command is sent under a slot of the session and a number that the slot never used before. When the connection is
lost it is sent again to whoever commits then, under the same (session, slot, number), and so it is answered once.
What waits is bounded by the number of slots and of waiters; past that a command is refused with `Busy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from gateway.errors import Busy, CommitterGone, EntrepotError, SessionOver
from gateway.journal.codec import COMMAND_CODEC
from gateway.journal.paths import JournalPaths
from gateway.journal.wire import Frames, Kind, error_in, frame

log = logging.getLogger(__name__)

SLOTS = 256
WAITERS_MAX = 4096
GONE_SECONDS = 10.0
"""How long a command waits for a committer before it is refused."""
RETRY_SECONDS = 0.05


class _Sent:
    """A command that waits for its answer."""

    __slots__ = ("answer", "flat", "number", "session", "since", "slot")

    def __init__(self, session: int, slot: int, number: int, flat: Any, answer: asyncio.Future[Any]) -> None:
        self.session = session
        self.slot = slot
        self.number = number
        self.flat = flat
        self.answer = answer
        self.since = time.monotonic()


class Journal(asyncio.Protocol):
    """`await Journal.open(folder, kind)`; then `await journal.send(command)`."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._paths = JournalPaths(folder)
        self._kind = kind
        self.session = 0
        """The session's id, with which the ids of this process's blocks begin. Changes when a session is lost."""
        self.on_session_lost: list[Callable[[int], None]] = []
        """Called with the id of a session that is over; a new one is opened by itself."""
        self._transport: asyncio.Transport | None = None
        self._frames = Frames()
        self._free: deque[int] = deque(range(SLOTS))
        self._numbers = [0] * SLOTS
        self._waiting_for_slot: deque[asyncio.Future[None]] = deque()
        self._sent: dict[int, _Sent] = {}
        self._outgoing: list[_Sent] = []
        self._flushing = False
        self._welcome: asyncio.Future[None] | None = None
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._asks = 0
        self._seen = 0
        self._reads: Counter[int] = Counter()
        self._lease_seconds = 30.0
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    @classmethod
    async def open(cls, folder: Path, kind: str) -> Journal:
        """Open a session. Raises `CommitterGone` if nobody commits within some seconds."""
        journal = cls(folder, kind)
        await journal._connect(time.monotonic() + GONE_SECONDS)
        journal._tasks.append(asyncio.create_task(journal._beat()))
        return journal

    # --- commands -----------------------------------------------------------------------------------------------------

    async def send(self, command: Any) -> Any:
        """The command's answer, once it is durable. Raises what it was refused with; `Busy` where too many wait,
        `CommitterGone` where nobody commits, `SessionOver` where the session ended before it was known to commit."""
        slot = await self._slot()
        self._numbers[slot] += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        sent = _Sent(self.session, slot, self._numbers[slot], COMMAND_CODEC.flat(command), answer)
        self._sent[slot] = sent
        self._outgoing.append(sent)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        try:
            # A caller that goes away leaves its command on its way; the slot is free only once it was answered.
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(_forget)
            raise

    async def _slot(self) -> int:
        while not self._free:
            if len(self._waiting_for_slot) >= WAITERS_MAX:
                raise Busy("commands of this process")
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting_for_slot.append(turn)
            await turn
        return self._free.popleft()

    def _release(self, slot: int) -> None:
        self._free.append(slot)
        while self._waiting_for_slot:
            turn = self._waiting_for_slot.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _flush(self) -> None:
        """Send what came in this tick in one frame."""
        self._flushing = False
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None and not self._welcome_pending():
            self._write_commands(outgoing)

    def _write_commands(self, sent: list[_Sent]) -> None:
        mine = [each for each in sent if each.session == self.session and not each.answer.done()]
        if mine and self._transport is not None:
            packed = [(each.slot, each.number, each.flat) for each in mine]
            self._transport.write(frame(Kind.SEND, packed))

    def _welcome_pending(self) -> bool:
        return self._welcome is not None and not self._welcome.done()

    def _answers(self, answers: Any) -> None:
        for slot, number, name, payload in answers:
            sent = self._sent.get(slot)
            if sent is None or sent.number != number:
                continue
            del self._sent[slot]
            self._release(slot)
            if not sent.answer.done():
                if name:
                    sent.answer.set_exception(error_in(name, payload))
                else:
                    sent.answer.set_result(payload)

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by descent
        self._frames = Frames()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            if not answer.done():
                answer.set_exception(CommitterGone("the committer went away"))
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(CommitterGone("the committer went away"))
        elif not self._closing:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tasks.append(asyncio.ensure_future(self._reconnect()))

    def data_received(self, data: bytes) -> None:
        for _, (kind, *values) in self._frames.feed(data):
            match kind:
                case Kind.ANSWERS:
                    self._answers(values[0])
                case Kind.BEATEN:
                    self._seen = max(self._seen, values[0])
                case Kind.WELCOME:
                    self._welcomed(*values)
                case Kind.OVER:
                    self._over(values[0])
                case Kind.DONE:
                    asked = self._asked.pop(values[0], None)
                    if asked is not None and not asked.done():
                        asked.set_result(values[1])

    def _welcomed(self, session: int, lease_seconds: float, head: int) -> None:
        self.session = session
        self._lease_seconds = lease_seconds
        self._seen = max(self._seen, head)
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_result(None)
        self._outgoing.clear()
        self._write_commands(list(self._sent.values()))

    def _over(self, session: int) -> None:
        """The session ended without us. What is unanswered may or may not have been committed."""
        if session != self.session:
            return
        self.session = 0
        for slot, sent in list(self._sent.items()):
            del self._sent[slot]
            self._release(slot)
            if not sent.answer.done():
                sent.answer.set_exception(SessionOver(session))
        for told in self.on_session_lost:
            told(session)
        if self._transport is not None:
            self._transport.write(frame(Kind.HELLO, self._kind, 0))

    async def _connect(self, deadline: float) -> None:
        """Connect, and say who we are. Raises `CommitterGone` behind the deadline."""
        loop = asyncio.get_running_loop()
        while True:
            self._welcome = loop.create_future()
            try:
                await loop.create_unix_connection(lambda: self, str(self._paths.socket()))
                assert self._transport is not None
                self._transport.write(frame(Kind.HELLO, self._kind, self.session))
                await asyncio.wait_for(asyncio.shield(self._welcome), GONE_SECONDS)
            except (OSError, CommitterGone, TimeoutError) as error:
                if time.monotonic() > deadline:
                    raise CommitterGone(f"nobody commits to {self._paths.folder}: {error}") from error
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _reconnect(self) -> None:
        while not self._closing:
            try:
                await self._connect(time.monotonic() + GONE_SECONDS)
            except CommitterGone as gone:
                self._give_up(gone)
            else:
                return

    def _give_up(self, gone: EntrepotError) -> None:
        """Tell those that waited too long. Their slots stay taken until the session is over: they may be committed."""
        now = time.monotonic()
        for sent in self._sent.values():
            if not sent.answer.done() and now - sent.since >= GONE_SECONDS:
                sent.answer.set_exception(gone)

    # --- reads --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """A read in flight: nothing that was alive when it began is deleted before it ends."""
        number = self._seen
        self._reads[number] += 1
        try:
            yield
        finally:
            self._reads[number] -= 1
            if not self._reads[number]:
                del self._reads[number]

    async def _beat(self) -> None:
        """Renew the lease and raise the floor, several times a lease."""
        while True:
            await asyncio.sleep(min(1.0, self._lease_seconds / 5))
            if self._transport is not None and self.session:
                self._transport.write(frame(Kind.BEAT, min(self._reads, default=self._seen)))

    async def floors(self) -> int:
        """The lowest number at which anybody may still read: what died at it or before is out of everybody's sight."""
        return int(await self._ask(Kind.FLOORS))

    async def pin(self, name: str, number: int, until_ns: int) -> None:
        """Keep what dies behind *number* until then."""
        await self._ask(Kind.PIN, name, number, until_ns)

    async def _ask(self, kind: Kind, *values: Any) -> Any:
        if self._transport is None:
            raise CommitterGone("the committer went away")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asks += 1
        self._asked[self._asks] = answer
        self._transport.write(frame(kind, self._asks, *values))
        return await asyncio.wait_for(answer, GONE_SECONDS)

    async def close(self) -> None:
        """Say goodbye: the session ends, and what it did not name may go."""
        self._closing = True
        with contextlib.suppress(EntrepotError, TimeoutError):
            if self._transport is not None and self.session:
                await self._ask(Kind.GOODBYE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._transport is not None:
            self._transport.close()


def _forget(answer: asyncio.Future[Any]) -> None:
    """Nobody waits for this answer any more."""
    if not answer.cancelled():
        answer.exception()
