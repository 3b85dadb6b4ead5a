"""A backend that lost its marker takes nothing until it bears it again: no writes, and no word that a value is gone.

What was opened and checked may become another place while it is in use: its disk is unmounted and an empty folder shows
below, another disk is mounted over it, its bucket is removed and made anew, another site claims it. What would be
written then nobody would find: whoever opens the place next refuses it, for it bears no marker of this site, and when
the disk comes back it hides what was written below it. So writes are refused, and where a policy's `ack` needs them,
answered 503. Deletes are refused as well: where nothing is, everything counts as deleted, and the journal would forget
bytes that come back with the disk. Reads go on, since every block is opened under its own key; but that something is
absent there says nothing, so that nobody believes a block to be lost because a disk is.

Between the loss and its being noticed pass some seconds. What is written meanwhile goes where the place was opened: a
local one through the descriptor of its folder, whatever is mounted over it since.

It also obeys the fence in the marker (`fencing`): only where that bears the current token is anything deleted that this
process did not write itself, and where it bears another history's, the place takes nothing either. Whether the process
ends over that, all places together decide (`agreement`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from backends import errors
from backends.base import Backend, Buffer, Fence, Listed, Marker, Stat
from gateway import failpoints
from gateway.errors import Misconfigured
from gateway.site.storage.agreement import ActiveElsewhere, RestoredElsewhere
from gateway.site.storage.fencing import Fencing, Relation, require_own_fence
from gateway.site.storage.keyring import JournalTables
from gateway.timing import Timing

STAMP_TRIES = 3
"""How often a place is looked at and stamped at once, where others stamp it meanwhile."""
REQUESTED_SHARE = 0.25
"""Of the time between two looks: when one comes that somebody asked for."""

_log = logging.getLogger(__name__)

Reopen = Callable[[], Awaitable[Backend]]


def site_row(rows: JournalTables) -> tuple[str, int]:
    """The site's id and incarnation. Raises `Misconfigured` if it was never founded."""
    found = rows.query("SELECT id, incarnation FROM site")
    if not found:
        raise Misconfigured("the journal is empty: the site was not founded")
    return found[0][0], found[0][1]


async def check_marker(
    backend: Backend, backend_id: int, rows: JournalTables, fencing: Fencing | None = None
) -> Marker:
    """See that *backend* bears the marker of this site, and answer it. Raises `backends.errors` if it bears none or
    another one, of which `RestoredElsewhere` if that is this site's in a later incarnation, and `StampedElsewhere` if
    another copy of this site's folder has stamped it."""
    site, incarnation = site_row(rows)
    wanted, held = Marker(site, backend_id, incarnation), await backend.marker()
    if held is not None and held.bare == wanted:
        if fencing is not None:
            require_own_fence(fencing, backend.name, held.fence)
        return held
    if held is None:
        message = "it does not bear this site's marker: is its disk mounted, is it the right bucket?"
        raise errors.Misconfigured(message, backend=backend.name)
    if held.site == site and held.incarnation > incarnation:
        message = (
            f"it belongs to site {site} in incarnation {held.incarnation}, as which the site was restored elsewhere; "
            f"this is incarnation {incarnation}"
        )
        raise RestoredElsewhere(message, backend=backend.name)
    raise errors.OwnedByAnotherSite(f"it {_mismatch(held, wanted, rows)}", backend=backend.name)


def _mismatch(held: Marker, wanted: Marker, rows: JournalTables) -> str:
    """Of a place that is not to be used as *wanted* says."""
    if held.site != wanted.site:
        return f"belongs to site {held.site}, and this is site {wanted.site}: two sites cannot share a place"
    named = rows.query("SELECT name FROM backend WHERE id = ?", (held.backend,))
    if held.backend != wanted.backend and named:
        return f"is the place of backend {named[0][0]!r} of this site: was it renamed, or were two places swapped?"
    return (
        f"bears the marker of backend {held.backend} of this site, incarnation {held.incarnation}; this is backend "
        f"{wanted.backend}, incarnation {wanted.incarnation}"
    )


