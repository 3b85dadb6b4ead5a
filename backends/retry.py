"""A wrapper that retries: only `Unavailable`, and only where a repetition is safe.

Repetition is safe for a put (values are immutable, so it stores the same bytes under the same key), a get, a stat, a
delete, a marker, and a page of a listing, which continues after the last key that the reader got. Before a claim is
repeated, the marker is read: the claim whose answer was lost may have succeeded.

Three rules keep retries from making an overload worse:
- Pauses double, and each is drawn at random between zero and its bound (full jitter), so that callers that failed
  together do not return together.
- A budget, filled by calls and emptied by retries, limits retries to a share of the calls: where everything fails,
  most calls fail at once.
- No pause begins that would end later than `within_s` after the call began. A Retry-After counts as part of the pause.

Put a `TimeLimited` inside to bound one try, or outside to bound all tries together. Put a `ConcurrencyLimited` inside:
outside, a call that pauses would keep its slot from the others.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from backends import errors
from backends.base import Backend, Listed, Marker, is_claimed
from backends.timing import DEFAULTS, MACHINE, Clock, DriverTiming
from backends.wrappers import Wrapper

T = TypeVar("T")
OnRetry = Callable[[str, errors.Unavailable, float], None]
"""Called before each retry with the operation, the error, and the seconds until the retry."""

_PAGE = 1_000  # values of a listing that count as one call for the budget


class RetryBudget:
    """How many retries are allowed: *reserve* at once, and in the long run *share* of a retry for each call."""

    def __init__(self, share: float, reserve: float) -> None:
        if not 0 <= share <= 1 or reserve < 0:
            raise ValueError(f"no budget of retries: a share of {share} with {reserve} in reserve")
        self._share, self._reserve, self._left = share, reserve, float(reserve)

    def earn(self) -> None:
        """Count the beginning of a call."""
        self._left = min(self._reserve, self._left + self._share)

    def spend(self) -> bool:
        """Take one retry out of the budget; return False, and take none, where none is left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Retrying(Wrapper):
    """Tries each operation of *inner* up to *tries* times within *within_s* seconds.

    *timing* bounds the pauses, which double. *share* and *reserve* are those of `RetryBudget`. *on_retry* is called
    before each retry. *draw* returns a random number from 0 to 1.
    """

    def __init__(
        self,
        inner: Backend,
        *,
        tries: int = 5,
        within_s: float = 30.0,
        share: float = 0.2,
        reserve: float = 20,
        on_retry: OnRetry = lambda *_: None,
        timing: DriverTiming = DEFAULTS,
        clock: Clock = MACHINE,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if tries < 1 or within_s < 0:
            raise ValueError(f"no way to retry: {tries} tries within {within_s} s")
        super().__init__(inner)
        self._tries, self._within_s = tries, within_s
        self._first_s, self._longest_s = timing.retry_first_seconds, timing.retry_most_seconds
        self._budget = RetryBudget(share, reserve)
        self._on_retry, self._clock, self._draw = on_retry, clock, draw

    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        attempts = self._begin(operation)
        while True:
            try:
                return await call()
            except errors.Unavailable as error:
                await attempts.pause(error)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        """As the contract says. After a failure, list anew from the last key that was yielded."""
        attempts = self._begin("list")
        last, yielded = after, 0
        while True:
            async with aclosing(_as_generator(self._inner.list(prefix, last))) as values:
                while True:
                    try:
                        value = await anext(values, None)
                    except errors.Unavailable as error:
                        await attempts.pause(error)
                        break
                    if value is None:
                        return
                    last, yielded = value.key, yielded + 1
                    if attempts.failed:  # the listing advanced, so it has all its tries again
                        attempts = _Attempts(self, "list", self._clock.monotonic())
                    if yielded % _PAGE == 0:
                        self._budget.earn()
                    yield value

    async def claim(self, marker: Marker) -> None:
        """As the contract says. A claim whose answer was lost may have succeeded, and another claim may have replaced
        it since: so a retry reads the marker first."""
        attempts = self._begin("claim")
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

    def _begin(self, operation: str) -> _Attempts:
        self._budget.earn()
        return _Attempts(self, operation, self._clock.monotonic())

    def _pause_s(self, error: errors.Unavailable, failed: int, began: float) -> float | None:
        """Return the seconds until the next try of a call that *failed* so many times; None if it is not retried."""
        if failed >= self._tries:
            return None
        pause = self._draw() * min(self._longest_s, self._first_s * 2.0 ** (failed - 1)) + (error.retry_after_s or 0)
        if self._clock.monotonic() + pause > began + self._within_s or not self._budget.spend():
            return None
        return pause


class _Attempts:
    """The tries of one call."""

    __slots__ = ("_began", "_operation", "_retrying", "failed")

    def __init__(self, retrying: Retrying, operation: str, began: float) -> None:
        self._retrying, self._operation, self._began, self.failed = retrying, operation, began, 0

    async def pause(self, error: errors.Unavailable) -> None:
        """Wait until the next try; raise *error* where there is none."""
        self.failed += 1
        wait_s = self._retrying._pause_s(error, self.failed, self._began)  # noqa: SLF001 (two halves of one class)
        if wait_s is None:
            if self.failed > 1:
                error.add_note(f"{self._operation} was tried {self.failed} times")
            raise error
        self._retrying._on_retry(self._operation, error, wait_s)  # noqa: SLF001
        await self._retrying._clock.sleep(wait_s)  # noqa: SLF001


async def _as_generator(values: AsyncIterator[Listed]) -> AsyncGenerator[Listed, None]:
    """Turn *values* into a generator, which `aclosing` can close."""
    async for value in values:
        yield value
