"""The backends of a process: opened, checked to be this site's, and replaced by a placeholder until that succeeds.

A place that bears no marker, or another site's, is not the one that was claimed: a disk that is not mounted, a bucket
of that name somewhere else. Nothing is written there, and nothing could be read. One that bears this site's marker in a
later incarnation, or with the fence of another copy of this site's folder, says that the site goes on elsewhere: where
the places agree on that (`agreement`), nothing here goes on. `guarded` has the same for what becomes such a place while
it is open.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress

from backends import errors as backend_errors
from backends.base import Backend
from backends.local.marker import bears_marker
from gateway.errors import EntrepotError, Misconfigured
from gateway.metrics import gauge
from gateway.site.storage.agreement import (
    ActiveElsewhere,
    RestoredElsewhere,
    StampedElsewhere,
    require_active_here,
)
from gateway.site.storage.checked_opening import CheckedOpener, known_id
from gateway.site.storage.connection_params import ConnectionParams, connection_params, without_placement
from gateway.site.storage.fencing import Fencing
from gateway.site.storage.keyring import JournalTables
from gateway.site.storage.marker_guard import MarkerGuard
from gateway.site.storage.open_backends import OpenBackends, close_all
from gateway.site.storage.pending_backend import PendingBackend
from gateway.site.storage.refusals import TemporarilyRejected
from gateway.timing import Timing
from gateway.topology import BackendPlace, Topology

MISSING = gauge("entrepot_backend_absent", "Processes in which a backend could not be opened yet.", ("backend",))

REFUSING = gauge(
    "entrepot_backend_refusing", "Processes in which a backend takes no writes since it lost its marker.", ("backend",)
)

ELSEWHERE = gauge(
    "entrepot_backend_restored_elsewhere",
    "Processes to which a backend's marker says that this site was restored elsewhere.",
    ("backend",),
)

STAMPED = gauge(
    "entrepot_backend_stamped_elsewhere",
    "Processes to which a backend's marker says that another copy of this site's folder goes on.",
    ("backend",),
)

_log = logging.getLogger(__name__)


class BackendPool:
    """All backends that the config names. For one event loop."""

    def __init__(
        self, rows: JournalTables, *, timing: Timing, writes_much: bool, fencing: Fencing | None = None
    ) -> None:
        self.backends = OpenBackends()
        """The same mapping for good; a reload adds to it and takes from it."""
        self._rows = rows
        self._timing = timing
        self._fencing = fencing
        self._opening = CheckedOpener(rows, timing=timing, writes_much=writes_much, fencing=fencing)
        self._ids: dict[str, int] = {}
        self._places: dict[str, BackendPlace] = {}
        """As the config in force has them."""
        self._params: dict[str, ConnectionParams] = {}
        """How each was when it was opened."""
        self._warned: dict[str, str] = {}
        """Why one could not be opened anew, as it was said."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    async def open(self, topology: Topology, *, strict: bool) -> None:
        """Open those of *topology* that do not stand yet. *strict*: raises `Misconfigured` where no policy could be
        met without those that fail; otherwise, and where one could, they count as not available until they are.

        Raises `Misconfigured` also where the site goes on elsewhere, and for a backend that the journal has not met."""
        wanted = {name: place for name, place in topology.backends.items() if name not in self._ids}
        self._ids |= {name: known_id(self._rows, name) for name in wanted}
        self._places |= wanted
        self._params |= {name: connection_params(place) for name, place in wanted.items()}
        failures: dict[str, backend_errors.BackendError] = {}
        opened = await asyncio.gather(*(self._opening.open(place) for place in wanted.values()), return_exceptions=True)
        for place, outcome in zip(wanted.values(), opened, strict=True):
            if isinstance(outcome, Backend):
                self._add(place, outcome)
            elif isinstance(outcome, backend_errors.BackendError):
                failures[place.name] = outcome
        for outcome in opened:
            if isinstance(outcome, BaseException) and not isinstance(outcome, backend_errors.BackendError):
                raise outcome
        self._see_that_it_goes_on_here()
        if failures and strict and not any(_can_write(topology, policy, failures) for policy in topology.policies):
            first = next(iter(failures.values()))
            raise Misconfigured(str(first)) from first
        for name, error in failures.items():
            _log.error("backend %r is not available: %s", name, error)
            self._add(
                wanted[name],
                PendingBackend(name, error.message, functools.partial(self._try_named, name), self._timing),
            )
        if self._fencing is not None and self._fencing.stamps:
            await self._check_markers([self.backends[self._ids[name]] for name in wanted if name not in failures])

    async def stamp(self) -> None:
        """Stamp every backend that can be reached with the token of the committer that started last, and how far its
        journal has come, before this process deletes there. Raises as `watch`."""
        if self._fencing is not None:
            self._fencing.stamps = True
            await self._check_markers(self.backends.values())

    def covers(self, place: int, number: int) -> bool:
        """Whether what died at record *number* may be deleted on the backend of this id (`MarkerGuard.covers`)."""
        backend = self.backends.get(place)
        return backend is not None and backend.covers(number)

    async def _check_markers(self, backends: Iterable[MarkerGuard]) -> None:
        """Look at these and stamp them. One that is silent takes no longer than its opening may. Raises as `watch`."""

        async def look(backend: MarkerGuard) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timing.backends.open_seconds):
                    await backend.look(self._rows, stamp=True)

        await asyncio.gather(*map(look, backends))
        self._see_that_it_goes_on_here()

    async def renew(self, topology: Topology) -> None:
        """Open those anew that *topology* reaches in another way, or whose files were replaced. Where that fails, what
        was opened before goes on, and `watch` tries again."""
        self._places |= {name: place for name, place in topology.backends.items() if name in self._ids}
        await asyncio.gather(*map(self._renew, self._changed()))

    async def check_openable(self, topology: Topology) -> None:
        """See that those of *topology* can be opened that do not stand yet, or are reached in another way than the
        config in force says, and let go of them; where only a file was replaced, no edit waits for that. Raises
        `TemporarilyRejected`, which says the key path of the first that cannot, and `Misconfigured` for one that the
        journal has not met."""
        for name, place in topology.backends.items():
            if name not in self._places or without_placement(self._places[name]) != without_placement(place):
                try:
                    await close_all([await self._opening.open(place)])
                except backend_errors.BackendError as error:
                    if name in self.pending() and isinstance(error, backend_errors.Unavailable):
                        continue  # it is away, however it is reached
                    raise TemporarilyRejected(f"backends.{name}: {error.message}") from error

    async def close_removed(self, topology: Topology) -> None:
        """Let go of those that *topology* has no more, once their calls under way have had their time."""
        for name in [name for name in self._ids if name not in topology.backends]:
            backend = self.backends.pop(self._ids.pop(name), None)
            del self._places[name]
            self._warned.pop(name, None)
            self._opening.elsewhere.pop(name, None)
            reached = self._params.pop(name)
            if backend is not None:
                self._close_after_calls(backend, reached)

    def pending(self) -> dict[str, str]:
        """Those that could not be opened yet, and why."""
        inside = [each.inner for each in self.backends.values()]
        found = {each.name: each.why for each in inside if isinstance(each, PendingBackend)}
        return {name: why for name, why in found.items() if why}

    def refusing(self) -> dict[str, str]:
        """Those that take nothing since they do not bear this site's marker any more, and why."""
        return {each.name: each.why for each in self.backends.values() if each.why}

    def unstamped(self) -> dict[str, str]:
        """Those on which nothing is deleted since they could not be stamped, and why."""
        told = "nothing is deleted there, since it could not be stamped"
        return {each.name: f"{told}: {each.unstamped}" for each in self.backends.values() if each.unstamped}

    def count(self) -> None:
        """Bring what is not there to the metrics."""
        gone, refusing, say_so = self.pending(), self.refusing(), self._elsewhere()
        MISSING.only({name: int(name in gone) for name in self._ids})
        REFUSING.only({name: int(name in refusing) for name in self._ids})
        ELSEWHERE.only({name: int(isinstance(say_so.get(name), RestoredElsewhere)) for name in self._ids})
        STAMPED.only({name: int(isinstance(say_so.get(name), StampedElsewhere)) for name in self._ids})

    async def watch(self) -> None:
        """Look at the marker of each every so often; until cancelled. Raises `Misconfigured`, of which
        `HistoriesDiverged`, once
        they agree that this site goes on elsewhere; from then on none of them is written on."""
        watching: dict[MarkerGuard, asyncio.Task[None]] = {}
        following = asyncio.create_task(self._follow_files(), name="files of backends")
        try:
            while True:
                standing = set(self.backends.values())
                for gone in watching.keys() - standing:
                    watching.pop(gone).cancel()
                for new in standing - watching.keys():
                    watching[new] = asyncio.create_task(new.watch(self._rows), name=f"marker of {new.name}")
                if watching:
                    done, _ = await asyncio.wait(
                        watching.values(),
                        timeout=self._timing.markers.local_seconds,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    for task in done:
                        await task  # it ends only by a mistake of its own: raise that
                else:
                    await self._timing.clock.sleep(self._timing.markers.local_seconds)
                self._see_that_it_goes_on_here()
        finally:
            for task in (following, *watching.values()):
                task.cancel()
            await asyncio.gather(following, *watching.values(), return_exceptions=True)

    async def _follow_files(self) -> None:
        """Open anew, every so often, what is reached otherwise by now."""
        while True:
            await self._timing.clock.sleep(self._timing.markers.files_seconds)
            changed = await asyncio.to_thread(self._changed)
            await asyncio.gather(*map(self._renew, changed))

    def _changed(self) -> list[str]:
        """Those that stand and were opened in another way than they would be now. Looks at files."""
        pending = self.pending()  # which tries by itself, with what holds then
        places = list(self._places.items())
        return [
            name for name, place in places if name not in pending and self._params.get(name) != connection_params(place)
        ]

    async def _renew(self, name: str) -> None:
        """Open it as it is reached now, and go on with that; unless it left the config meanwhile."""
        place = self._places.get(name)
        if place is None:
            return
        reach = connection_params(place)
        try:
            opened = await self._opening.open(place)
        except (backend_errors.BackendError, EntrepotError) as error:
            self._warn_once(name, str(error))
            return
        except Exception as error:  # noqa: BLE001 (tried again, whatever it was)
            self._warn_once(name, f"{type(error).__name__}: {error}")
            return
        standing = self.backends.get(self._ids.get(name, 0))
        if standing is None or self._places.get(name) != place:
            await close_all([opened])
            return
        before, self._params[name] = self._params[name], reach
        self._warned.pop(name, None)
        self._close_after_calls(standing.replace_inner(opened), before)
        _log.info("backend %r was opened anew", name)

    def _warn_once(self, name: str, why: str) -> None:
        """Once, and not at each try."""
        if name in self._places and self._warned.get(name) != why:
            _log.warning("backend %r goes on as it was opened, since it cannot be opened anew: %s", name, why)
            self._warned[name] = why

    def _close_after_calls(self, backend: Backend, reached: ConnectionParams) -> None:
        """Close it once each call that is under way there has ended, or had its time."""
        seconds = max(self._timing.backends.close_seconds, reached.place.deadline_seconds)
        task = asyncio.create_task(self._close_later(backend, seconds))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _close_later(self, backend: Backend, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        await close_all([backend])

    def _elsewhere(self) -> dict[str, ActiveElsewhere]:
        """Those whose marker says that this site goes on elsewhere, and what each says."""
        return self._opening.elsewhere | {
            each.name: each.elsewhere for each in self.backends.values() if each.elsewhere
        }

    def _see_that_it_goes_on_here(self) -> None:
        """Raises as `watch` where the places agree that it does not: then nothing is written on any of them."""
        try:
            require_active_here(self._places, self._elsewhere())
        except Misconfigured as error:
            for each in self.backends.values():
                each.why = each.why or str(error)
            raise

    async def close(self) -> None:
        self._closing.set()
        try:
            await self._stamp_a_last_time()
        finally:
            await asyncio.gather(*self._leaving, return_exceptions=True)
            await close_all(self.backends.values())

    async def _stamp_a_last_time(self) -> None:
        """So that an older copy of this journal, started next, finds how far this one came."""
        if self._fencing is not None and self._fencing.stamps:
            with suppress(TimeoutError, EntrepotError):
                async with asyncio.timeout(self._timing.markers.last_stamp_seconds):
                    well = [each for each in self.backends.values() if not each.why]
                    await asyncio.gather(*(each.look(self._rows, stamp=True) for each in well))

    def _place(self, name: str) -> BackendPlace:
        """As the config in force has it. Raises `Misconfigured` where it has it no more: who is on his way out looks
        for his backend until he is gone."""
        if name not in self._places:
            raise backend_errors.Misconfigured("the config in force does not name it", backend=name)
        return self._places[name]

    async def _try_named(self, name: str) -> Backend:
        """Open it as it is reached now, and check it."""
        place = self._place(name)
        self._params[name] = connection_params(place)
        return await self._opening.open(place)

    def _add(self, place: BackendPlace, backend: Backend) -> None:
        number, local, looks = self._ids[place.name], place.s3 is None, self._timing.markers
        self.backends[number] = MarkerGuard(
            backend,
            number,
            seconds=looks.local_seconds if local else looks.distant_seconds,
            reopen=functools.partial(self._try_again, place.name) if local else None,
            fencing=self._fencing,
            timing=self._timing,
        )

    async def _try_again(self, name: str) -> Backend:
        """As `_try_named`, of a local one that was in use already: into an empty mount point nothing is written."""
        if not await asyncio.to_thread(bears_marker, self._place(name).path):
            raise backend_errors.Misconfigured("it bears no marker", backend=name)
        return await self._try_named(name)


def _can_write(topology: Topology, policy: str, pending: Mapping[str, object]) -> bool:
    found = topology.policies[policy]
    there = [name for name in topology.acked_on(found) if name not in pending]
    return len(there) >= topology.copies_before_answer(found)
