"""Opens a backend that this process has not opened yet, only to read it: nothing is created or changed there."""

from __future__ import annotations

import asyncio
import os

from backends import errors
from backends.base import Backend, Marker
from gateway.site.storage.backend_factory import load_driver, open_backend
from gateway.site.storage.open_backends import close_all
from gateway.timing import Timing
from gateway.topology import BackendPlace


async def open_existing(place: BackendPlace, timing: Timing) -> Backend:
    """Open the backend at *place*. The caller closes it. Raises `backends.errors`."""
    if place.s3 is None and not os.path.isdir(place.path):
        raise errors.Misconfigured(f"{place.path} is not a folder", backend=place.name)
    await load_driver(place)
    seconds = timing.backends.open_seconds
    try:
        async with asyncio.timeout(seconds):
            return await open_backend(place, writes_much=False, make=False, timing=timing, read_only=True)
    except TimeoutError:
        raise errors.Unavailable(f"it could not be opened within {seconds:g} s", backend=place.name) from None


async def read_marker(place: BackendPlace, timing: Timing) -> Marker | None:
    """Return the marker of the backend at *place*; None if it has none. Raises `backends.errors`."""
    backend = await open_existing(place, timing)
    try:
        async with asyncio.timeout(timing.backends.open_seconds):
            return await backend.marker()
    except TimeoutError:
        raise errors.Unavailable("its marker could not be read in time", backend=place.name) from None
    finally:
        await close_all([backend])


def would_create_bucket(place: BackendPlace, error: errors.BackendError) -> bool:
    """Whether *error*, which opening *place* raised, says that its bucket does not exist, and a claim creates it."""
    return place.s3 is not None and place.s3.create_bucket and "no such bucket" in error.message
