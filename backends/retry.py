"""A backend around a backend that tries again what may be tried again: only `Unavailable`, only what is safe.

Safe are a put (values are immutable, so the same bytes come to stand under the same key), a get, a stat, a delete, a
marker, and a page of a listing, which goes on behind the last key that was told. A claim whose outcome is not known is
looked at before it is tried again.

Three things keep retries from making a bad hour worse. Pauses grow and are drawn at random from nothing to their
longest (full jitter), so that those who failed together do not come back together. A budget, filled by calls and
emptied by retries, keeps retries to a share of the calls: where everything fails, most calls fail at once. And no
pause begins that would end behind `within_s`, a Retry-After included.

Put `TimeLimited` inside to bound one try, outside to bound them all; and `ConcurrencyLimited` inside, or a call that
pauses keeps its slot from those that would not have to.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from backends import errors
from backends.base import Backend, Buffer, Listed, Marker, Stat, is_claimed
from backends.timing import DEFAULTS, MACHINE, Clock, DriverTiming

T = TypeVar("T")
Told = Callable[[str, errors.Unavailable, float], None]
"""Called before a retry with the verb, what went wrong, and the seconds until then."""

_PAGE = 1_000  # so many lines of a listing count as one call


class RetryBudget:
    """How many retries are allowed: *reserve* at once, and in the long run *share* of a retry for each call."""

    def __init__(self, share: float, reserve: float) -> None:
        if not 0 <= share <= 1 or reserve < 0:
            raise ValueError(f"no budget of retries: a share of {share} with {reserve} in reserve")
        self._share, self._reserve, self._left = share, reserve, float(reserve)

    def earn(self) -> None:
        """A call began."""
        self._left = min(self._reserve, self._left + self._share)

    def spend(self) -> bool:
        """Whether there is a retry left; then it is taken."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Retrying(Backend):
    """*inner*, each call tried up to *tries* times within *within_s* seconds.

    *timing* bounds the pauses, which double; *share* and *reserve* are the `RetryBudget`'s. *told* is called before
    each retry. *draw* answers a random number from 0 to 1.
    """

    def __init__(
        self,
        inner: Backend,
        *,
        tries: int = 5,
        within_s: float = 30.0,
        share: float = 0.2,
        reserve: float = 20,
        told: Told = lambda *_: None,
        timing: DriverTiming = DEFAULTS,
        clock: Clock = MACHINE,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if tries < 1 or within_s < 0:
            raise ValueError(f"no way to retry: {tries} tries within {within_s} s")
        self._inner, self._tries, self._within_s = inner, tries, within_s
        self._first_s, self._longest_s = timing.retry_first_seconds, timing.retry_most_seconds
        self._budget = RetryBudget(share, reserve)
        self._told, self._clock, self._draw = told, clock, draw

    @property
    def name(self) -> str:
        return self._inner.name

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        await self._tried("put", lambda: self._inner.put(key, value, crc32c))

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        return await self._tried("get", lambda: self._inner.get(key, start, length))

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        return self._inner.get_now(key, start, length)

    async def stat(self, key: str) -> Stat:
        return await self._tried("stat", lambda: self._inner.stat(key))

    async def delete(self, key: str) -> None:
        await self._tried("delete", lambda: self._inner.delete(key))

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        attempts = self._begun("list")
        last, lines_told = after, 0
        while True:
            async with aclosing(_as_generator(self._inner.list(prefix, last))) as lines:
                while True:
                    try:
                        line = await anext(lines, None)
                    except errors.Unavailable as error:
                        await attempts.pause(error)
                        break
                    if line is None:
                        return
                    last, lines_told = line.key, lines_told + 1
                    if attempts.failed:  # it gets on, so it has all its tries again
                        attempts = _Attempts(self, "list", self._clock.monotonic())
                    if lines_told % _PAGE == 0:
                        self._budget.earn()
                    yield line

    async def marker(self) -> Marker | None:
        return await self._tried("marker", self._inner.marker)

    async def claim(self, marker: Marker) -> None:
        """A claim whose answer was lost may have succeeded, and may have been overruled since: so look first."""
        attempts = self._begun("claim")
        while True:
            try:
                if attempts.failed and is_claimed(await self._inner.marker(), marker):
                    return
                await self._inner.claim(marker)
            except errors.Unavailable as error:
                await attempts.pause(error)
            else:
                return

    async def close(self) -> None:
        await self._inner.close()

    async def _tried(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        attempts = self._begun(verb)
        while True:
            try:
                return await call()
            except errors.Unavailable as error:
                await attempts.pause(error)

    def _begun(self, verb: str) -> _Attempts:
        self._budget.earn()
        return _Attempts(self, verb, self._clock.monotonic())

    def _pause_s(self, error: errors.Unavailable, failed: int, began: float) -> float | None:
        """How long to wait before the next try; None if there shall be none."""
        if failed >= self._tries:
            return None
        pause = self._draw() * min(self._longest_s, self._first_s * 2.0 ** (failed - 1)) + (error.retry_after_s or 0)
        if self._clock.monotonic() + pause > began + self._within_s or not self._budget.spend():
            return None
        return pause


class _Attempts:
    """One call's tries."""

    __slots__ = ("_began", "_of", "_verb", "failed")

    def __init__(self, of: Retrying, verb: str, began: float) -> None:
        self._of, self._verb, self._began, self.failed = of, verb, began, 0

    async def pause(self, error: errors.Unavailable) -> None:
        """Wait until the next try, or raise *error* where there shall be none."""
        self.failed += 1
        wait_s = self._of._pause_s(error, self.failed, self._began)  # noqa: SLF001 (two halves of one class)
        if wait_s is None:
            if self.failed > 1:
                error.add_note(f"{self._verb} was tried {self.failed} times")
            raise error
        self._of._told(self._verb, error, wait_s)  # noqa: SLF001
        await self._of._clock.sleep(wait_s)  # noqa: SLF001


async def _as_generator(lines: AsyncIterator[Listed]) -> AsyncGenerator[Listed, None]:
    """*lines* as something that `aclosing` closes."""
    async for line in lines:
        yield line
