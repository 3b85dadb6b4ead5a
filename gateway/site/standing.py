"""The backends of a process: opened, checked to be this site's, and, where that fails, stood in for until it does not.

A place that bears no marker, or another site's, is not the one that was claimed: a disk that is not mounted, a bucket
of that name somewhere else. Nothing is written there, and nothing could be read. One that bears this site's marker in a
later incarnation says that the site was restored elsewhere: then nothing here goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from backends import errors as backend_errors
from backends.base import Backend, Marker
from gateway.errors import EntrepotError, Misconfigured
from gateway.metrics import gauge
from gateway.site.absent import Absent
from gateway.site.opening import open_backend
from gateway.site.ring import Rows
from gateway.topology import BackendPlace, Topology

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_keys, dict_values

MISSING = gauge("entrepot_backend_absent", "Processes in which a backend could not be opened yet.", ("backend",))

OPEN_SECONDS = 10.0

_log = logging.getLogger(__name__)


class Live(dict[int, Backend]):
    """Backends by the journal's ids. Who walks over them while some come or go sees those of when it began."""

    def __iter__(self) -> Iterator[int]:
        return iter(dict(super().items()))

    def keys(self) -> dict_keys[int, Backend]:
        return dict(super().items()).keys()

    def values(self) -> dict_values[int, Backend]:
        return dict(super().items()).values()

    def items(self) -> dict_items[int, Backend]:
        return dict(super().items()).items()


