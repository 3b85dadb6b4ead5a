"""Backends around a backend: a limit of calls at once, a deadline, and metering. Each overrides every method."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from backends import errors
from backends.base import Backend, Buffer, Listed, Marker, Stat, size_of

Observe = Callable[[str, str, float, int], None]
"""Called with the verb, the outcome (`ok`, `miss`, `cancelled`, `bug` or an error's word), seconds, and bytes moved."""


class ConcurrencyLimited(Backend):
    """At most *slots* calls at once; the others wait in order. `get_now` does not wait, so it takes no slot, and a
    listing holds one only while it fetches, not while its reader thinks."""

    def __init__(self, inner: Backend, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"a limit of {slots} slots would let nothing through")
        self._inner = inner
        self._slots = asyncio.Semaphore(slots)

    @property
    def name(self) -> str:
        return self._inner.name

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        async with self._slots:
            await self._inner.put(key, value, crc32c)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        async with self._slots:
            return await self._inner.get(key, start, length)

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        return self._inner.get_now(key, start, length)

    async def stat(self, key: str) -> Stat:
        async with self._slots:
            return await self._inner.stat(key)

    async def delete(self, key: str) -> None:
        async with self._slots:
            await self._inner.delete(key)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        lines = self._inner.list(prefix, after)
        while True:
            async with self._slots:
                line = await anext(lines, None)
            if line is None:
                return
            yield line

    async def marker(self) -> Marker | None:
        async with self._slots:
            return await self._inner.marker()

    async def claim(self, marker: Marker) -> None:
        async with self._slots:
            await self._inner.claim(marker)

    async def close(self) -> None:
        await self._inner.close()


class TimeLimited(Backend):
    """Each call, and each step of a listing, has *seconds*; then it raises `Unavailable`. What was cut off may still
    take effect later. Closing takes as long as it takes."""

    def __init__(self, inner: Backend, seconds: float) -> None:
        if seconds <= 0:
            raise ValueError(f"a deadline of {seconds} seconds would let nothing through")
        self._inner = inner
        self._seconds = seconds

    @property
    def name(self) -> str:
        return self._inner.name

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        with self._told("put", key):
            async with asyncio.timeout(self._seconds):
                await self._inner.put(key, value, crc32c)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        with self._told("get", key):
            async with asyncio.timeout(self._seconds):
                return await self._inner.get(key, start, length)

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        return self._inner.get_now(key, start, length)

    async def stat(self, key: str) -> Stat:
        with self._told("stat", key):
            async with asyncio.timeout(self._seconds):
                return await self._inner.stat(key)

    async def delete(self, key: str) -> None:
        with self._told("delete", key):
            async with asyncio.timeout(self._seconds):
                await self._inner.delete(key)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        lines = self._inner.list(prefix, after)
        while True:
            with self._told("list", None):
                async with asyncio.timeout(self._seconds):
                    line = await anext(lines, None)
            if line is None:
                return
            yield line

    async def marker(self) -> Marker | None:
        with self._told("marker", None):
            async with asyncio.timeout(self._seconds):
                return await self._inner.marker()

    async def claim(self, marker: Marker) -> None:
        with self._told("claim", None):
            async with asyncio.timeout(self._seconds):
                await self._inner.claim(marker)

    async def close(self) -> None:
        await self._inner.close()

    @contextmanager
    def _told(self, verb: str, key: str | None) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            message = f"no answer to {verb} within {self._seconds:g} s"
            raise errors.Unavailable(message, backend=self.name, key=key) from error


class Metered(Backend):
    """Tells *observe* of each call: what, how it ended, how long it took, how many bytes of values it moved.

    A listing counts as one call, and the time its reader took is not counted.
    """

    def __init__(self, inner: Backend, observe: Observe) -> None:
        self._inner = inner
        self._observe = observe

    @property
    def name(self) -> str:
        return self._inner.name

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        with self._timed("put") as call:
            await self._inner.put(key, value, crc32c)
            call.moved = size_of(value)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        with self._timed("get") as call:
            value = await self._inner.get(key, start, length)
            call.moved = size_of((value,))
            return value

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        # Written out, because it stands in the way of every small read; a driver never raises here.
        began = time.perf_counter()
        value = self._inner.get_now(key, start, length)
        outcome, moved = ("miss", 0) if value is None else ("ok", len(value))
        self._observe("get_now", outcome, time.perf_counter() - began, moved)
        return value

    async def stat(self, key: str) -> Stat:
        with self._timed("stat"):
            return await self._inner.stat(key)

    async def delete(self, key: str) -> None:
        with self._timed("delete"):
            await self._inner.delete(key)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        lines = self._inner.list(prefix, after)
        with self._timed("list") as call:
            while True:
                line = await anext(lines, None)
                if line is None:
                    return
                before = time.perf_counter()
                try:
                    yield line
                finally:
                    call.began += time.perf_counter() - before

    async def marker(self) -> Marker | None:
        with self._timed("marker"):
            return await self._inner.marker()

    async def claim(self, marker: Marker) -> None:
        with self._timed("claim"):
            await self._inner.claim(marker)

    async def close(self) -> None:
        with self._timed("close"):
            await self._inner.close()

    def _timed(self, verb: str) -> _Call:
        return _Call(self._observe, verb)


class _Call:
    """One call under observation. A plain class, since a generator would cost the hot path more than the read."""

    __slots__ = ("_observe", "_verb", "began", "moved", "outcome")

    def __init__(self, observe: Observe, verb: str) -> None:
        self._observe, self._verb = observe, verb
        self.moved, self.outcome = 0, "ok"
        self.began = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and kind is not GeneratorExit:
            self.outcome = _outcome(kind)
        self._observe(self._verb, self.outcome, time.perf_counter() - self.began, self.moved)


def _outcome(kind: type[BaseException]) -> str:
    if issubclass(kind, errors.BackendError):
        return kind.word
    return "cancelled" if issubclass(kind, asyncio.CancelledError) else "bug"
