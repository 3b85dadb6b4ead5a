"""Opens a backend and checks that it is this site's, in bounded time and whatever its server returns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os

from backends import errors as backend_errors
from backends.base import Backend
from gateway.errors import EntrepotError, Misconfigured
from gateway.site.storage.agreement import ActiveElsewhere
from gateway.site.storage.backend_factory import load_driver, open_backend
from gateway.site.storage.fencing import Fencing
from gateway.site.storage.keyring import JournalTables
from gateway.site.storage.marker_guard import check_marker, check_site_of_marker
from gateway.site.storage.open_backends import close_all
from gateway.timing import Timing
from gateway.topology import BackendPlace

_log = logging.getLogger(__name__)


class CheckedOpener:
    """Opens backends for one process."""

    def __init__(
        self,
        rows: JournalTables,
        *,
        timing: Timing,
        writes_much: bool,
        journal_device: int | None,
        fencing: Fencing | None,
        read_only: bool = False,
    ) -> None:
        """*writes_much*: see `open_backend`. *journal_device*: the number (st_dev) of the journal's file system.
        *read_only*: open backends that refuse every change, whatever the incarnation in their markers is."""
        self._rows, self._timing, self._fencing = rows, timing, fencing
        self._writes_much, self._journal_device = writes_much and not read_only, journal_device
        self._read_only = read_only
        self.on_journal_disk: set[int] = set()
        """The ids of local backends whose folder was on the journal's file system when it was opened last."""
        self.elsewhere: dict[str, ActiveElsewhere] = {}
        """By name, the takeovers that markers reported when the backends were tried last."""

    async def open(self, place: BackendPlace) -> Backend:
        """Return the backend at *place*, opened and checked. A backend that does not answer within `open_seconds`
        counts as away. The time that this process takes to load its driver does not count.

        Raises what the driver raises, `ActiveElsewhere`, and `Misconfigured` for one that the journal does not know."""
        await load_driver(place)
        seconds = self._timing.backends.open_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._checked(place)
        except TimeoutError as error:
            message = f"it could not be opened within {seconds:g} s"
            raise backend_errors.Unavailable(message, backend=place.name) from error
        except (backend_errors.BackendError, EntrepotError):
            raise
        except Exception as error:  # a bug in handling one place's answer must not keep the others from opening
            _log.exception("opening backend %r failed", place.name)
            message = f"opening it failed: {type(error).__name__}: {error}"
            raise backend_errors.Unavailable(message, backend=place.name) from error

    async def _checked(self, place: BackendPlace) -> Backend:
        backend = await open_backend(
            place, writes_much=self._writes_much, make=False, timing=self._timing, read_only=self._read_only
        )
        try:
            backend_id = known_id(self._rows, place.name)
            if self._read_only:
                await check_site_of_marker(backend, backend_id, self._rows)
                return backend
            await check_marker(backend, backend_id, self._rows, self._fencing)
            if place.s3 is None:
                await self._compare_device(backend_id, place)
        except BaseException as error:
            if isinstance(error, ActiveElsewhere):
                self.elsewhere[place.name] = error
            await close_all([backend])
            raise
        self.elsewhere.pop(place.name, None)
        return backend

    async def _compare_device(self, backend_id: int, place: BackendPlace) -> None:
        self.on_journal_disk.discard(backend_id)
        with contextlib.suppress(OSError):  # the folder was moved away since it was opened
            if (await asyncio.to_thread(os.stat, place.path)).st_dev == self._journal_device:
                self.on_journal_disk.add(backend_id)


def known_id(rows: JournalTables, name: str) -> int:
    """Return the journal's id of the backend *name*. Raises `Misconfigured` if it has none."""
    ids = rows.query("SELECT id FROM backend WHERE name = ?", (name,))
    if not ids:
        raise Misconfigured(f"the journal does not know the backend {name!r} that the config names")
    return int(ids[0][0])