class Standing:
    """All backends that the config names. For one event loop."""

    def __init__(self, rows: Rows, *, writes_much: bool) -> None:
        self.backends = Live()
        """The same mapping for good; a reload adds to it and takes from it."""
        self._rows = rows
        self._writes_much = writes_much
        self._ids: dict[str, int] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def open(self, topology: Topology, *, strict: bool) -> None:
        """Open those of *topology* that do not stand yet. *strict*: raises `Misconfigured` where no policy could be
        met without those that fail; otherwise, and where one could, they count as not available until they are.

        Raises `Misconfigured` also where the site goes on elsewhere, and for a backend that the journal has not met."""
        wanted = {name: place for name, place in topology.backends.items() if name not in self._ids}
        self._ids |= {name: _id(self._rows, name) for name in wanted}
        failures: dict[str, backend_errors.BackendError] = {}
        opened = await asyncio.gather(*(self._try(place) for place in wanted.values()), return_exceptions=True)
        for place, outcome in zip(wanted.values(), opened, strict=True):
            if isinstance(outcome, Backend):
                self.backends[self._ids[place.name]] = outcome
            elif isinstance(outcome, backend_errors.BackendError):
                failures[place.name] = outcome
        for outcome in opened:
            if isinstance(outcome, BaseException) and not isinstance(outcome, backend_errors.BackendError):
                raise outcome
        if failures and strict and not any(_can_write(topology, policy, failures) for policy in topology.policies):
            first = next(iter(failures.values()))
            raise Misconfigured(str(first)) from first
        for name, error in failures.items():
            _log.error("backend %r is not available: %s", name, error)
            self._stand_in(wanted[name], error)

    async def try_out(self, topology: Topology) -> None:
        """See that those of *topology* that do not stand yet can be opened, and let go of them. Raises `Misconfigured`,
        also for one that the journal has not met."""
        for name, place in topology.backends.items():
            if name not in self._ids:
                try:
                    await close_all([await self._try(place)])
                except backend_errors.BackendError as error:
                    raise Misconfigured(str(error)) from error

    async def leave(self, topology: Topology) -> None:
        """Let go of those that *topology* has no more, once their calls under way have had their time."""
        for name in [name for name in self._ids if name not in topology.backends]:
            backend = self.backends.pop(self._ids.pop(name), None)
            if backend is not None:
                task = asyncio.create_task(_close_later(backend))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    def absent(self) -> dict[str, str]:
        """Those that could not be opened yet, and why."""
        found = {each.name: each.why for each in self.backends.values() if isinstance(each, Absent)}
        return {name: why for name, why in found.items() if why}

    def count(self) -> None:
        """Bring what is not there to the metrics."""
        gone = self.absent()
        for name in self._ids:
            MISSING.set(int(name in gone), name)

    async def check_markers(self) -> None:
        """See that no backend says that this site goes on elsewhere. Raises `Misconfigured` if one does, and
        `BackendError` where one cannot be seen now, or bears another marker than it did."""
        failed: list[backend_errors.BackendError] = []
        for backend_id, backend in self.backends.items():
            try:
                await check_marker(backend, backend_id, self._rows)
            except backend_errors.BackendError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    async def close(self) -> None:
        for task in self._leaving:
            task.cancel()
        await close_all(self.backends.values())

    async def _try(self, place: BackendPlace) -> Backend:
        """Opened, and checked. One that is silent counts as away: nobody waits for it longer than for the others."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return await self._opened(place)
        except TimeoutError as error:
            message = f"it could not be opened within {OPEN_SECONDS:g} s"
            raise backend_errors.Unavailable(message, backend=place.name) from error

    async def _opened(self, place: BackendPlace) -> Backend:
        backend = await open_backend(place, writes_much=self._writes_much)
        try:
            await check_marker(backend, _id(self._rows, place.name), self._rows)
        except BaseException:
            await close_all([backend])
            raise
        return backend

    def _stand_in(self, place: BackendPlace, error: backend_errors.BackendError) -> None:
        self.backends[self._ids[place.name]] = Absent(place.name, error.message, lambda: self._try(place))


async def check_marker(backend: Backend, backend_id: int, rows: Rows) -> None:
    """See that *backend* bears the marker of this site. Raises `backends.errors` if it bears none or another one, and
    `Misconfigured` if that is this site's in a later incarnation."""
    site, incarnation = site_row(rows)
    wanted, held = Marker(site, backend_id, incarnation), await backend.marker()
    if held == wanted:
        return
    if held is None:
        message = "it does not bear this site's marker: is its disk mounted, is it the right bucket?"
        raise backend_errors.Misconfigured(message, backend=backend.name)
    told = (
        f"belongs to site {held.site}, incarnation {held.incarnation}, as backend {held.backend}; this is site {site}, "
        f"incarnation {incarnation}, backend {backend_id}"
    )
    if held.site == site and held.incarnation > incarnation:
        raise Misconfigured(f"backend {backend.name!r} {told}")
    raise backend_errors.Foreign(f"it {told}", backend=backend.name)


def site_row(rows: Rows) -> tuple[str, int]:
    """The site's id and incarnation. Raises `Misconfigured` if it was never founded."""
    found = rows.query("SELECT id, incarnation FROM site")
    if not found:
        raise Misconfigured("the journal is empty: the site was not founded")
    return found[0][0], found[0][1]


def _can_write(topology: Topology, policy: str, absent: Mapping[str, object]) -> bool:
    found = topology.policies[policy]
    there = [name for name in topology.acked_on(found) if name not in absent]
    return len(there) >= topology.copies_before_answer(found)


def _id(rows: Rows, name: str) -> int:
    found = rows.query("SELECT id FROM backend WHERE name = ?", (name,))
    if not found:
        raise Misconfigured(f"the journal has not met the backend {name!r} that the config names")
    return int(found[0][0])


CLOSE_SECONDS = 120.0
"""What calls have that are under way when a backend leaves the config."""


async def _close_later(backend: Backend) -> None:
    try:
        await asyncio.sleep(CLOSE_SECONDS)
    finally:
        await close_all([backend])


async def close_all(backends: Iterable[Backend]) -> None:
    """All of them, whatever one of them raises."""
    async with AsyncExitStack() as held:
        for backend in backends:
            held.push_async_callback(_close_one, backend)


async def _close_one(backend: Backend) -> None:
    with suppress(backend_errors.BackendError, EntrepotError):
        await backend.close()
