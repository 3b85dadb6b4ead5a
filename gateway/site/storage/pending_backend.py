"""A placeholder for a backend that could not be opened. It raises `Unavailable`, and tries again until it succeeds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from backends import errors
from backends.base import Backend, Buffer
from backends.wrappers import Wrapper
from gateway.errors import Misconfigured
from gateway.timing import Timing

T = TypeVar("T")

_log = logging.getLogger(__name__)


class PendingBackend(Wrapper):
    """Raises `Unavailable`, with the reason, until *reopen* succeeds. From then on it passes all calls on to the
    backend that *reopen* returned. For one event loop, on which it runs a task until it is open or closed."""

    def __init__(self, name: str, why: str, reopen: Callable[[], Awaitable[Backend]], timing: Timing) -> None:
        self.why = why
        """Why the last attempt to open it failed; empty once it is open."""
        self.present: Callable[[], None] = lambda: None
        """Called once it is open."""
        self._name = name
        self._reopen = reopen
        self._opened: Backend | None = None
        self._pauses, self._clock = timing.backends.reopen_seconds, timing.clock
        self._trying = asyncio.create_task(self._try_again())

    @property
    def name(self) -> str:
        return self._name

    @property
    def _inner(self) -> Backend:  # type: ignore[override] # a wrapper reads it, and only within the operation
        if self._opened is None:
            raise errors.Unavailable(f"it could not be opened: {self.why}", backend=self._name)
        return self._opened

    async def _around(self, operation: str, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        return await call()  # `_inner` raises until the backend is open

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        return None if self._opened is None else self._opened.get_now(key, start, length)

    async def close(self) -> None:
        self._trying.cancel()
        with suppress(asyncio.CancelledError):
            await self._trying
        if self._opened is not None:
            await self._opened.close()

    async def _try_again(self) -> None:
        tries = 0
        while self._opened is None:
            await self._clock.sleep(self._pauses[min(tries, len(self._pauses) - 1)])
            tries += 1
            try:
                self._opened = await self._reopen()
            except errors.BackendError as error:
                self.why = error.message
            except Misconfigured as error:
                self.why = str(error)
            except Exception as error:  # noqa: BLE001 (tried again, whatever it was)
                _log.exception("opening backend %r failed", self._name)
                self.why = f"{type(error).__name__}: {error}"
        self.why = ""
        _log.warning("backend %r is there again", self._name)
        self.present()
