"""Asking the copies of a block one after the other, and two at once where the first is slow.

What an answer is worth is for the caller to check. Each outcome is told to the routes, so that the next read knows.
One copy alone is simply awaited.
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

Clock = Callable[[], float]
"""Seconds since whenever; never goes back."""


class SealedRange(NamedTuple):
    """Sealed bytes of a block."""

    block: bytes
    start: int
    length: int
    first: int
    """Which of its extent's frames they begin with."""


class CopyFailure(NamedTuple):
    """A copy that did not answer."""

    copy: Target
    error: backend_errors.BackendError


class HedgedReader:
    """Reads stretches from the first of several copies that answers."""

    def __init__(self, routes: Routes, clock: Clock) -> None:
        self._routes = routes
        self._clock = clock

    async def first(
        self, copies: Sequence[Target], stretch: SealedRange, failures: list[CopyFailure]
    ) -> tuple[Target, Buffer] | None:
        """The copy that answered first, and what; None if none did. *copies*: best first. *failures* gains those that
        did not. No copy is asked twice."""
        if len(copies) > 1:
            return await _HedgedRead(self, self._routes, self._clock, stretch, failures).run(deque(copies))
        for copy in copies:
            try:
                return copy, await self.ask(copy, stretch)
            except backend_errors.BackendError as error:
                failures.append(CopyFailure(copy, error))
        return None

    async def ask(self, copy: Target, stretch: SealedRange) -> Buffer:
        """What *copy* answers. Raises `BackendError`."""
        backend, backend_id = copy
        began = self._clock()
        self._routes.asked(backend_id, began)
        try:
            sealed = await backend.get(block_path(stretch.block), stretch.start, stretch.length)
        except backend_errors.BackendError as error:
            metrics.FAILED.add()
            _log.warning("a copy does not answer: %s", error)
            now = self._clock()
            if isinstance(error, (backend_errors.NotFound, backend_errors.Corrupted)):
                self._works(self._routes.refused(backend_id, now), copy)
            elif self._routes.failed(backend_id, error.word, now):
                _log.warning("backend %r is asked last from now on: %s", backend.name, error)
            raise
        now = self._clock()
        self._works(self._routes.answered(backend_id, len(sealed), now - began, now), copy)
        return sealed

    def outrun(self, copy: Target, stretch: SealedRange, seconds: float) -> None:
        """Another copy answered before this one did, which had been waited for long enough."""
        _log.warning(
            "backend %r is slow: no answer within %.3g s (block %s)", copy.backend.name, seconds, stretch.block.hex()
        )
        if self._routes.outrun(copy.id, seconds, self._clock()):
            _log.warning("backend %r is asked last from now on: it is slow", copy.backend.name)

    def _works(self, again: bool, copy: Target) -> None:
        if again:
            _log.warning("backend %r works again", copy.backend.name)


_Outcome = Buffer | backend_errors.BackendError


class _HedgedRead:
    """One stretch asked of several copies."""

    def __init__(
        self, asking: HedgedReader, routes: Routes, clock: Clock, stretch: SealedRange, failures: list[CopyFailure]
    ) -> None:
        self._asking = asking
        self._routes = routes
        self._clock = clock
        self._stretch = stretch
        self._failures = failures
        self._running: dict[asyncio.Task[_Outcome], tuple[Target, float]] = {}  # since when
        self._news: asyncio.Future[bool] | None = None  # somebody is done; True: somebody is slow

    async def run(self, left: deque[Target]) -> tuple[Target, Buffer] | None:
        self._routes.begun()
        try:
            while self._running or left:
                if not self._running:
                    self._start(left.popleft())
                under_way = len(self._running)
                slow = await self._wait(left)
                found = self._best()
                if found is not None:
                    return found
                if left and (len(self._running) < under_way or (slow and self._may_hedge())):
                    self._start(left.popleft())
            return None
        finally:
            for task in self._running:
                task.cancel()

    def _start(self, copy: Target) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(copy))
        self._running[task] = (copy, self._clock())

    async def _ask(self, copy: Target) -> _Outcome:
        try:
            return await self._asking.ask(copy, self._stretch)
        except backend_errors.BackendError as error:
            return error
        finally:
            self._wake(False)

    async def _wait(self, left: deque[Target]) -> bool:
        """Until somebody is done, or, where there is somebody left to ask, who was asked last is slow: then True."""
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        timer = None
        if left:
            patience_s = self._routes.patience_s(self._last().id, left[0].id, self._stretch.length)
            timer = loop.call_later(patience_s, self._wake, True)
        try:
            return await self._news
        finally:
            if timer is not None:
                timer.cancel()

    def _wake(self, slow: bool) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(slow)

    def _last(self) -> Target:
        """Who was asked last: nobody else is asked before that one is slow too."""
        return next(reversed(self._running.values()))[0]

    def _may_hedge(self) -> bool:
        if not self._routes.may_hedge(self._last().id, self._clock()):
            return False
        metrics.HEDGED.add(1, metrics.ASKED)
        return True

    def _best(self) -> tuple[Target, Buffer] | None:
        """An answer among those who are done; who was asked earlier and did not get so far was outrun."""
        earlier: list[tuple[Target, float]] = []
        for task, (copy, since) in list(self._running.items()):
            if not task.done():
                earlier.append((copy, since))
                continue
            del self._running[task]
            outcome = task.result()
            if not isinstance(outcome, backend_errors.BackendError):
                self._outran(earlier)
                return copy, outcome
            self._failures.append(CopyFailure(copy, outcome))
        return None

    def _outran(self, earlier: list[tuple[Target, float]]) -> None:
        if earlier:
            metrics.HEDGED.add(1, metrics.WON)
        for copy, since in earlier:
            self._asking.outrun(copy, self._stretch, self._clock() - since)
