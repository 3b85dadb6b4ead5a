"""Backends around a backend: limits on concurrency and on time, and metering.

Every method of a wrapper, `get_now` excepted, goes through its `_around`. A wrapper so cannot forward a call by
accident, and a method that is added to `Backend` has to be routed here before any wrapper can be instantiated.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar, cast

from backends import errors
from backends.base import Backend, Buffer, Listed, Marker, Stat, size_of

T = TypeVar("T")
Observe = Callable[[str, str, float, int], None]
"""Called with the operation, its outcome (`ok`, `miss`, `cancelled`, `bug` or an error's `outcome`), its duration in
seconds, and the number of bytes of values that it moved."""


class Wrapper(Backend):
    """A backend that runs each operation of *inner* through `_around`.

    The methods are plain functions that return the coroutine of `_around`, so that routing costs no frame of its own.
    They read `_inner` only within *call*, so that a subclass may replace it, or raise where it has none yet.
    """

    def __init__(self, inner: Backend) -> None:
        self._inner = inner

    @abstractmethod
    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        """Run *call*, which performs *operation* (the method's name) on the inner backend, and return its result.

        *key* is the operation's key; None where it has none. A listing comes here once for each value: *call* then
        returns the next one, or None at the end. *call* may be called again only where the operation is idempotent.
        """

    @property
    def name(self) -> str:
        return self._inner.name

    def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> Coroutine[Any, Any, None]:
        return self._around("put", key, lambda: self._inner.put(key, value, crc32c))

    def get(self, key: str, start: int = 0, length: int | None = None) -> Coroutine[Any, Any, Buffer]:
        return self._around("get", key, lambda: self._inner.get(key, start, length))

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        """Forward at once: it neither waits nor raises, so there is nothing to limit or to retry."""
        return self._inner.get_now(key, start, length)

    def stat(self, key: str) -> Coroutine[Any, Any, Stat]:
        return self._around("stat", key, lambda: self._inner.stat(key))

    def delete(self, key: str) -> Coroutine[Any, Any, None]:
        return self._around("delete", key, lambda: self._inner.delete(key))

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        values = self._inner.list(prefix, after)
        while (value := await self._around("list", None, lambda: anext(values, None))) is not None:
            yield value

    def marker(self) -> Coroutine[Any, Any, Marker | None]:
        return self._around("marker", None, lambda: self._inner.marker())  # noqa: PLW0108 (read `_inner` within)

    def claim(self, marker: Marker) -> Coroutine[Any, Any, None]:
        return self._around("claim", None, lambda: self._inner.claim(marker))

    def close(self) -> Coroutine[Any, Any, None]:
        return self._around("close", None, lambda: self._inner.close())  # noqa: PLW0108 (read `_inner` within)


class ReadOnlyBackend(Wrapper):
    """Puts, deletes and claims nothing: these raise `ReadOnly`. Everything else is passed on."""

    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        if operation in {"put", "delete", "claim"}:
            raise errors.ReadOnly(f"{operation}: it was opened for reading only", backend=self.name, key=key)
        return await call()


class ConcurrencyLimited(Wrapper):
    """At most *slots* operations run at once; the others wait in the order of their arrival.

    A listing holds a slot only while it fetches a value, not while its reader processes it. `get_now` and `close` take
    no slot.
    """

    def __init__(self, inner: Backend, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"a limit of {slots} slots would let nothing through")
        super().__init__(inner)
        self._slots = asyncio.Semaphore(slots)

    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        async with self._slots:
            return await call()

    async def close(self) -> None:
        await self._inner.close()


class TimeLimited(Wrapper):
    """Each operation, and each step of a listing, has *seconds*; then it raises `Unavailable`.

    An operation that was cut off may still take effect later. `close` has no limit.
    """

    def __init__(self, inner: Backend, seconds: float) -> None:
        if seconds <= 0:
            raise ValueError(f"a time limit of {seconds} seconds would let nothing through")
        super().__init__(inner)
        self._seconds = seconds

    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await call()
        except TimeoutError as error:
            message = f"no answer to {operation} within {self._seconds:g} s"
            raise errors.Unavailable(message, backend=self.name, key=key) from error

    async def close(self) -> None:
        await self._inner.close()


class Metered(Wrapper):
    """Reports each operation to *observe*. A listing counts as one, without the time that its reader took."""

    def __init__(self, inner: Backend, observe: Observe) -> None:
        super().__init__(inner)
        self._observe = observe

    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        with _Observation(self._observe, operation) as observation:
            result = await call()
            if operation == "get":
                observation.moved_bytes = size_of((cast("Buffer", result),))
            return result

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        with _Observation(self._observe, "put") as observation:
            await self._inner.put(key, value, crc32c)
            observation.moved_bytes = size_of(value)

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        # Every small read comes through here, so it does without `_Observation`; drivers never raise here.
        began = time.perf_counter()
        value = self._inner.get_now(key, start, length)
        outcome, moved_bytes = ("miss", 0) if value is None else ("ok", len(value))
        self._observe("get_now", outcome, time.perf_counter() - began, moved_bytes)
        return value

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        values = self._inner.list(prefix, after)
        with _Observation(self._observe, "list") as observation:
            while (value := await anext(values, None)) is not None:
                yielded_at = time.perf_counter()
                try:
                    yield value
                finally:
                    observation.began += time.perf_counter() - yielded_at


class _Observation:
    """Times one operation and reports how it ended. A plain class: a generator-based context manager would cost more
    than a small read."""

    __slots__ = ("_observe", "_operation", "began", "moved_bytes")

    def __init__(self, observe: Observe, operation: str) -> None:
        self._observe, self._operation = observe, operation
        self.moved_bytes = 0
        self.began = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        outcome = "ok" if kind is None or kind is GeneratorExit else _outcome(kind)
        self._observe(self._operation, outcome, time.perf_counter() - self.began, self.moved_bytes)


def _outcome(kind: type[BaseException]) -> str:
    if issubclass(kind, errors.BackendError):
        return kind.outcome
    return "cancelled" if issubclass(kind, asyncio.CancelledError) else "bug"