class MarkerGuard(Backend):
    """*inner*, as long as it bears this site's marker, which `watch` looks at."""

    def __init__(
        self,
        inner: Backend,
        backend_id: int,
        *,
        seconds: float,
        reopen: Reopen | None = None,
        fencing: Fencing | None = None,
        timing: Timing,
    ) -> None:
        """*seconds*: between two looks. *reopen*: opens, and checks, what stands at that place now. Without *fencing*
        no fence is looked at, as for a place that one process has to itself."""
        self.inner = inner
        self.why = ""
        """Why it takes nothing; empty while it does."""
        self.unstamped = ""
        """Why it could not be stamped, so that nothing is deleted there; empty where it was, or nobody tried."""
        self.elsewhere: ActiveElsewhere | None = None
        """What its marker says, where that is that this site goes on elsewhere."""
        self.get_now = inner.get_now  # type: ignore[method-assign] # in the way of every small read: no call between
        self._id = backend_id
        self._seconds = seconds
        self._reopen = reopen
        self._leaving: set[asyncio.Task[None]] = set()
        self._fencing = fencing
        self._clock = timing.clock
        self._stamp_seconds = timing.markers.stamp_seconds
        self._fence: Fence | None = None
        """As it was seen last, where it was of a committer of this journal."""
        self._stamped = float("-inf")
        self._check_requested = asyncio.Event()
        self._requested_number = 0

    @property
    def name(self) -> str:
        return self.inner.name

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        if self.why:
            raise self._refusal(key)
        await self.inner.put(key, value, crc32c)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        try:
            return await self.inner.get(key, start, length)
        except errors.NotFound as error:
            if self.why:
                raise self._refusal(key) from error
            raise

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        return self.inner.get_now(key, start, length)

    async def stat(self, key: str) -> Stat:
        try:
            return await self.inner.stat(key)
        except errors.NotFound as error:
            if self.why:
                raise self._refusal(key) from error
            raise

    async def delete(self, key: str) -> None:
        if self.why:
            raise self._refusal(key)
        if self._fencing is not None and not self._fencing.owns(key) and not self.covers(0):
            why = f": {self.unstamped}" if self.unstamped else ""
            message = f"nothing is deleted there until it bears the token of this site's committer{why}"
            raise errors.Unavailable(message, backend=self.name, key=key)
        await self.inner.delete(key)

    def covers(self, number: int) -> bool:
        """Whether the place bears the token of the committer that started last, stamped when its journal had reached
        record *number*: then what died there may be deleted. Otherwise it is looked at, or stamped, soon."""
        if self._fencing is None:
            return True
        fence = self._fence
        if fence is not None and (fence.counter, fence.nonce) == self._fencing.token() and fence.number >= number:
            return True
        self._requested_number = max(self._requested_number, number)
        self._check_requested.set()
        return False

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        if self.why:
            raise self._refusal(None)
        async for line in self.inner.list(prefix, after):
            yield line

    async def marker(self) -> Marker | None:
        return await self.inner.marker()

    async def claim(self, marker: Marker) -> None:
        await self.inner.claim(marker)

    async def close(self) -> None:
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self.inner.close()

    def replace_inner(self, inner: Backend) -> Backend:
        """Use *inner* from here on, which was found to bear the marker. Answers what was used until now."""
        before, self.inner, self.get_now = self.inner, inner, inner.get_now  # type: ignore[method-assign]
        self._fence = None
        self._set_usable()
        return before

    # ---- looking ---------------------------------------------------------------------------------------------------

    async def watch(self, rows: JournalTables) -> None:
        """Look at the marker every so often, and when asked to; until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._check_requested.wait()
                    await self._clock.sleep(self._seconds * REQUESTED_SHARE)
            except TimeoutError:
                pass
            self._check_requested.clear()
            await self.look(rows)

    async def look(self, rows: JournalTables, *, stamp: bool = False) -> None:
        """Look now, and stamp the place where this process does that and it is due, or *stamp* asks for it. A marker
        that cannot be read at the moment changes nothing, and neither does a driver that fails over what it reads: one
        place must not end the process. `why` and `elsewhere` tell what was found."""
        for _ in range(STAMP_TRIES):
            if not await self._check_once(rows, stamp=stamp):
                return

    async def _check_once(self, rows: JournalTables, *, stamp: bool) -> bool:
        """Look once. Answers whether somebody else stamped the place between the look and the stamp: another process of
        this site, or another copy of it, which the next look tells."""
        looked_at = self.inner
        try:
            held = await check_marker(looked_at, self._id, rows, self._fencing)
        except (errors.OwnedByAnotherSite, errors.Misconfigured) as error:
            if not await self._reopened() and self.inner is looked_at:  # and not what was opened anew meanwhile
                self._set_unusable(error.message)
                self.elsewhere = error if isinstance(error, ActiveElsewhere) else None
        except errors.BackendError:
            pass
        except Exception:  # noqa: BLE001 (whatever it was, the next look is in some seconds)
            _log.exception("the marker of backend %r cannot be looked at", self.name)
        else:
            self._set_usable()
            if self._fencing is not None and self.inner is looked_at:
                return await self._update_fence(held, self._fencing, stamp=stamp)
        return False

    async def _update_fence(self, held: Marker, fencing: Fencing, *, stamp: bool) -> bool:
        """Remember the fence that the place bears, and replace it where that is due. Answers as `_stamp`."""
        current = fencing.classify(held.fence) is Relation.CURRENT
        self._fence = held.fence if current else None
        if current:
            self.unstamped = ""
        if fencing.stamps and (not current or self._stamp_is_due(held.fence, fencing, stamp=stamp)):
            return await self._stamp(held, fencing)
        return False

    def _stamp_is_due(self, fence: Fence | None, fencing: Fencing, *, stamp: bool) -> bool:
        if fence is None or fencing.head().number <= fence.number:
            return False
        passed = self._clock.monotonic() - self._stamped
        return stamp or self._requested_number > fence.number or passed >= self._stamp_seconds

    async def _stamp(self, held: Marker, fencing: Fencing) -> bool:
        """Compare and set. Answers whether somebody was faster; where it fails otherwise, nothing is deleted there."""
        wanted = fencing.with_fence(held)
        if wanted is None:
            return False
        try:
            await self.inner.claim(wanted)
        except errors.OwnedByAnotherSite:
            return True
        except errors.BackendError as error:
            if str(error) != self.unstamped:
                _log.warning("nothing is deleted on backend %r, which could not be stamped: %s", self.name, error)
            self.unstamped = str(error)
            return False
        failpoints.reach("backend-stamped")
        self.unstamped, self._fence, self._stamped = "", wanted.fence, self._clock.monotonic()
        return False

    async def _reopened(self) -> bool:
        """Whether what stands at that place now is the right one: a disk that was mounted again."""
        if self._reopen is None:
            return False
        try:
            found = await self._reopen()
        except (errors.BackendError, Misconfigured):
            return False
        leaving = asyncio.create_task(self.replace_inner(found).close())  # its calls under way come to their end
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        return True

    def _set_unusable(self, why: str) -> None:
        if why != self.why:
            _log.error("nothing is written on backend %r any more: %s", self.name, why)
        self.why = why

    def _set_usable(self) -> None:
        if self.why:
            _log.warning("backend %r bears this site's marker again, and is written on", self.name)
        self.why, self.elsewhere = "", None

    def _refusal(self, key: str | None) -> errors.Unavailable:
        return errors.Unavailable(f"it takes nothing: {self.why}", backend=self.name, key=key)
