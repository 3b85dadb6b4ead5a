"""The sweeper: bytes go when nobody can ask for them any more.

**Dead blocks.** A block that died at number n is deleted once every live session, follower and backup sees at least
what n made: whoever looks anything up from then on finds no extent in it. It goes from each backend of its set, and
from those where a row of work says that bytes of it may lie besides; a backend that does not answer holds up nobody
but what lies there. Its row goes after its bytes, so a sweeper killed in between only deletes once more. What died may
come back to life only through a command of the session that wrote it, and that session holds its horizon below n until
all such commands are answered (see `placing`).

Where the place does not bear the journal's fence up to n yet, the block waits (`gateway/site/storage/fencing.py`).

**Sessions that ended.** A block is first named by a commit of the session that its id begins with; a command that
names somebody else's is refused. The end of a session is a record, and behind it its commits are refused. So when its
prefix is listed after that record, a key without a row has none and never will: it is deleted. One put may still be on
its way (a cancelled call may take effect later), so the prefix is listed a second time, after the longest deadline of
an upload; then the session is forgotten.

A session that ended unseen may belong to the original of a journal of which this one is a copy, which goes on to name
blocks under its id, in its own journal. So its prefix is listed only once the grace has passed, in which an operator
hears of the two copies and decides (`gateway/journal/server/server.py`).

Each backend is listed by itself and for a bounded time, and goes on behind the last key that was dealt with. One that
fails, or whose listing has no end, rests for a while and holds up nobody but the forgetting of sessions. A put that
lands behind that key is what the second listing is for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing

from backends import errors as backend_errors
from backends.base import Backend
from gateway import failpoints
from gateway.blocks.commands import DeadBlock, ForgetBlocks, ForgetSession, SweepSession
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Covers, Tables, WorkerJournal, no_fence
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.types import block_id_of, block_path, session_prefix
from gateway.journal.apply.work import ids_in
from gateway.journal.site_clock import SiteClock, moments
from gateway.journal.tables import SessionState
from gateway.journal.whereabouts import FORK_GRACE_SECONDS
from gateway.placement.backend_backoff import BackendBackoff
from gateway.timing import Timing

_DEAD = (
    "SELECT b.id, b.died, b.backends, w.strays FROM block b LEFT JOIN work w ON w.block = b.id "
    "WHERE b.died > 0 AND b.died <= ? AND (b.died, b.id) > (?, ?) ORDER BY b.died, b.id LIMIT ?"
)
_SESSIONS = (
    "SELECT id, state FROM session "
    "WHERE (state = 1 AND (seen = 1 OR ended_ns <= ?)) OR (state = 2 AND ended_ns < ?) ORDER BY id LIMIT ?"
)
BLOCKS = 256
"""Dead blocks of one step."""
AT_ONCE = 16
"""Deletions under way at a time."""
REFUSED_MAX = 1_024
"""Blocks that are remembered because a backend refused to delete them."""
KEYS = 256
"""Keys of a listing that are looked up at once."""

_log = logging.getLogger(__name__)


class Sweeper(Worker):
    """Deletes dead blocks, and what ended sessions left unnamed."""

    name = "sweeper"

    def __init__(
        self,
        store: Tables,
        journal: WorkerJournal,
        backends: Mapping[int, Backend],
        *,
        timing: Timing,
        fork_grace_seconds: float = FORK_GRACE_SECONDS,
        covers: Covers = no_fence,
    ) -> None:
        super().__init__(store, timing)
        self._journal = journal
        self._backends = backends
        self._lookup = Lookup(store, backends)
        self._site_clock = SiteClock(store.query, moments(timing.clock))
        self._upload_ns_max = int(timing.sweeper.upload_most_seconds * 1e9)
        self._covers = covers
        self._fork_grace_ns = int(fork_grace_seconds * 1e9)
        self._after = (0, b"")  # how far this pass over the dead has come
        pauses = timing.backend_backoff
        self._away: BackendBackoff[int] = BackendBackoff(timing.clock, pauses.first_seconds, pauses.most_seconds)
        """Backends on which nothing could be deleted."""
        self._refused: BackendBackoff[bytes] = BackendBackoff(timing.clock, pauses.most_seconds, pauses.most_seconds)
        """Blocks that a backend that deletes others refused to delete: it may hold them under a retention rule."""
        self._put_off: dict[int, float] = {}  # sessions that could not be swept, and when they are tried again
        self._listed: dict[tuple[int, int], dict[int, str | None]] = {}
        """By session and state, how far each backend is listed: to behind which key, or None: to its end."""
        self._resting: dict[int, float] = {}  # backends that could not be listed, and when they are tried again
        self.deleted = 0
        """Blocks so far."""

    async def step(self) -> bool:
        return await self._sweep_dead() or await self._sweep_session()

    async def _sweep_dead(self) -> bool:
        self.held_back = bool(self.store.query("SELECT 1 FROM block WHERE died > 0 LIMIT 1"))
        if not self.held_back:
            return False
        horizon = await self._journal.horizons()
        rows = self.store.query(_DEAD, (horizon, *self._after, BLOCKS))
        lost = {place for (place,) in self.store.query("SELECT id FROM backend WHERE lost = 1")}
        wanted = [
            (block, died, {*self._lookup.members(set_id), *ids_in(strays or b"")} - lost)
            for block, died, set_id, strays in rows
        ]
        gone = await self._delete_all(
            [
                (block, places)
                for block, died, places in wanted
                if block not in self._refused
                and all(place not in self._away and self._covers(place, died) for place in places)
            ]
        )
        dead = tuple(DeadBlock(block, died) for block, died, _, _ in rows if block in gone)
        if dead:
            failpoints.reach("dead-deleted")
            await self._journal.send(ForgetBlocks(dead))
            failpoints.reach("dead-forgotten")
        if len(rows) < BLOCKS:  # the next pass begins with the first again
            self._after = (0, b"")
            return bool(dead)
        self._after = (rows[-1][1], rows[-1][0])
        return True

    async def _delete_all(self, blocks: Sequence[tuple[bytes, Collection[int]]]) -> set[bytes]:
        """Delete each block on each of its backends; answers those that are gone from all of them."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def delete(block: bytes, places: Collection[int]) -> bytes | None:
            async with slots:
                return block if await self._delete(block, places) else None

        done = await asyncio.gather(*(delete(block, places) for block, places in blocks))
        return {block for block in done if block is not None}

    async def _delete(self, block: bytes, places: Collection[int]) -> bool:
        for place in places:
            backend = self._backends.get(place)
            if backend is None or place in self._away:
                return False  # it comes back, or somebody drains it
            began = self._clock.monotonic()
            try:
                await backend.delete(block_path(block))
            except backend_errors.BackendError as error:
                self._note(error, place, block)
                return False
            self._away.record_success([place], began)
        self._refused.record_success([block])
        self.deleted += 1
        return True

    def _note(self, error: backend_errors.BackendError, place: int, block: bytes) -> None:
        """Leave the backend alone for a while, or *block* alone, if it alone is refused."""
        if isinstance(error, backend_errors.Unavailable):
            is_alone = False
        else:
            is_alone = not self._away.record_rejection(place, block) and len(self._refused) < REFUSED_MAX
        if is_alone:
            is_news = self._refused.record_failure(block, str(error))
        else:
            is_news = self._away.record_failure(place, str(error), error.retry_after_s)
        if is_news:
            _log.warning("dead blocks stay for now: %s", error)

    # ---- sessions -----------------------------------------------------------------------------------------------

    async def _sweep_session(self) -> bool:
        now_ns, now = self._site_clock.now_ns(), self._clock.monotonic()
        rows = self.store.query(
            _SESSIONS, (now_ns - self._fork_grace_ns, now_ns - self._upload_ns_max, 1 + len(self._put_off))
        )
        due = [(session, state) for session, state in rows if self._put_off.get(session, 0.0) <= now]
        if not due:
            return False
        session, state = due[0]
        if not await self._sweep_everywhere(session, state):  # others need not wait for that
            self._put_off[session] = self._timing.clock.monotonic() + self._timing.sweeper.retry_seconds
            return True
        self._put_off.pop(session, None)
        failpoints.reach("session-listed")
        await self._journal.send(SweepSession(session) if state == SessionState.ENDED else ForgetSession(session))
        return True

    async def _sweep_everywhere(self, session: int, state: int) -> bool:
        """Delete what no row names, of the blocks of *session*, on each backend. Answers whether the prefix was listed
        to its end on all of them, in this call or in earlier ones."""
        listed = self._listed.setdefault((session, state), {})
        now, backends = self._timing.clock.monotonic(), list(self._backends.items())
        ready = [
            (place, backend)
            for place, backend in backends
            if listed.get(place, "") is not None and self._resting.get(place, 0.0) <= now
        ]
        await asyncio.gather(*(self._sweep_there(session, place, backend, listed) for place, backend in ready))
        if any(listed.get(place, "") is not None for place, _ in backends):
            return False
        del self._listed[session, state]
        return True

    async def _sweep_there(self, session: int, place: int, backend: Backend, listed: dict[int, str | None]) -> None:
        """The same on one backend, which rests where that fails or takes too long; *listed* keeps how far it came."""
        try:
            async with asyncio.timeout(self._timing.sweeper.list_seconds):
                await self._sweep_prefix(session, place, backend, listed)
        except TimeoutError as error:
            more = backend_errors.remarks(error)
            _log.warning("session %x has more on backend %r than one step lists%s", session, backend.name, more)
        except backend_errors.BackendError as error:
            _log.warning("what session %x left is not swept for now: %s", session, error)
        else:
            listed[place] = None
            self._resting.pop(place, None)
            return
        self._resting[place] = self._timing.clock.monotonic() + self._timing.sweeper.retry_seconds

    async def _sweep_prefix(self, session: int, place: int, backend: Backend, listed: dict[int, str | None]) -> None:
        keys: list[str] = []
        lines = backend.list(session_prefix(session), listed.get(place) or "")
        async with aclosing(lines):  # type: ignore[type-var] # every backend's is a generator
            async for line in lines:
                keys.append(line.key)
                if len(keys) == KEYS:
                    await self._delete_unnamed(keys, place)
                    listed[place] = line.key
                    keys = []
        await self._delete_unnamed(keys, place)

    async def _delete_unnamed(self, keys: Sequence[str], place: int) -> None:
        blocks = [block for key in keys if (block := block_id_of(key)) is not None]
        named = named_among(self.store, blocks)
        unnamed = [(block, (place,)) for block in blocks if block not in named]
        if len(await self._delete_all(unnamed)) < len(unnamed):
            raise backend_errors.Unavailable("some unnamed blocks could not be deleted; the session is swept again")


def named_among(store: Tables, blocks: Sequence[bytes]) -> set[bytes]:
    """Those of *blocks* that have a row."""
    if not blocks:
        return set()
    marks = ", ".join("?" * len(blocks))
    return {row[0] for row in store.query(f"SELECT id FROM block WHERE id IN ({marks})", blocks)}
