"""Check a backend: test each guarantee that Entrepot relies on, then measure the speed by value size and concurrency.

All test values have keys of this process's session, as blocks do, and the journal names none of them. If the process is
killed in between, the sweeper deletes what is left, together with the other unnamed blocks of the session.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from backends import errors
from backends.base import Backend, crc32c_of
from gateway.blocks.types import block_path, session_prefix
from gateway.config import Config, load
from gateway.crypto.sealing import new_block_id
from gateway.errors import InvalidArgument, Misconfigured
from gateway.site.storage.backend_factory import load_driver, open_backend, open_s3
from gateway.site.storage.marker_guard import check_marker
from gateway.timing import Timing
from gateway.topology import BackendPlace

if TYPE_CHECKING:
    from gateway.site.site import Site

UNCLAIMED = "the backend answers, and no other site has claimed it"
OWN_MARKER = "the backend answers and has this site's marker"
CONCURRENT_CALLS = "all of this holds under concurrent calls"
NOTHING_LEFT = "no test value is left"
CONCURRENCIES = (1, 4, 16)
SIZES = (4 << 10, 8 << 20)
LISTED_MAX = 1_000
"""Keys that are read of a listing that should have a few."""
OBJECTS_MAX = 256
"""Values that one measurement stores at most."""
BYTES_MAX = 256 << 20
"""Bytes that one measurement stores at most, unless each concurrent call stores one value."""


class Check(NamedTuple):
    guarantee: str
    failure: str
    """Why the guarantee is not met; empty if it is."""


class Throughput(NamedTuple):
    verb: str
    """`put` or `get`."""
    size: int
    """Bytes of a value."""
    at_once: int
    """Number of concurrent calls."""
    per_second: float
    bytes_per_second: float
    median_seconds: float
    worst_seconds: float


class BackendCheckResult(NamedTuple):
    backend: str
    checks: tuple[Check, ...]
    throughputs: tuple[Throughput, ...]
    capabilities: tuple[tuple[str, str], ...] = ()
    """Properties in which S3 servers differ, and their values here. Entrepot relies on none of them."""

    @property
    def passed(self) -> bool:
        return not any(check.failure for check in self.checks)


async def check_backend(site: Site, name: str, seconds: float, *, config: Config | None = None) -> BackendCheckResult:
    """Check the backend *name*. Each measurement takes about *seconds*. The backend may be one that is not in force
    yet: of *config*, or by default of the config file.

    Nothing is stored on a backend that cannot be reached, lacks this site's marker or has another site's; nothing is
    measured if a check fails. Raises `InvalidArgument` if the config names no such backend."""
    site.require_writable()
    for number, backend in site.storage.backends.items():
        if backend.name == name:
            marked = Check(OWN_MARKER, await _failure_of(lambda: _check_own_marker(backend, number, site)))  # noqa: B023
            return await _run_checks(site, site.storage.topology.backends[name], backend, marked, seconds)
    place = (config or load(site.folder)).topology(site.folder).backends.get(name)
    if place is None:
        raise InvalidArgument(f"the config names no backend {name!r}")
    return await _check_new_backend(site, place, seconds)


async def _check_new_backend(site: Site, place: BackendPlace, seconds: float) -> BackendCheckResult:
    """Check a backend that is not in force yet, so that the pool has not opened it."""
    await load_driver(place)
    try:
        backend = await open_backend(place, writes_much=False, make=place.s3 is None, timing=site.timing)
    except errors.BackendError as error:
        return BackendCheckResult(place.name, (Check(UNCLAIMED, f"{type(error).__name__}: {error}"),), ())
    try:
        unclaimed = Check(UNCLAIMED, await _failure_of(lambda: _check_unclaimed(backend, site)))
        return await _run_checks(site, place, backend, unclaimed, seconds)
    finally:
        await backend.close()


async def _check_unclaimed(backend: Backend, site: Site) -> str:
    held = await backend.marker()
    return "" if held is None or held.site == site.id else f"it belongs to site {held.site}"


async def _run_checks(
    site: Site, place: BackendPlace, backend: Backend, marked: Check, seconds: float
) -> BackendCheckResult:
    """Run all checks if *marked*, the one of the marker, has succeeded."""
    test = _BackendTest(backend, site.journal.session, site.timing)
    checks = [marked]
    throughputs: list[Throughput] = []
    capabilities: dict[str, str] = {}
    try:
        if not checks[0].failure:
            checks += [Check(guarantee, await _failure_of(check)) for guarantee, check in test.checks()]
            capabilities = await _capabilities(place, site.timing)
        if not any(check.failure for check in checks):
            for size in SIZES:
                for at_once in CONCURRENCIES:
                    throughputs += await test.measure(size, at_once, seconds)
            checks.append(Check(CONCURRENT_CALLS, ""))
    except errors.BackendError as error:
        checks.append(Check(CONCURRENT_CALLS, f"{type(error).__name__}: {error}"))
    finally:
        not_deleted = await test.delete_values()
    checks += [Check(NOTHING_LEFT, not_deleted)] if len(checks) > 1 else []
    return BackendCheckResult(place.name, tuple(checks), tuple(throughputs), tuple(capabilities.items()))


async def _check_own_marker(backend: Backend, number: int, site: Site) -> str:
    try:
        await check_marker(backend, number, site.store)
    except Misconfigured as error:
        return str(error)
    return ""


async def _capabilities(place: BackendPlace, timing: Timing) -> dict[str, str]:
    """Return what the driver of a bucket finds out about the server; nothing for a folder."""
    if place.s3 is None:
        return {}
    try:
        driver = await open_s3(place, place.s3, make=False, timing=timing)
    except errors.BackendError as error:
        return {"what it can do": f"not known: {error}"}
    try:
        return await driver.capabilities()
    except errors.BackendError as error:
        return {"what it can do": f"not known: {error}"}
    finally:
        await driver.close()


async def _failure_of(check: Callable[[], Awaitable[str]]) -> str:
    """Return the failure that *check* reports or raises; empty if the check succeeds."""
    try:
        return await check()
    except errors.BackendError as error:
        return f"{type(error).__name__}: {error}"


class _BackendTest:
    """Stores test values on a backend, checks its answers, and deletes the values."""

    def __init__(self, backend: Backend, session: int, timing: Timing) -> None:
        self._backend = backend
        self._list_seconds = timing.inventory.thousand_keys_seconds * LISTED_MAX / 1_000
        self._session = session
        self._keys: set[str] = set()
        self._value = os.urandom(100_000)

    def checks(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        """Return each guarantee, and the method that checks it. The method returns the failure, or an empty string."""
        return [
            ("a value is stored whole", self._check_whole_values),
            ("a range read returns exactly the requested bytes", self._check_ranges),
            ("a range beyond the end is refused", self._check_range_beyond_end),
            ("storing the same value again succeeds", self._check_repeated_put),
            ("a value with a wrong checksum is refused and not stored", self._check_checksum),
            ("an absent key is not read as an empty value", self._check_absent_key),
            ("the size of a value is known without reading it", self._check_size),
            ("listings are sorted and contain what was stored, by prefix", self._check_listing),
            ("a deleted value is absent, and deleting it again succeeds", self._check_delete),
        ]

    def _new_key(self) -> str:
        key = block_path(new_block_id(self._session))
        self._keys.add(key)
        return key

    async def _put(self, value: bytes) -> str:
        key = self._new_key()
        await self._backend.put(key, [value], crc32c_of([value]))
        return key

    async def _check_whole_values(self) -> str:
        for value in (b"", b"x", self._value):
            if bytes(await self._backend.get(await self._put(value))) != value:
                return f"a value of {len(value)} bytes was read back differently"
        return ""

    async def _check_ranges(self) -> str:
        key = await self._put(self._value)
        for start, length in ((0, 1), (1, 65_536), (99_999, 1), (50_000, 0)):
            if bytes(await self._backend.get(key, start, length)) != self._value[start : start + length]:
                return f"{length} bytes at offset {start} were read back differently"
        return ""

    async def _check_range_beyond_end(self) -> str:
        key = await self._put(b"short")
        try:
            await self._backend.get(key, 3, 10)
        except errors.Corrupted:
            return ""
        return "the read succeeded"

    async def _check_repeated_put(self) -> str:
        key = await self._put(self._value)
        await self._backend.put(key, [self._value], crc32c_of([self._value]))
        return "" if bytes(await self._backend.get(key)) == self._value else "the value has changed"

    async def _check_checksum(self) -> str:
        key = self._new_key()
        try:
            await self._backend.put(key, [self._value], crc32c_of([self._value]) ^ 1)
        except errors.Corrupted:
            return "" if await self._is_absent(key) else "the value was refused, but is stored"
        return "the value was accepted"

    async def _check_absent_key(self) -> str:
        empty = await self._put(b"")
        if not await self._is_absent(self._new_key()):
            return "an absent key was read"
        return "an empty value is reported as absent" if await self._is_absent(empty) else ""

    async def _is_absent(self, key: str) -> bool:
        try:
            await self._backend.get(key)
        except errors.NotFound:
            return True
        return False

    async def _check_size(self) -> str:
        size = (await self._backend.stat(await self._put(self._value))).size
        return "" if size == len(self._value) else f"the backend reports {size} bytes, but stored {len(self._value)}"

    async def _check_listing(self) -> str:
        stored = {await self._put(b"%d" % n) for n in range(5)}
        keys: list[str] = []
        listing = self._backend.list(session_prefix(self._session))
        try:
            async with asyncio.timeout(self._list_seconds), aclosing(listing):  # type: ignore[type-var]
                async for listed in listing:
                    keys.append(listed.key)
                    if len(keys) > LISTED_MAX:
                        return f"more than {LISTED_MAX} keys were listed under a prefix that has a few"
        except TimeoutError:
            return f"a listing of a few keys did not end within {self._list_seconds:g} s; it returned {len(keys)}"
        if keys != sorted(keys):
            return "the keys are not sorted"
        return "" if stored <= set(keys) else f"{len(stored - set(keys))} of {len(stored)} keys were not listed"

    async def _check_delete(self) -> str:
        key = await self._put(self._value)
        await self._backend.delete(key)
        await self._backend.delete(key)
        return "" if await self._is_absent(key) else "the value can still be read"

    # ---- throughput --------------------------------------------------------------------------------------------------

    async def measure(self, size: int, at_once: int, seconds: float) -> list[Throughput]:
        """Measure puts of *size* bytes, then gets of the same values, with *at_once* concurrent calls."""
        value = os.urandom(size)
        crc32c = crc32c_of([value])
        calls_max = min(OBJECTS_MAX, max(at_once, BYTES_MAX // size))
        keys: list[str] = []

        async def put() -> None:
            key = self._new_key()
            await self._backend.put(key, [value], crc32c)
            keys.append(key)

        async def get() -> None:
            await self._backend.get(keys[int(time.perf_counter() * 1e6) % len(keys)])

        throughputs = [
            await _measure("put", size, at_once, seconds, calls_max, put),
            await _measure("get", size, at_once, seconds, calls_max * 8, get),
        ]
        await self.delete_values()
        return throughputs

    async def delete_values(self) -> str:
        """Delete all values that were stored. Returns why some could not be deleted; empty if none is left."""
        keys, self._keys = self._keys, set()
        outcomes = await asyncio.gather(*(self._backend.delete(key) for key in keys), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if not failed:
            return ""
        return f"{len(failed)} of {len(keys)} values stay until the sweeper deletes them: {failed[0]}"


async def _measure(
    verb: str, size: int, at_once: int, seconds: float, calls_max: int, call: Callable[[], Awaitable[None]]
) -> Throughput:
    """Repeat *call* for *seconds*, *calls_max* times at most and at least once, *at_once* calls concurrently."""
    durations: list[float] = []
    began = time.perf_counter()

    async def repeat() -> None:
        while (time.perf_counter() - began < seconds and len(durations) < calls_max) or not durations:
            at = time.perf_counter()
            await call()
            durations.append(time.perf_counter() - at)

    await asyncio.gather(*(repeat() for _ in range(at_once)))
    elapsed = time.perf_counter() - began
    durations.sort()
    rate = len(durations) / elapsed
    return Throughput(verb, size, at_once, rate, rate * size, durations[len(durations) // 2], durations[-1])
