"""Watches the markers of a process's backends, and finds out whether another instance of the site has taken over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

from gateway.errors import EntrepotError, Misconfigured
from gateway.site.storage.agreement import ActiveElsewhere, require_active_here
from gateway.site.storage.fencing import Fencing
from gateway.site.storage.keyring import JournalTables
from gateway.site.storage.marker_guard import MarkerGuard
from gateway.site.storage.open_backends import OpenBackends
from gateway.timing import Timing
from gateway.topology import BackendPlace


class MarkerWatch:
    """The markers of all backends of a `BackendPool`. For one event loop."""

    def __init__(
        self,
        backends: OpenBackends,
        places: Mapping[str, BackendPlace],
        found_opening: Mapping[str, ActiveElsewhere],
        rows: JournalTables,
        fencing: Fencing | None,
        timing: Timing,
    ) -> None:
        """*backends*, *places* (by name, of the config in force) and *found_opening* (by name, the takeovers that
        markers reported when backends were opened) are the pool's, which changes them."""
        self._backends, self._places, self._found_opening = backends, places, found_opening
        self._rows, self._fencing, self._timing = rows, fencing, timing

    async def watch(self) -> None:
        """Check the marker of each backend periodically, until cancelled. Raises `Misconfigured` (or its subclass
        `HistoriesDiverged`) once the places agree on a takeover."""
        watching: dict[MarkerGuard, asyncio.Task[None]] = {}
        try:
            while True:
                guards = set(self._backends.values())
                for removed in watching.keys() - guards:
                    watching.pop(removed).cancel()
                for new in guards - watching.keys():
                    watching[new] = asyncio.create_task(new.watch(self._rows), name=f"marker of {new.name}")
                if watching:
                    done, _ = await asyncio.wait(
                        watching.values(),
                        timeout=self._timing.markers.local_seconds,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    for task in done:
                        await task  # it ends only through a bug: raise that
                else:
                    await self._timing.clock.sleep(self._timing.markers.local_seconds)
                self.require_active_here()
        finally:
            for task in watching.values():
                task.cancel()
            await asyncio.gather(*watching.values(), return_exceptions=True)

    async def stamp(self) -> None:
        """Stamp every backend that can be reached with the current token and the journal's end. A process calls this
        before it deletes blocks. Raises as `watch`."""
        if self._fencing is not None:
            self._fencing.stamps = True
            await self._check(self._backends.values())

    async def stamp_opened(self, backends: Iterable[MarkerGuard]) -> None:
        """Check and stamp *backends*, which were opened just now, if this process stamps. Raises as `watch`."""
        if self._fencing is not None and self._fencing.stamps:
            await self._check(backends)

    async def stamp_a_last_time(self) -> None:
        """Stamp the end of the journal, so that an older copy of this journal, if started next, finds how far this one
        has come."""
        if self._fencing is not None and self._fencing.stamps:
            with suppress(TimeoutError, EntrepotError):
                async with asyncio.timeout(self._timing.markers.last_stamp_seconds):
                    usable = [each for each in self._backends.values() if not each.why]
                    await asyncio.gather(*(each.check(self._rows, stamp=True) for each in usable))

    def elsewhere(self) -> dict[str, ActiveElsewhere]:
        """Return, by name, the takeovers that markers report."""
        reported = {each.name: each.elsewhere for each in self._backends.values() if each.elsewhere}
        return {**self._found_opening, **reported}

    def require_active_here(self) -> None:
        """Make all backends unusable, and raise as `watch`, if the places agree on a takeover."""
        try:
            require_active_here(self._places, self.elsewhere())
        except Misconfigured as error:
            for each in self._backends.values():
                each.why = each.why or str(error)
            raise

    async def _check(self, backends: Iterable[MarkerGuard]) -> None:
        """Check and stamp *backends*. One that does not answer takes no longer than opening it may. Raises as
        `watch`."""

        async def check(backend: MarkerGuard) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timing.backends.open_seconds):
                    await backend.check(self._rows, stamp=True)

        await asyncio.gather(*map(check, backends))
        self.require_active_here()
