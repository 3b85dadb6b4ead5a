"""Guards a backend: it takes no writes and no deletes unless it has this site's marker.

Theory of operation
-------------------
A backend that was opened and checked may become another place while it is in use. Its disk is unmounted and an empty
folder appears at its path, another disk is mounted over it, its bucket is deleted and created again, another site
claims it. `MarkerGuard` therefore reads the marker again every so often (`watch`). It is in one of these states:

| state     | `why` | `elsewhere` | put, delete, list    | get, stat                                |
|-----------|-------|-------------|----------------------|------------------------------------------|
| usable    | empty | None        | passed on            | passed on                                |
| unusable  | set   | None        | raise `Unavailable`  | passed on, but "absent" is `Unavailable` |
| set aside | set   | set         | as above             | as above                                 |

`check` changes the state. The marker of another place, or none, makes the backend unusable, unless it is local and the
right folder can be opened again at its path (a disk that was mounted again). A marker that reports a takeover sets it
aside (`agreement.py`). This site's marker makes it usable again. A marker that cannot be read at the moment only sets
`unreachable`, which is reported. `BackendPool` makes all backends unusable once they agree on a takeover, and
`replace_inner` makes a backend usable that was reopened.

Why each operation behaves as it does in an unusable backend:

- *Writes* are refused, because nobody would find them: whoever opens the place next refuses it, and when the disk comes
  back it hides what was written below it. If a policy's `ack` needs the backend, its clients get 503.
- *Deletes* are refused. On an empty disk every delete succeeds, and the journal would forget bytes that come back with
  the disk.
- *Reads* are passed on, since every block is opened under its own key. But a missing block proves nothing, so that no
  block counts as lost because a disk is away.

A few seconds pass between the loss and its detection. What is written meanwhile goes where the place was opened: a
local backend writes through the descriptor of its folder, whatever has been mounted over it since.

**Deletes also need a fence** (`fencing.py`). A block that this process did not write itself is deleted only while the
marker has the current token; `covers` says whether it does. If this process stamps, `check` stamps the marker when
that is due. If the marker changes between the read and the stamp, somebody else has stamped it, and `check` starts
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from backends import errors
from backends.base import Backend, Buffer, Fence, Listed, Marker
from backends.wrappers import Wrapper
from gateway import failpoints
from gateway.errors import Misconfigured
from gateway.site.storage.agreement import ActiveElsewhere, RestoredElsewhere
from gateway.site.storage.fencing import Fencing, Relation, require_own_fence
from gateway.site.storage.keyring import JournalTables
from gateway.timing import Timing

STAMP_TRIES = 3
"""How often one check reads and stamps the marker if others stamp it meanwhile."""
_NO_MARKER = "it does not have this site's marker: is its disk mounted, is it the right bucket?"
REQUESTED_SHARE = 0.25
"""Fraction of the time between two checks after which a requested check takes place."""

_log = logging.getLogger(__name__)

T = TypeVar("T")
Reopen = Callable[[], Awaitable[Backend]]


def site_row(rows: JournalTables) -> tuple[str, int]:
    """Return the site's id and incarnation. Raises `Misconfigured` if the site was never created."""
    site = rows.query("SELECT id, incarnation FROM site")
    if not site:
        raise Misconfigured("the journal is empty: the site was not created")
    return site[0][0], site[0][1]


async def check_marker(
    backend: Backend, backend_id: int, rows: JournalTables, fencing: Fencing | None = None
) -> Marker:
    """Check that *backend* has the marker of this site, and return the marker.

    Raises what `Backend.marker` raises; `backends.errors.Misconfigured` if there is no marker; `RestoredElsewhere` if
    it is this site's in a later incarnation; `StampedElsewhere` if another copy of this site's folder has stamped it;
    and `backends.errors.OwnedByAnotherSite` for any other marker."""
    site, incarnation = site_row(rows)
    wanted, held = Marker(site, backend_id, incarnation), await backend.marker()
    if held is not None and held.without_fence == wanted:
        if fencing is not None:
            require_own_fence(fencing, backend.name, held.fence)
        return held
    if held is None:
        raise errors.Misconfigured(_NO_MARKER, backend=backend.name)
    if held.site == site and held.incarnation > incarnation:
        message = (
            f"it belongs to site {site} in incarnation {held.incarnation}, as which the site was restored elsewhere; "
            f"this is incarnation {incarnation}"
        )
        raise RestoredElsewhere(message, backend=backend.name)
    raise errors.OwnedByAnotherSite(f"it {_mismatch(held, wanted, rows)}", backend=backend.name)


