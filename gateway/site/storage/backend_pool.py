"""The backends of a process: opened, checked, replaced by placeholders while they are away, and reopened after changes.

Theory of operation
-------------------
`backends` maps the journal's id of each backend to its `MarkerGuard`, which stays the same object while the config
names the backend. What is inside the guard changes:

- *Open*: the driver with its wrappers. It was opened and its marker was checked (`checked_opening.py`).
- *Pending*: a `PendingBackend`, if opening failed. It retries in the background and then passes calls on.

Who changes what:

- `open` adds guards for backends that the topology names and the pool does not have yet.
- `renew` (on a reload) and `_follow_files` (periodically) compare the parameters with which each backend was opened
  (`connection_params.py`) with those of now. A backend whose parameters have changed is opened again and replaces the
  old one inside its guard. If that fails, the old one stays in use and the next period tries again.
- `close_removed` removes guards that the topology no longer names.
- The guard itself changes between usable and unusable (`marker_guard.py`). `watch` runs its checks (`marker_watch.py`).

Invariants:

- A place that has no marker, or another site's, is not the one that was claimed (a disk that is not mounted, a bucket
  of that name elsewhere). It is never opened, since what is written there would never be found.
- Once the places agree that another instance of this site has taken over (`agreement.py`), all guards are unusable, and
  the method that finds out raises `Misconfigured`. That ends the process.
- A backend that leaves the pool is closed only after the calls that were under way have ended or had their time.
- One backend that is slow, broken or hostile delays no other one, and ends no process.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress

from backends import errors as backend_errors
from backends.base import Backend
from backends.local.marker import has_marker
from gateway.blocks.inline.backend import InlineBackend
from gateway.blocks.inline.values import InlineValues
from gateway.errors import EntrepotError, Misconfigured
from gateway.metrics import gauge
from gateway.site.storage.agreement import RestoredElsewhere, StampedElsewhere
from gateway.site.storage.backend_trouble import BackendTrouble
from gateway.site.storage.checked_opening import CheckedOpener, known_id
from gateway.site.storage.connection_params import ConnectionParams, connection_params, without_placement
from gateway.site.storage.fencing import Fencing
from gateway.site.storage.keyring import JournalTables
from gateway.site.storage.marker_guard import MarkerGuard
from gateway.site.storage.marker_watch import MarkerWatch
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
    "Processes that read in a backend's marker that this site was restored elsewhere.",
    ("backend",),
)

STAMPED = gauge(
    "entrepot_backend_stamped_elsewhere",
    "Processes that read in a backend's marker the fence of another copy of this site's folder.",
    ("backend",),
)

_log = logging.getLogger(__name__)


class BackendPool:
    """All backends that the config names. For one event loop."""

    def __init__(
        self,
        rows: JournalTables,
        *,
        timing: Timing,
        writes_much: bool,
        journal_device: int | None = None,
        inline: InlineValues | None = None,
        fencing: Fencing | None = None,
        read_only: bool = False,
    ) -> None:
        """*writes_much*: see `open_backend`. *journal_device* and *read_only*: see `CheckedOpener`. *inline*: the
        site's inline values, if blocks are read."""
        self.backends = OpenBackends()
        """This mapping is never replaced; reloads add to it and remove from it."""
        self._rows = rows
        self._timing = timing
        self._inline = inline
        self._fencing = fencing
        new_opener = functools.partial(
            CheckedOpener,
            rows,
            timing=timing,
            writes_much=writes_much,
            journal_device=journal_device,
            fencing=fencing,
            read_only=read_only,
        )
        self._opener = new_opener()
        self._candidate_opener = new_opener()
        """For `check_openable`: what it finds out about a backend says nothing about the open one of that name."""
        self._ids: dict[str, int] = {}
        self._places: dict[str, BackendPlace] = {}
        """The places of the config in force, by name. Changed in place: the watch of the markers reads it."""
        self._markers = MarkerWatch(self.backends, self._places, self._opener.elsewhere, rows, fencing, timing)
        self._params: dict[str, ConnectionParams] = {}
        """The parameters with which each backend was opened, by name."""
        self._warned: dict[str, str] = {}
        """By name, the reason that was logged last why a backend could not be opened again."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    # ---- opening -----------------------------------------------------------------------------------------------------

    async def open(self, topology: Topology, *, strict: bool) -> None:
        """Open the backends of *topology* that the pool does not have yet. Those that fail become pending.

        *strict*: raise `Misconfigured` if no policy could be met without those that fail. Raises `Misconfigured` also
        if another instance of the site has taken over, and for a backend that the journal does not know."""
        wanted = {name: place for name, place in topology.backends.items() if name not in self._ids}
        self._ids |= {name: known_id(self._rows, name) for name in wanted}
        self._places |= wanted
        self._params |= {name: connection_params(place) for name, place in wanted.items()}
        failures = await self._open_all(wanted.values())
        self._markers.require_active_here()
        if failures and strict and not any(_can_write(topology, policy, failures) for policy in topology.policies):
            first = next(iter(failures.values()))
            raise Misconfigured(str(first)) from first
        for name, error in failures.items():
            _log.error("backend %r is not available: %s", name, error)
            reopen = functools.partial(self._open_named, name)
            self._add(wanted[name], PendingBackend(name, error.message, reopen, self._timing))
            self.backends[self._ids[name]].set_unreachable(error.message)
        await self._markers.stamp_opened([self.backends[self._ids[name]] for name in wanted if name not in failures])

    async def _open_all(self, places: Iterable[BackendPlace]) -> dict[str, backend_errors.BackendError]:
        """Open *places*, all at once, and add those that succeed. Returns the errors of the others by name. Raises an
        error that is no backend's own, after all others have ended."""
        wanted = list(places)
        failures: dict[str, backend_errors.BackendError] = {}
        outcomes = await asyncio.gather(*(self._opener.open(place) for place in wanted), return_exceptions=True)
        for place, outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, Backend):
                self._add(place, outcome)
            elif isinstance(outcome, backend_errors.BackendError):
                failures[place.name] = outcome
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, backend_errors.BackendError):
                raise outcome
        return failures

    async def check_openable(self, topology: Topology) -> None:
        """Check that the backends of *topology* can be opened which are new, or whose entry in the config has changed,
        and close them again. A file that was replaced is not checked, so that no edit waits for it.

        Raises `TemporarilyRejected`, with the key path of the first backend that fails, and `Misconfigured` for one
        that the journal does not know."""
        for name, place in topology.backends.items():
            if name not in self._places or without_placement(self._places[name]) != without_placement(place):
                try:
                    await close_all([await self._candidate_opener.open(place)])
                except backend_errors.BackendError as error:
                    if name in self.pending() and isinstance(error, backend_errors.Unavailable):
                        continue  # it is away, whatever its parameters are
                    raise TemporarilyRejected(f"backends.{name}: {error.message}") from error

    def _add(self, place: BackendPlace, backend: Backend) -> None:
        number, local, pauses = self._ids[place.name], place.s3 is None, self._timing.markers
        self.backends[number] = MarkerGuard(
            self._with_inline_values(place.name, backend),
            number,
            seconds=pauses.local_seconds if local else pauses.distant_seconds,
            reopen=functools.partial(self._reopen_local, place.name) if local else None,
            fencing=self._fencing,
            timing=self._timing,
        )

    def _with_inline_values(self, name: str, backend: Backend) -> Backend:
        """Return the backend *name* together with its inline values, if it may have any. They can be read also while
        its folder cannot be opened."""
        if self._inline is None or self._places[name].s3 is not None:
            return backend
        return InlineBackend(backend, self._ids[name], self._inline)

    def _place(self, name: str) -> BackendPlace:
        """Return the place of *name* in the config in force. Raises `backends.errors.Misconfigured` if it is not there:
        a backend that is being removed may still try to reopen."""
        if name not in self._places:
            raise backend_errors.Misconfigured("the config in force does not name it", backend=name)
        return self._places[name]

    async def _open_named(self, name: str) -> Backend:
        """Open the backend with the parameters of now, and check it."""
        place = self._place(name)
        self._params[name] = connection_params(place)
        return await self._opener.open(place)

    async def _reopen_local(self, name: str) -> Backend:
        """Open a local backend that was in use before. An empty mount point is not even opened, since opening
        writes."""
        if not await asyncio.to_thread(has_marker, self._place(name).path):
            raise backend_errors.Misconfigured("it has no marker", backend=name)
        return self._with_inline_values(name, await self._open_named(name))

    # ---- changes of the config and of files --------------------------------------------------------------------------

    async def renew(self, topology: Topology) -> None:
        """Open those backends again whose parameters in *topology* have changed, or whose files were replaced. If that
        fails, the old one stays in use, and `watch` tries again."""
        self._places |= {name: place for name, place in topology.backends.items() if name in self._ids}
        await asyncio.gather(*map(self._renew, self._changed()))

    async def close_removed(self, topology: Topology) -> None:
        """Remove the backends that *topology* does not name, and close them once their calls have ended."""
        for name in [name for name in self._ids if name not in topology.backends]:
            backend = self.backends.pop(self._ids.pop(name), None)
            del self._places[name]
            self._warned.pop(name, None)
            self._opener.elsewhere.pop(name, None)
            params = self._params.pop(name)
            if backend is not None:
                self._close_after_calls(backend, params)

    async def _follow_files(self) -> None:
        """Open backends again, periodically, whose parameters have changed. Runs until cancelled."""
        while True:
            await self._timing.clock.sleep(self._timing.markers.files_seconds)
            changed = await asyncio.to_thread(self._changed)
            await asyncio.gather(*map(self._renew, changed))

    def _changed(self) -> list[str]:
        """Return the names of the open backends whose parameters have changed since they were opened. Reads the
        attributes of files."""
        pending = self.pending()  # these try by themselves, with the parameters of then
        places = list(self._places.items())
        return [
            name for name, place in places if name not in pending and self._params.get(name) != connection_params(place)
        ]

    async def _renew(self, name: str) -> None:
        """Open a backend with the parameters of now, and use that, unless the config has changed again meanwhile."""
        place = self._places.get(name)
        if place is None:
            return
        params = connection_params(place)
        try:
            opened = await self._opener.open(place)
        except (backend_errors.BackendError, EntrepotError) as error:
            self._warn_once(name, str(error))
            return
        except Exception as error:  # noqa: BLE001 (tried again, whatever it was)
            self._warn_once(name, f"{type(error).__name__}: {error}")
            return
        guard = self.backends.get(self._ids.get(name, 0))
        if guard is None or self._places.get(name) != place:
            await close_all([opened])
            return
        before, self._params[name] = self._params[name], params
        self._warned.pop(name, None)
        self._close_after_calls(guard.replace_inner(self._with_inline_values(name, opened)), before)
        _log.info("backend %r was reopened", name)

    def _warn_once(self, name: str, why: str) -> None:
        """Log that a backend could not be opened again, unless the same reason was logged last."""
        if name in self._places and self._warned.get(name) != why:
            _log.warning("backend %r keeps its old connection, since it cannot be reopened: %s", name, why)
            self._warned[name] = why

    def _close_after_calls(self, backend: Backend, params: ConnectionParams) -> None:
        """Close *backend* in the background, once each call that is under way has ended or had its time."""
        seconds = max(self._timing.backends.close_seconds, params.place.deadline_seconds)
        task = asyncio.create_task(self._close_later(backend, seconds))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _close_later(self, backend: Backend, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        await close_all([backend])

    # ---- markers -----------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Check the marker of each backend periodically, and follow changed files. Runs until cancelled. Raises as
        `MarkerWatch.watch`."""
        following = asyncio.create_task(self._follow_files(), name="files of backends")
        try:
            await self._markers.watch()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def stamp(self) -> None:
        """See `MarkerWatch.stamp`."""
        await self._markers.stamp()

    def covers(self, backend_id: int, number: int) -> bool:
        """Whether blocks that died at record *number* may be deleted on a backend (`MarkerGuard.covers`)."""
        backend = self.backends.get(backend_id)
        return backend is not None and backend.covers(number)

    def accepts_inline_values(self, backend_id: int) -> bool:
        """Whether small values for this backend may go into the journal's database: it is local, on the journal's file
        system, and usable."""
        backend = self.backends.get(backend_id)
        return backend is not None and not backend.why and backend_id in self._opener.on_journal_disk

    # ---- reports -----------------------------------------------------------------------------------------------------

    def pending(self) -> dict[str, str]:
        """Return, by name, why backends could not be opened yet."""
        guarded = [each.inner for each in self.backends.values()]
        inner = [each.files if isinstance(each, InlineBackend) else each for each in guarded]
        reasons = {each.name: each.why for each in inner if isinstance(each, PendingBackend)}
        return {name: why for name, why in reasons.items() if why}

    def refusing(self) -> dict[str, str]:
        """Return, by name, why backends take nothing: they do not have this site's marker any more."""
        return {each.name: each.why for each in self.backends.values() if each.why}

    def troubles(self) -> dict[str, BackendTrouble]:
        """Return, by name, what is wrong with backends, except those that were given up as lost."""
        pending = self.pending()
        lost = {name for (name,) in self._rows.query("SELECT name FROM backend WHERE lost = 1")}
        found: dict[str, BackendTrouble] = {}
        for each in self.backends.values():
            if each.name in lost:
                continue
            why = each.why or pending.get(each.name) or each.unreachable
            if why:
                found[each.name] = BackendTrouble(why, True, each.down_since_ns)
            elif each.unstamped:
                text = f"nothing is deleted there, since it could not be stamped: {each.unstamped}"
                found[each.name] = BackendTrouble(text, False)
        return found

    def count(self) -> None:
        """Update the metrics of backends that cannot be used."""
        pending, refusing, elsewhere = self.pending(), self.refusing(), self._markers.elsewhere()
        MISSING.only({name: int(name in pending) for name in self._ids})
        REFUSING.only({name: int(name in refusing) for name in self._ids})
        ELSEWHERE.only({name: int(isinstance(elsewhere.get(name), RestoredElsewhere)) for name in self._ids})
        STAMPED.only({name: int(isinstance(elsewhere.get(name), StampedElsewhere)) for name in self._ids})

    # ---- closing -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stamp a last time, and close all backends."""
        self._closing.set()
        try:
            await self._markers.stamp_a_last_time()
        finally:
            await asyncio.gather(*self._leaving, return_exceptions=True)
            await close_all(self.backends.values())


def _can_write(topology: Topology, policy_name: str, absent: Mapping[str, object]) -> bool:
    """Whether writes of a policy can be answered without the backends *absent*."""
    policy = topology.policies[policy_name]
    present = [name for name in topology.acked_on(policy) if name not in absent]
    return len(present) >= topology.copies_before_answer(policy)
