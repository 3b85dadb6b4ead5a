"""Builds a backend that the config names: its driver with its credentials, and the wrappers around it.

The credentials of an S3 backend are read from where the config says, at each opening. Only the driver gets them.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import resource
from collections.abc import Callable
from typing import TYPE_CHECKING

from backends import errors
from backends.base import Backend
from backends.local.backend import WAL_BYTES, Local
from backends.named_files import read_named_file
from backends.wrappers import ConcurrencyLimited, Metered, ReadOnlyBackend, TimeLimited
from gateway.metrics import counter, histogram
from gateway.site.storage.connection_params import credential_files
from gateway.timing import Timing
from gateway.topology import BackendPlace, S3Place

if TYPE_CHECKING:
    from backends.s3.backend import S3

CALLS = counter("entrepot_backend_calls_total", "Calls of backends.", ("backend", "verb", "outcome"))
SECONDS = histogram("entrepot_backend_seconds", "How long calls of backends took.", ("backend", "verb"))
MOVED = counter("entrepot_backend_bytes_total", "Sealed bytes that calls of backends moved.", ("backend", "verb"))

DESCRIPTORS_MAX = 16_384
CONNECTIONS = 12_288
SECRET_BYTES_MAX = 4_096
TRY_SHARE = 1 / 3
"""Fraction of a remote backend's deadline that a single attempt may take."""


async def open_backend(
    place: BackendPlace, *, writes_much: bool, make: bool, timing: Timing, read_only: bool = False
) -> Backend:
    """Open the backend at *place*, with a limit of concurrent calls, a deadline and metrics; for a bucket also with
    retries (`with_retries`).

    *writes_much*: keep the logs that make small local writes fast. *make*: create the folder, or the bucket if the
    config says so. Only a place that is about to be claimed is created: if a claimed one is missing, an empty one in
    its place would be in the way when it comes back. *read_only*: change nothing there, and refuse every change. Raises
    `backends.errors`."""
    if place.s3 is None:
        driver: Backend = await Local.open(
            place.path,
            name=place.name,
            descriptors=_descriptors(),
            wal_bytes=WAL_BYTES if writes_much else 0,
            make=make,
            recovers=not read_only,
            timing=timing.drivers,
        )
        whole: Backend = TimeLimited(ConcurrencyLimited(driver, place.calls), place.deadline_seconds)
    else:
        whole = with_retries(await open_s3(place, place.s3, make=make, timing=timing), place, timing)
    if read_only:
        whole = ReadOnlyBackend(whole)
    return Metered(whole, _observer(place.name))


async def load_driver(place: BackendPlace) -> None:
    """Import the code that opening *place* needs, without any I/O on the place. A caller that limits the time of
    opening does this first, since imports take long on a busy machine."""
    if place.s3 is not None:
        s3 = await asyncio.to_thread(importlib.import_module, "backends.s3.backend")
        await s3.S3.load()


def with_retries(driver: Backend, place: BackendPlace, timing: Timing) -> Backend:
    """Return *driver* with retries. Each attempt takes a slot of its own, so a call that pauses between two attempts
    leaves its slot to others. All attempts of a call, with their pauses and the waits for slots, have one deadline. The
    driver limits the time of a single attempt to less than that, so that one that hangs leaves time for a second."""
    from backends.retry import Retrying  # imported only by processes that have such a backend

    limited = ConcurrencyLimited(driver, place.calls)
    tries = Retrying(limited, within_s=place.deadline_seconds, timing=timing.drivers, clock=timing.clock)
    return TimeLimited(tries, place.deadline_seconds)


async def open_s3(place: BackendPlace, s3: S3Place, *, make: bool, timing: Timing) -> S3:
    """Open the driver of a bucket, without wrappers. Raises `backends.errors`."""
    from backends.s3.backend import S3

    secret_file = await asyncio.to_thread(_read_files, place, s3)
    return await S3.open(
        name=place.name,
        bucket=s3.bucket,
        prefix=s3.prefix,
        endpoint=s3.endpoint or None,
        region=s3.region or None,
        profile=s3.profile or None,
        access_key=s3.access_key or _from_environment(place, s3.access_key_env),
        secret_key=_from_environment(place, s3.secret_key_env) or secret_file,
        session_token=_from_environment(place, s3.session_token_env),
        style=s3.style,
        create_bucket=s3.create_bucket and make,
        ca_file=s3.ca_file or None,
        connections=place.calls,
        timeout_s=place.deadline_seconds * TRY_SHARE,
        timing=timing.drivers,
    )


def _from_environment(place: BackendPlace, variable: str) -> str | None:
    if not variable:
        return None
    value = os.environ.get(variable)
    if not value:
        raise errors.Misconfigured(f"the variable {variable} is not set, which the config names", backend=place.name)
    return value


def _read_files(place: BackendPlace, s3: S3Place) -> str | None:
    """Return the secret key in the file that the config names; None if it names none. Blocking.

    The other files that it names, AWS's profiles among them, are read by libraries. Check that each is a regular file.
    Raises `backends.errors.Misconfigured`."""
    for path in credential_files(place):
        try:
            read_named_file(path)
        except (FileNotFoundError, PermissionError):
            continue  # the library that needs it reports that
        except OSError as error:
            raise errors.Misconfigured(f"{path} cannot be read: {error.strerror}", backend=place.name) from error
    return _from_file(place, s3.secret_key_file)


def _from_file(place: BackendPlace, path: str) -> str | None:
    if not path:
        return None
    try:
        secret = read_named_file(path, SECRET_BYTES_MAX).decode("ascii").strip()
    except UnicodeDecodeError:
        secret = ""
    except OSError as error:
        raise errors.Misconfigured(f"{path} cannot be read: {error.strerror}", backend=place.name) from error
    if not secret:
        raise errors.Misconfigured(f"{path} holds no secret key", backend=place.name)
    return secret


def _descriptors() -> int:
    """Return how many files of a backend may be kept open, so that a small read is one system call.

    Of the process's limit, `CONNECTIONS` are reserved for connections, or three quarters of it if it is smaller."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, min(DESCRIPTORS_MAX, max(limit - CONNECTIONS, limit // 4)))


def _observer(name: str) -> Callable[[str, str, float, int], None]:
    def observe(verb: str, outcome: str, seconds: float, moved: int) -> None:
        CALLS.add(1, name, verb, outcome)
        SECONDS.observe(seconds, name, verb)
        if moved:
            MOVED.add(moved, name, verb)

    return observe