async def check_site_of_marker(backend: Backend, backend_id: int, rows: JournalTables) -> None:
    """Check that *backend* has the marker of this site and of this backend, in any incarnation: for a process that only
    reads. Raises as `check_marker`."""
    site, incarnation = site_row(rows)
    wanted, held = Marker(site, backend_id, incarnation), await backend.marker()
    if held is None:
        raise errors.Misconfigured(_NO_MARKER, backend=backend.name)
    if (held.site, held.backend) != (site, backend_id):
        raise errors.OwnedByAnotherSite(f"it {_mismatch(held, wanted, rows)}", backend=backend.name)


def _mismatch(held: Marker, wanted: Marker, rows: JournalTables) -> str:
    """Return a phrase that says how the marker *held* differs from *wanted*."""
    if held.site != wanted.site:
        return f"belongs to site {held.site}, and this is site {wanted.site}: two sites cannot share a place"
    named = rows.query("SELECT name FROM backend WHERE id = ?", (held.backend,))
    if held.backend != wanted.backend and named:
        return f"is the place of backend {named[0][0]!r} of this site: was it renamed, or were two places swapped?"
    return (
        f"has the marker of backend {held.backend} of this site, incarnation {held.incarnation}; this is backend "
        f"{wanted.backend}, incarnation {wanted.incarnation}"
    )


