"""The sweeper: it deletes bytes that no read can want any more.

**Dead blocks.** A block that died at record n is deleted once every live session, follower and backup reads at n or
later: a look-up that begins after that finds no extent in the block. The block is deleted from each backend of its set,
and from those that its row of work names as strays. A backend that does not answer delays only the blocks that may be
on it. The block's row is dropped after its bytes are deleted, so a sweeper that is killed in between only deletes once
more. A dead block can come back to life only through a command of the session that wrote it, and that session holds its
horizon below n until the outcomes of all such commands are known (`gateway/blocks/write/block_put.py`).

While the backend's marker does not have the journal's fence up to n, the block waits
(`gateway/site/storage/fencing.py`).

**Ended sessions.** A block is first named by a command of the session that its id begins with; a command that names a
block of another session is refused. The end of a session is a record, and after it the session's commands are refused.
So a key that is listed after that record and has no row never gets one: it is deleted. A put may still be under way (a
cancelled call may take effect later). So the prefix is listed a second time, after the longest deadline of an upload;
then the session is forgotten.

A session that ended *unseen* may belong to the original of a journal of which this one is a copy, and the original goes
on to name blocks under that session's id, in its own journal. So its prefix is listed only after the grace period, in
which an operator learns of the two copies and decides (`gateway/journal/server/server.py`). The same holds for a site
that was restored from a backup, as long as it keeps newer data.

Each backend is listed separately and for a bounded time per step, and the listing goes on after the last key that was
handled. A backend that fails, or whose listing does not end, is left alone for a while; meanwhile it delays only the
forgetting of sessions. A put may land under a key that the first listing has already passed: the second one finds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing

from backends import errors as backend_errors
from backends.base import Backend
from gateway import failpoints
from gateway.blocks.commands.sweep import DeadBlock, ForgetBlocks, ForgetSession, SweepSession
from gateway.blocks.maintenance.fork_grace import in_fork_grace
from gateway.blocks.maintenance.worker import Worker
from gateway.blocks.protocols import Covers, Tables, WorkerJournal, no_fence
from gateway.blocks.read.lookup import Lookup
from gateway.blocks.types import block_id_of, block_path, session_prefix
from gateway.journal.apply.work import unpack_ids
from gateway.journal.site_clock import SiteClock, clock_reader
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
"""Dead blocks that one step handles."""
AT_ONCE = 16
"""Deletions under way at a time."""
REFUSED_MAX = 1_024
"""Blocks that are left alone because a backend refused to delete them."""
KEYS = 256
"""Keys of a listing that are looked up at once."""

_log = logging.getLogger(__name__)


class Sweeper(Worker):
    """Deletes dead blocks, and the blocks that ended sessions left unnamed."""

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
        """*fork_grace_seconds*: how long after its end a session that ended unseen is left alone."""
        super().__init__(store, timing)
        self._journal = journal
        self._backends = backends
        self._lookup = Lookup(store, backends)
        self._site_clock = SiteClock(store.query, clock_reader(timing.clock))
        self._upload_ns_max = int(timing.sweeper.upload_most_seconds * 1e9)
        self._covers = covers
        self._fork_grace_ns = int(fork_grace_seconds * 1e9)
        self._cursor = (0, b"")  # how far this pass over the dead blocks has come: (died, id)
        pauses = timing.backend_backoff
        self._away: BackendBackoff[int] = BackendBackoff(timing.clock, pauses.first_seconds, pauses.most_seconds)
        """Backends that fail to delete blocks."""
        self._refused: BackendBackoff[bytes] = BackendBackoff(timing.clock, pauses.most_seconds, pauses.most_seconds)
        """Blocks that a backend refused to delete although it deletes others: it may hold them under a retention
        rule."""
        self._retry_at: dict[int, float] = {}  # sessions that could not be swept, and when they are tried again
        self._listed: dict[tuple[int, int], dict[int, str | None]] = {}
        """By session and state: how far each backend is listed, up to which key, or None for its end."""
        self._list_again_at: dict[int, float] = {}  # backends that could not be listed, and when they are tried again
        self.deleted = 0
        """Blocks that were deleted so far."""

    async def step(self) -> bool:
        return await self._sweep_dead() or await self._sweep_session()

    # ---- dead blocks --------------------------------------------------------------------------------------------

    async def _sweep_dead(self) -> bool:
        """Delete a slice of the dead blocks, and forget those that are deleted everywhere."""
        self.held_back = bool(self.store.query("SELECT 1 FROM block WHERE died > 0 LIMIT 1"))
        if not self.held_back:
            return False
        horizon = await self._journal.horizons()
        rows = self.store.query(_DEAD, (horizon, *self._cursor, BLOCKS))
        lost = {backend_id for (backend_id,) in self.store.query("SELECT id FROM backend WHERE lost = 1")}
        dead = [
            (block_id, died, {*self._lookup.members(set_id), *unpack_ids(strays or b"")} - lost)
            for block_id, died, set_id, strays in rows
        ]
        deleted = await self._delete_all(
            [
                (block_id, backend_ids)
                for block_id, died, backend_ids in dead
                if block_id not in self._refused
                and all(each not in self._away and self._covers(each, died) for each in backend_ids)
            ]
        )
        forgettable = tuple(DeadBlock(block_id, died) for block_id, died, _ in dead if block_id in deleted)
        if forgettable:
            failpoints.reach("dead-deleted")
            await self._journal.send(ForgetBlocks(forgettable))
            failpoints.reach("dead-forgotten")
        if len(rows) < BLOCKS:  # the next pass begins at the front
            self._cursor = (0, b"")
            return bool(forgettable)
        self._cursor = (rows[-1][1], rows[-1][0])
        return True

    async def _delete_all(self, blocks: Sequence[tuple[bytes, Collection[int]]]) -> set[bytes]:
        """Delete each block on each of its backends. Returns the blocks that are deleted from all of them."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def delete(block_id: bytes, backend_ids: Collection[int]) -> bytes | None:
            async with slots:
                return block_id if await self._delete(block_id, backend_ids) else None

        done = await asyncio.gather(*(delete(block_id, backend_ids) for block_id, backend_ids in blocks))
        return {block_id for block_id in done if block_id is not None}

    async def _delete(self, block_id: bytes, backend_ids: Collection[int]) -> bool:
        """Delete a block from each of these backends. Returns False at the first one that cannot delete it now."""
        for backend_id in backend_ids:
            backend = self._backends.get(backend_id)
            if backend is None or backend_id in self._away:
                return False  # until the backend is back, or an operator gives it up
            began = self._clock.monotonic()
            try:
                await backend.delete(block_path(block_id))
            except backend_errors.BackendError as error:
                self._record_failure(error, backend_id, block_id)
                return False
            self._away.record_success([backend_id], began)
        self._refused.record_success([block_id])
        self.deleted += 1
        return True

    def _record_failure(self, error: backend_errors.BackendError, backend_id: int, block_id: bytes) -> None:
        """Leave the backend alone for a while, or only the block if the backend refuses just a few blocks."""
        if isinstance(error, backend_errors.Unavailable):
            is_the_block = False
        else:
            is_the_block = not self._away.record_rejection(backend_id, block_id) and len(self._refused) < REFUSED_MAX
        if is_the_block:
            is_new = self._refused.record_failure(block_id, str(error))
        else:
            is_new = self._away.record_failure(backend_id, str(error), error.retry_after_s)
        if is_new:
            _log.warning("dead blocks stay for now: %s", error)

    # ---- ended sessions -----------------------------------------------------------------------------------------

    async def _sweep_session(self) -> bool:
        """Sweep the next session that is due: list its prefix, and record that once it is listed to the end."""
        now_ns, now = self._site_clock.now_ns(), self._clock.monotonic()
        unseen_before_ns = -1 if in_fork_grace(self.store, now_ns) else now_ns - self._fork_grace_ns
        rows = self.store.query(_SESSIONS, (unseen_before_ns, now_ns - self._upload_ns_max, 1 + len(self._retry_at)))
        due = [(session, state) for session, state in rows if self._retry_at.get(session, 0.0) <= now]
        if not due:
            return False
        session, state = due[0]
        if not await self._sweep_backends(session, state):  # the other sessions need not wait for that
            self._retry_at[session] = self._timing.clock.monotonic() + self._timing.sweeper.retry_seconds
            return True
        self._retry_at.pop(session, None)
        failpoints.reach("session-listed")
        await self._journal.send(SweepSession(session) if state == SessionState.ENDED else ForgetSession(session))
        return True

    async def _sweep_backends(self, session: int, state: int) -> bool:
        """Delete the unnamed blocks of *session* from each backend that may be listed now.

        Returns whether the prefix has been listed to its end on all backends, in this call or in earlier ones."""
        listed = self._listed.setdefault((session, state), {})
        now, backends = self._timing.clock.monotonic(), list(self._backends.items())
        ready = [
            (backend_id, backend)
            for backend_id, backend in backends
            if listed.get(backend_id, "") is not None and self._list_again_at.get(backend_id, 0.0) <= now
        ]
        await asyncio.gather(*(self._sweep_backend(session, *each, listed) for each in ready))
        if any(listed.get(backend_id, "") is not None for backend_id, _ in backends):
            return False
        del self._listed[session, state]
        return True

    async def _sweep_backend(
        self, session: int, backend_id: int, backend: Backend, listed: dict[int, str | None]
    ) -> None:
        """Delete the unnamed blocks of *session* from one backend, and record in *listed* how far it was listed.

        If that fails or takes too long, the backend is not listed again for a while."""
        try:
            async with asyncio.timeout(self._timing.sweeper.list_seconds):
                await self._sweep_prefix(session, backend_id, backend, listed)
        except TimeoutError as error:
            more = backend_errors.notes_suffix(error)
            _log.warning("session %x has more on backend %r than one step lists%s", session, backend.name, more)
        except backend_errors.BackendError as error:
            _log.warning("the blocks of session %x are not swept for now: %s", session, error)
        else:
            listed[backend_id] = None
            self._list_again_at.pop(backend_id, None)
            return
        self._list_again_at[backend_id] = self._timing.clock.monotonic() + self._timing.sweeper.retry_seconds

    async def _sweep_prefix(
        self, session: int, backend_id: int, backend: Backend, listed: dict[int, str | None]
    ) -> None:
        keys: list[str] = []
        listing = backend.list(session_prefix(session), listed.get(backend_id) or "")
        async with aclosing(listing):  # type: ignore[type-var] # every backend's is a generator
            async for each in listing:
                keys.append(each.key)
                if len(keys) == KEYS:
                    await self._delete_unnamed(keys, backend_id)
                    listed[backend_id] = each.key
                    keys = []
        await self._delete_unnamed(keys, backend_id)

    async def _delete_unnamed(self, keys: Sequence[str], backend_id: int) -> None:
        """Delete the blocks under *keys* that have no row. Raises `Unavailable` unless all of them are deleted."""
        block_ids = [block_id for key in keys if (block_id := block_id_of(key)) is not None]
        named = _with_rows(self.store, block_ids)
        unnamed = [(block_id, (backend_id,)) for block_id in block_ids if block_id not in named]
        if len(await self._delete_all(unnamed)) < len(unnamed):
            raise backend_errors.Unavailable("some unnamed blocks could not be deleted; the session is swept again")


def _with_rows(store: Tables, block_ids: Sequence[bytes]) -> set[bytes]:
    """Return those of *block_ids* that have a row."""
    if not block_ids:
        return set()
    marks = ", ".join("?" * len(block_ids))
    return {row[0] for row in store.query(f"SELECT id FROM block WHERE id IN ({marks})", block_ids)}
