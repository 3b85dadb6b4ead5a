"""Hedged reads: the copies of a block are tried one after the other, and a second one while the first is slow.

The caller verifies the bytes that come back. Each outcome is passed to `Routes`, which orders later reads, decides how
long a copy may take before the next one is asked, and how many reads may be hedged. A block with a single copy is
simply read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Buffer
from gateway.blocks import metrics
from gateway.blocks.types import Target, block_path
from gateway.placement.routes import Routes

_log = logging.getLogger(__name__)

MonotonicClock = Callable[[], float]
"""Seconds since some fixed moment; never goes back."""


class SealedRange(NamedTuple):
    """A range of the sealed bytes of a block."""

    block: bytes
    start: int
    length: int
    first_frame: int
    """The number, in its extent, of the frame that the range begins with."""


class CopyFailure(NamedTuple):
    """A copy that could not be read."""

    copy: Target
    error: backend_errors.BackendError


class CopyBytes(NamedTuple):
    """What a copy returned. Not verified yet."""

    copy: Target
    sealed: Buffer


class HedgedReader:
    """Reads ranges of blocks from the first of several copies that answers."""

    def __init__(self, routes: Routes, clock: MonotonicClock) -> None:
        self._routes = routes
        self._clock = clock

    async def read(
        self, copies: Sequence[Target], sealed_range: SealedRange, failures: list[CopyFailure]
    ) -> CopyBytes | None:
        """Return the bytes of the copy that answers first; None if all fail. *copies*: the best first.

        Each copy is asked once at most. Those that fail are appended to *failures*."""
        if len(copies) > 1:
            return await _HedgedRead(self, self._routes, self._clock, sealed_range, failures).run(deque(copies))
        for copy in copies:
            try:
                return CopyBytes(copy, await self.read_copy(copy, sealed_range))
            except backend_errors.BackendError as error:
                failures.append(CopyFailure(copy, error))
        return None

    async def read_copy(self, copy: Target, sealed_range: SealedRange) -> Buffer:
        """Read the range from one copy, and record the outcome. Raises `BackendError`."""
        backend, backend_id = copy
        began = self._clock()
        self._routes.record_call(backend_id, began)
        try:
            sealed = await backend.get(block_path(sealed_range.block), sealed_range.start, sealed_range.length)
        except backend_errors.BackendError as error:
            metrics.FAILED.add()
            _log.warning("a copy could not be read: %s", error)
            now = self._clock()
            if isinstance(error, (backend_errors.NotFound, backend_errors.Corrupted)):
                self._log_recovery(self._routes.record_answer_without_copy(backend_id, now), copy)
            elif self._routes.record_failure(backend_id, error.outcome, now):
                _log.warning("backend %r is tried last from now on: %s", backend.name, error)
            raise
        now = self._clock()
        self._log_recovery(self._routes.record_response(backend_id, len(sealed), now - began, now), copy)
        return sealed

    def record_overtaken(self, copy: Target, sealed_range: SealedRange, seconds: float) -> None:
        """Record that *copy* had not answered after *seconds*, when another copy did."""
        _log.warning(
            "backend %r is slow: no answer within %.3g s (block %s)",
            copy.backend.name,
            seconds,
            sealed_range.block.hex(),
        )
        if self._routes.record_overtaken(copy.id, seconds, self._clock()):
            _log.warning("backend %r is tried last from now on: it is slow", copy.backend.name)

    def _log_recovery(self, has_recovered: bool, copy: Target) -> None:
        if has_recovered:
            _log.warning("backend %r works again", copy.backend.name)


_Outcome = Buffer | backend_errors.BackendError


class _Attempt(NamedTuple):
    copy: Target
    began_s: float


class _HedgedRead:
    """One range that is read from several copies.

    `run` starts an attempt and then waits for an event: an attempt has ended, or the latest attempt is slow. After a
    failure it starts an attempt at the next copy. If the latest attempt is slow, it starts another one beside it, as
    far as `Routes` allows. The first attempt that succeeds wins, and the others are cancelled."""

    def __init__(
        self,
        reader: HedgedReader,
        routes: Routes,
        clock: MonotonicClock,
        sealed_range: SealedRange,
        failures: list[CopyFailure],
    ) -> None:
        self._reader = reader
        self._routes = routes
        self._clock = clock
        self._range = sealed_range
        self._failures = failures
        self._running: dict[asyncio.Task[_Outcome], _Attempt] = {}  # the oldest first
        self._event: asyncio.Future[bool] | None = None  # False: an attempt has ended; True: the latest one is slow

    async def run(self, untried: deque[Target]) -> CopyBytes | None:
        """Return the bytes of the copy that answers first; None if all fail."""
        self._routes.record_read()
        try:
            while self._running or untried:
                if not self._running:
                    self._start(untried.popleft())
                running = len(self._running)
                is_slow = await self._wait(untried)
                winner = self._collect()
                if winner is not None:
                    return winner
                if untried and (len(self._running) < running or (is_slow and self._take_hedge())):
                    self._start(untried.popleft())
            return None
        finally:
            for task in self._running:
                task.cancel()

    def _start(self, copy: Target) -> None:
        task = asyncio.get_running_loop().create_task(self._attempt(copy))
        self._running[task] = _Attempt(copy, self._clock())

    async def _attempt(self, copy: Target) -> _Outcome:
        try:
            return await self._reader.read_copy(copy, self._range)
        except backend_errors.BackendError as error:
            return error
        finally:
            self._notify(is_slow=False)

    async def _wait(self, untried: deque[Target]) -> bool:
        """Wait until an attempt ends, or the latest one is slow and a copy is left to try. Returns True if it is
        slow."""
        loop = asyncio.get_running_loop()
        self._event = loop.create_future()
        timer = None
        if untried:
            patience_s = self._routes.hedge_after_s(self._latest().id, untried[0].id, self._range.length)
            timer = loop.call_later(patience_s, self._notify_slow)
        try:
            return await self._event
        finally:
            if timer is not None:
                timer.cancel()

    def _notify_slow(self) -> None:
        self._notify(is_slow=True)

    def _notify(self, *, is_slow: bool) -> None:
        if self._event is not None and not self._event.done():
            self._event.set_result(is_slow)

    def _latest(self) -> Target:
        """Return the copy whose attempt began last. The next copy is tried only after that one fails or is slow."""
        return next(reversed(self._running.values())).copy

    def _take_hedge(self) -> bool:
        if not self._routes.may_hedge(self._latest().id, self._clock()):
            return False
        metrics.HEDGED.add(1, metrics.ASKED)
        return True

    def _collect(self) -> CopyBytes | None:
        """Return the result of an attempt that succeeded, if there is one, and record those that it overtook.

        Attempts that failed are moved to the failures."""
        overtaken: list[_Attempt] = []
        for task, attempt in list(self._running.items()):
            if not task.done():
                overtaken.append(attempt)
                continue
            del self._running[task]
            outcome = task.result()
            if not isinstance(outcome, backend_errors.BackendError):
                self._record_overtaken(overtaken)
                return CopyBytes(attempt.copy, outcome)
            self._failures.append(CopyFailure(attempt.copy, outcome))
        return None

    def _record_overtaken(self, attempts: list[_Attempt]) -> None:
        if attempts:
            metrics.HEDGED.add(1, metrics.WON)
        for copy, began_s in attempts:
            self._reader.record_overtaken(copy, self._range, self._clock() - began_s)