class MarkerGuard(Wrapper):
    """A backend that is used only while it has this site's marker."""

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
        """*seconds*: the time between two checks. *reopen*: opens and checks what is at that place now. Without
        *fencing* no fence is checked, as for a place that only one process uses."""
        super().__init__(inner)
        self.why = ""
        """Why the backend takes neither writes nor deletes; empty while it is usable."""
        self.unstamped = ""
        """Why the last attempt to stamp failed, so that nothing is deleted there; empty if it succeeded or there was no
        attempt."""
        self.unreachable = ""
        """Why the marker could not be read when it was checked last; empty if it could."""
        self.down_since_ns = 0
        """Since when, by the wall clock, the backend is unusable or unreachable; 0 if it is neither."""
        self.elsewhere: ActiveElsewhere | None = None
        """The takeover that its marker reports; None if it reports none."""
        self.get_now = inner.get_now  # type: ignore[method-assign] # on the path of every small read: save a call
        self._id = backend_id
        self._seconds = seconds
        self._reopen = reopen
        self._leaving: set[asyncio.Task[None]] = set()
        self._fencing = fencing
        self._clock = timing.clock
        self._stamp_seconds, self._answer_seconds = timing.markers.stamp_seconds, timing.markers.answer_seconds
        self._fence: Fence | None = None
        """The fence of the last check, if it bore the current token."""
        self._stamped = float("-inf")
        self._check_requested = asyncio.Event()
        self._requested_number = 0

    @property
    def inner(self) -> Backend:
        """The backend that is guarded now."""
        return self._inner

    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        if self.why and operation == "delete":  # `put` and `list` check that themselves
            raise self._refusal(key)
        try:
            return await call()
        except errors.NotFound as error:
            if self.why:
                raise self._refusal(key) from error
            raise

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:  # does without `_around`, for speed
        if self.why:
            raise self._refusal(key)
        await self._inner.put(key, value, crc32c)

    async def delete(self, key: str) -> None:
        """As the contract says. Raises `Unavailable` for a block of another process unless the marker has the current
        token."""
        if not self.why and self._fencing is not None and not self._fencing.owns(key) and not self.covers(0):
            why = f": {self.unstamped}" if self.unstamped else ""
            message = f"nothing is deleted there until it has the token of this site's committer{why}"
            raise errors.Unavailable(message, backend=self.name, key=key)
        await super().delete(key)

    def covers(self, number: int) -> bool:
        """Whether the place has the current token, stamped when the journal had reached record *number* or a later
        one: then blocks that died at *number* may be deleted. Otherwise this requests a check, which may stamp."""
        if self._fencing is None:
            return True
        fence = self._fence
        if fence is not None and (fence.counter, fence.nonce) == self._fencing.token() and fence.number >= number:
            return True
        self._requested_number = max(self._requested_number, number)
        self._check_requested.set()
        return False

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        """As the contract says. A listing that has begun goes on if the backend becomes unusable."""
        if self.why:
            raise self._refusal(None)
        async for value in self._inner.list(prefix, after):
            yield value

    async def close(self) -> None:
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self._inner.close()

    def replace_inner(self, inner: Backend) -> Backend:
        """Use *inner* from now on. The caller has checked its marker, and closes the returned backend, which was used
        until now."""
        before, self._inner, self.get_now = self._inner, inner, inner.get_now  # type: ignore[method-assign]
        self._fence = None
        self._set_usable()
        return before

    # ---- checks ----------------------------------------------------------------------------------------------------

    async def watch(self, rows: JournalTables) -> None:
        """Check the marker periodically and on request. Runs until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._check_requested.wait()
                    await self._clock.sleep(self._seconds * REQUESTED_SHARE)
            except TimeoutError:
                pass
            self._check_requested.clear()
            await self.check(rows)

    async def check(self, rows: JournalTables, *, stamp: bool = False) -> None:
        """Check the marker now, and set `why` and `elsewhere`. Stamp the place if this process stamps and that is due,
        or if *stamp* is set.

        A marker that cannot be read at the moment only sets `unreachable`. So does a driver that raises an unexpected
        error over what it reads, since one place must not end the process."""
        for _ in range(STAMP_TRIES):
            if not await self._check_once(rows, stamp=stamp):
                return

    async def _check_once(self, rows: JournalTables, *, stamp: bool) -> bool:
        """Check once. Returns whether somebody else stamped the place between the check and the stamp: another process
        of this site or another copy of it. The next check finds out which."""
        checked = self._inner
        try:
            held = await self._read_marker(checked, rows)
        except (errors.OwnedByAnotherSite, errors.Misconfigured) as error:
            if not await self._reopened() and self._inner is checked:  # it was not replaced meanwhile
                self._set_unusable(error.message)
                self.elsewhere = error if isinstance(error, ActiveElsewhere) else None
        except errors.BackendError as error:
            self.set_unreachable(error.message)
        except Exception as error:  # noqa: BLE001 (whatever it was, the next check is in some seconds)
            _log.exception("the marker of backend %r cannot be checked", self.name)
            self.set_unreachable(f"{type(error).__name__}: {error}")
        else:
            self._set_usable()
            if self._fencing is not None and self._inner is checked:
                return await self._update_fence(held, self._fencing, stamp=stamp)
        return False

    async def _read_marker(self, checked: Backend, rows: JournalTables) -> Marker:
        """Return the marker of *checked*. Raises as `check_marker`, and `Unavailable` if that takes too long."""
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await check_marker(checked, self._id, rows, self._fencing)
        except TimeoutError as error:
            message = f"no answer within {self._answer_seconds:g} s{errors.notes_suffix(error)}"
            raise errors.Unavailable(message, backend=self.name) from None

    async def _update_fence(self, held: Marker, fencing: Fencing, *, stamp: bool) -> bool:
        """Remember the fence in the marker *held*, and replace it if that is due. Returns as `_stamp`."""
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
        """Replace the fence in the marker by compare-and-set. Returns whether somebody else was faster. After any other
        failure nothing is deleted on the place."""
        wanted = fencing.with_fence(held)
        if wanted is None:
            return False
        try:
            await self._inner.claim(wanted)
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
        """Whether the right folder is at that place now, as after a disk was mounted again. If so, use it."""
        if self._reopen is None:
            return False
        try:
            opened = await self._reopen()
        except (errors.BackendError, Misconfigured):
            return False
        leaving = asyncio.create_task(self.replace_inner(opened).close())  # calls that are under way may end
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        return True

    def set_unreachable(self, why: str) -> None:
        """Note that the backend does not answer. It stays in use, since the next call may succeed."""
        if not self.down_since_ns:
            _log.error("backend %r is unavailable: %s", self.name, why)
            self.down_since_ns = self._clock.wall_ns()
        self.unreachable = why

    def _set_unusable(self, why: str) -> None:
        if why != self.why:
            _log.error("nothing is written on backend %r any more: %s", self.name, why)
        self.why, self.unreachable = why, ""
        self.down_since_ns = self.down_since_ns or self._clock.wall_ns()

    def _set_usable(self) -> None:
        if self.why:
            _log.warning("backend %r has this site's marker again, and takes writes again", self.name)
        elif self.unreachable:
            _log.warning("backend %r is available again", self.name)
        self.why, self.unreachable, self.elsewhere, self.down_since_ns = "", "", None, 0

    def _refusal(self, key: str | None) -> errors.Unavailable:
        return errors.Unavailable(f"it takes nothing: {self.why}", backend=self.name, key=key)
