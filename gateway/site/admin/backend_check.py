"""Trying a backend: every promise of the contract that is relied on, and how fast it is at which concurrency.

All of it under keys of this session, as blocks have: killed in between, what is left goes with whatever else the
session leaves unnamed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from backends import errors
from backends.base import Backend, crc32c_of
from gateway.blocks.types import block_path, session_prefix
from gateway.crypto.sealing import new_block_id
from gateway.errors import InvalidArgument, Misconfigured
from gateway.site.storage.backend_factory import open_s3
from gateway.site.storage.marker_guard import check_marker
from gateway.timing import Timing

if TYPE_CHECKING:
    from gateway.site.site import Site

OURS = "it answers, and bears this site's marker"
BUSY = "it keeps all of that while many ask at once"
TIDY = "nothing of the trial is left there"
CONCURRENCIES = (1, 4, 16)
SIZES = (4 << 10, 8 << 20)
LISTED_MAX = 1_000
"""Keys that are taken of a listing which should have a few."""
OBJECTS_MAX = 256
"""Of one measurement; large ones are fewer."""
BYTES_MAX = 256 << 20


class PromiseCheck(NamedTuple):
    what: str
    broken: str
    """How it was not kept; empty where it was."""


class Throughput(NamedTuple):
    verb: str
    size: int
    """Bytes of a value."""
    at_once: int
    per_second: float
    bytes_per_second: float
    median_seconds: float
    worst_seconds: float


class BackendCheckResult(NamedTuple):
    backend: str
    promises: tuple[PromiseCheck, ...]
    throughputs: tuple[Throughput, ...]
    capabilities: tuple[tuple[str, str], ...] = ()
    """What such places differ in, and how it is here; none of it is relied on."""

    @property
    def kept(self) -> bool:
        return not any(promise.broken for promise in self.promises)


async def check_backend(site: Site, name: str, seconds: float) -> BackendCheckResult:
    """Try it; each measurement takes about so long. Raises `InvalidArgument` for one that is not in the config."""
    backend = next((each for each in site.storage.backends.values() if each.name == name), None)
    if backend is None:
        raise InvalidArgument(f"the config names no backend {name!r}")
    number = next(each for each, other in site.storage.backends.items() if other is backend)
    trial = _BackendTest(backend, site.journal.session, site.timing)
    promises = [PromiseCheck(OURS, await _failure_of(lambda: _has_own_marker(backend, number, site)))]
    throughputs: list[Throughput] = []
    capabilities: dict[str, str] = {}
    try:
        if not promises[0].broken:  # nothing is put on a place that is not ours, or cannot be reached
            promises += [PromiseCheck(what, await _failure_of(check)) for what, check in trial.checks()]
            capabilities = await _capabilities(site, name)
        if not any(promise.broken for promise in promises):
            for size in SIZES:
                for at_once in CONCURRENCIES:
                    throughputs += await trial.measure(size, at_once, seconds)
            promises.append(PromiseCheck(BUSY, ""))
    except errors.BackendError as error:
        promises.append(PromiseCheck(BUSY, f"{type(error).__name__}: {error}"))
    finally:
        left = await trial.tidy()
    promises += [PromiseCheck(TIDY, left)] if len(promises) > 1 else []
    return BackendCheckResult(name, tuple(promises), tuple(throughputs), tuple(capabilities.items()))


async def _has_own_marker(backend: Backend, number: int, site: Site) -> str:
    try:
        await check_marker(backend, number, site.store)
    except Misconfigured as error:
        return str(error)
    return ""


async def _capabilities(site: Site, name: str) -> dict[str, str]:
    """Asked of the driver itself."""
    place = site.storage.topology.backends[name]
    if place.s3 is None:
        return {}
    try:
        driver = await open_s3(place, place.s3, make=False, timing=site.timing)
    except errors.BackendError as error:
        return {"what it can do": f"could not be found out: {error}"}
    try:
        return await driver.capabilities()
    except errors.BackendError as error:
        return {"what it can do": f"could not be found out: {error}"}
    finally:
        await driver.close()


async def _failure_of(check: Callable[[], Awaitable[str]]) -> str:
    try:
        return await check()
    except errors.BackendError as error:
        return f"{type(error).__name__}: {error}"


class _BackendTest:
    def __init__(self, backend: Backend, session: int, timing: Timing) -> None:
        self._backend = backend
        self._list_seconds = timing.inventory.thousand_keys_seconds * LISTED_MAX / 1_000
        self._session = session
        self._keys: set[str] = set()
        self._value = os.urandom(100_000)

    def checks(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        """What is promised, and what sees whether it holds."""
        return [
            ("what was put is there, whole", self._whole),
            ("a range is exactly what was asked for", self._ranges),
            ("a range behind the end is refused", self._behind_the_end),
            ("the same value again is fine", self._again),
            ("a value that is not its checksum's is refused, and leaves nothing", self._checksum),
            ("an absent key is told from an empty value", self._absent),
            ("its size is known without reading it", self._size),
            ("listings are in order, by prefix, and show what was put", self._listed),
            ("what was deleted is gone, and deleting it twice is fine", self._deleted),
        ]

    def _key(self) -> str:
        key = block_path(new_block_id(self._session))
        self._keys.add(key)
        return key

    async def _put(self, value: bytes) -> str:
        key = self._key()
        await self._backend.put(key, [value], crc32c_of([value]))
        return key

    async def _whole(self) -> str:
        for value in (b"", b"x", self._value):
            if bytes(await self._backend.get(await self._put(value))) != value:
                return f"{len(value)} bytes came back as others"
        return ""

    async def _ranges(self) -> str:
        key = await self._put(self._value)
        for start, length in ((0, 1), (1, 65_536), (99_999, 1), (50_000, 0)):
            if bytes(await self._backend.get(key, start, length)) != self._value[start : start + length]:
                return f"{length} bytes from {start} on were others"
        return ""

    async def _behind_the_end(self) -> str:
        key = await self._put(b"short")
        try:
            await self._backend.get(key, 3, 10)
        except errors.Corrupted:
            return ""
        return "it was answered"

    async def _again(self) -> str:
        key = await self._put(self._value)
        await self._backend.put(key, [self._value], crc32c_of([self._value]))
        return "" if bytes(await self._backend.get(key)) == self._value else "it is another one now"

    async def _checksum(self) -> str:
        key = self._key()
        try:
            await self._backend.put(key, [self._value], crc32c_of([self._value]) ^ 1)
        except errors.Corrupted:
            return "" if await self._is_absent(key) else "it was refused, and is there"
        return "it was taken"

    async def _absent(self) -> str:
        empty = await self._put(b"")
        return "it was answered" if not await self._is_absent(self._key()) or await self._is_absent(empty) else ""

    async def _is_absent(self, key: str) -> bool:
        try:
            await self._backend.get(key)
        except errors.NotFound:
            return True
        return False

    async def _size(self) -> str:
        size = (await self._backend.stat(await self._put(self._value))).size
        return "" if size == len(self._value) else f"it says {size} bytes of {len(self._value)}"

    async def _listed(self) -> str:
        mine = {await self._put(b"%d" % n) for n in range(5)}
        found: list[str] = []
        lines = self._backend.list(session_prefix(self._session))
        try:
            async with asyncio.timeout(self._list_seconds), aclosing(lines):  # type: ignore[type-var]
                async for listed in lines:
                    found.append(listed.key)
                    if len(found) > LISTED_MAX:
                        return f"more than {LISTED_MAX} keys were listed below a prefix with a few"
        except TimeoutError:
            return f"a listing of a few keys did not end within {self._list_seconds:g} s; it had shown {len(found)}"
        if found != sorted(found):
            return "they are out of order"
        return "" if mine <= set(found) else f"{len(mine - set(found))} of {len(mine)} were not listed"

    async def _deleted(self) -> str:
        key = await self._put(self._value)
        await self._backend.delete(key)
        await self._backend.delete(key)
        return "" if await self._is_absent(key) else "it is still there"

    # ---- speed -------------------------------------------------------------------------------------------------------

    async def measure(self, size: int, at_once: int, seconds: float) -> list[Throughput]:
        """Puts, and gets of what was put."""
        value = os.urandom(size)
        crc32c = crc32c_of([value])
        most = min(OBJECTS_MAX, max(at_once, BYTES_MAX // size))
        keys: list[str] = []

        async def put() -> None:
            key = self._key()
            await self._backend.put(key, [value], crc32c)
            keys.append(key)

        async def get() -> None:
            await self._backend.get(keys[int(time.perf_counter() * 1e6) % len(keys)])

        throughputs = [
            await _timed("put", size, at_once, seconds, most, put),
            await _timed("get", size, at_once, seconds, most * 8, get),
        ]
        await self.tidy()
        return throughputs

    async def tidy(self) -> str:
        """Delete all that was put. Answers what stood in the way."""
        keys, self._keys = self._keys, set()
        outcomes = await asyncio.gather(*(self._backend.delete(key) for key in keys), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        return f"{len(failed)} of {len(keys)} values stay until this session is swept: {failed[0]}" if failed else ""


async def _timed(
    verb: str, size: int, at_once: int, seconds: float, most: int, call: Callable[[], Awaitable[None]]
) -> Throughput:
    took: list[float] = []
    began = time.perf_counter()

    async def go_on() -> None:
        while (time.perf_counter() - began < seconds and len(took) < most) or not took:
            at = time.perf_counter()
            await call()
            took.append(time.perf_counter() - at)

    await asyncio.gather(*(go_on() for _ in range(at_once)))
    elapsed = time.perf_counter() - began
    took.sort()
    rate = len(took) / elapsed
    return Throughput(verb, size, at_once, rate, rate * size, took[len(took) // 2], took[-1])


def plain(found: BackendCheckResult) -> dict[str, Any]:
    """Plain values."""
    return {
        "backend": found.backend,
        "kept": found.kept,
        "promises": [each._asdict() for each in found.promises],
        "traits": dict(found.capabilities),
        "speeds": [each._asdict() for each in found.throughputs],
    }


def spell(found: BackendCheckResult) -> list[str]:
    """For people."""
    lines = [f"{'NOT KEPT' if each.broken else 'kept'}: {each.what}" + (f": {each.broken}" if each.broken else "")
             for each in found.promises]  # fmt: skip
    lines += [f"{what}: {how}" for what, how in found.capabilities]
    if found.throughputs:
        lines.append(
            f"{'':4} {'value':>8} {'at once':>7} {'per second':>10} {'MB/s':>8} {'median ms':>9} {'worst ms':>9}"
        )
    lines += [
        f"{each.verb:4} {each.size:8} {each.at_once:7} {each.per_second:10.0f} {each.bytes_per_second / 1e6:8.1f} "
        f"{each.median_seconds * 1e3:9.2f} {each.worst_seconds * 1e3:9.2f}"
        for each in found.throughputs
    ]
    return lines
