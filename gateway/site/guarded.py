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
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from backends import errors
from backends.base import Backend, Buffer, Listed, Marker, Stat
from gateway.errors import Misconfigured
from gateway.site.ring import Rows

_log = logging.getLogger(__name__)

Reopen = Callable[[], Awaitable[Backend]]


def site_row(rows: Rows) -> tuple[str, int]:
    """The site's id and incarnation. Raises `Misconfigured` if it was never founded."""
    found = rows.query("SELECT id, incarnation FROM site")
    if not found:
        raise Misconfigured("the journal is empty: the site was not founded")
    return found[0][0], found[0][1]


async def check_marker(backend: Backend, backend_id: int, rows: Rows) -> None:
    """See that *backend* bears the marker of this site. Raises `backends.errors` if it bears none or another one, and
    `Misconfigured` if that is this site's in a later incarnation."""
    site, incarnation = site_row(rows)
    wanted, held = Marker(site, backend_id, incarnation), await backend.marker()
    if held == wanted:
        return
    if held is None:
        message = "it does not bear this site's marker: is its disk mounted, is it the right bucket?"
        raise errors.Misconfigured(message, backend=backend.name)
    if held.site == site and held.incarnation > incarnation:
        raise Misconfigured(
            f"backend {backend.name!r} belongs to site {site} in incarnation {held.incarnation}, as which it was "
            f"restored elsewhere; this is incarnation {incarnation}, and ends there"
        )
    raise errors.Foreign(f"it {_whose(held, wanted, rows)}", backend=backend.name)


def _whose(held: Marker, wanted: Marker, rows: Rows) -> str:
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


class Guarded(Backend):
    """*inner*, as long as it bears this site's marker, which `watch` looks at."""

    def __init__(self, inner: Backend, backend_id: int, *, seconds: float, reopen: Reopen | None = None) -> None:
        """*seconds*: between two looks. *reopen*: opens, and checks, what stands at that place now."""
        self.inner = inner
        self.why = ""
        """Why it takes nothing; empty while it does."""
        self.get_now = inner.get_now  # type: ignore[method-assign] # in the way of every small read: no call between
        self._id = backend_id
        self._seconds = seconds
        self._reopen = reopen
        self._leaving: set[asyncio.Task[None]] = set()

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
        await self.inner.delete(key)

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

    def go_on_with(self, inner: Backend) -> Backend:
        """Use *inner* from here on, which was found to bear the marker. Answers what was used until now."""
        before, self.inner, self.get_now = self.inner, inner, inner.get_now  # type: ignore[method-assign]
        self._found()
        return before

    # ---- looking ---------------------------------------------------------------------------------------------------

    async def watch(self, rows: Rows) -> None:
        """Look at the marker every so often; until cancelled. Raises `Misconfigured` once it says that this site goes
        on elsewhere, in a later incarnation: what is written here from then on nobody would ever find."""
        while True:
            await asyncio.sleep(self._seconds)
            await self.look(rows)

    async def look(self, rows: Rows) -> None:
        """Look now. That it cannot be seen at the moment says nothing. Raises as `watch`."""
        looked_at = self.inner
        try:
            await check_marker(looked_at, self._id, rows)
        except (errors.Foreign, errors.Misconfigured) as error:
            if not await self._stands_again() and self.inner is looked_at:  # and not what was opened anew meanwhile
                self._lost(error.message)
        except errors.BackendError:
            return
        except Misconfigured as error:
            self._lost(str(error))
            raise
        else:
            self._found()

    async def _stands_again(self) -> bool:
        """Whether what stands at that place now is the right one: a disk that was mounted again."""
        if self._reopen is None:
            return False
        try:
            found = await self._reopen()
        except (errors.BackendError, Misconfigured):
            return False
        leaving = asyncio.create_task(self.go_on_with(found).close())  # its calls under way come to their end
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        return True

    def _lost(self, why: str) -> None:
        if why != self.why:
            _log.error("nothing is written on backend %r any more: %s", self.name, why)
        self.why = why

    def _found(self) -> None:
        if self.why:
            _log.warning("backend %r bears this site's marker again, and is written on", self.name)
        self.why = ""

    def _refusal(self, key: str | None) -> errors.Unavailable:
        return errors.Unavailable(f"it takes nothing: {self.why}", backend=self.name, key=key)
