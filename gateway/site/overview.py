"""The address for those who watch: /metrics, /healthz (alive) and /readyz (able). Plain HTTP, no names, no secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from gateway.config import Address
from gateway.errors import Misconfigured
from gateway.metrics.gathering import CONTENT_TYPE
from gateway.timing import Timing

Found = tuple[bool, dict[str, Any]]


class Overview:
    """The server. It asks for what it tells by the three functions that it is given."""

    def __init__(
        self,
        metrics: Callable[[], bytes],
        health: Callable[[], Found],
        readiness: Callable[[], Awaitable[Found]],
        timing: Timing,
    ) -> None:
        self._timing = timing
        self._metrics = metrics
        self._health = health
        self._readiness = readiness
        self._probing = asyncio.Lock()
        self._last: tuple[float, Found] | None = None
        self._runner: web.ServerRunner | None = None
        self.address = Address("", 0)

    @classmethod
    async def open(
        cls,
        address: Address,
        metrics: Callable[[], bytes],
        health: Callable[[], Found],
        readiness: Callable[[], Awaitable[Found]],
        timing: Timing,
    ) -> Overview:
        """Listen. Raises `Misconfigured` if the address is taken."""
        self = cls(metrics, health, readiness, timing)
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, *address).start()
        except OSError as error:
            await self._runner.cleanup()
            raise Misconfigured(f"cannot listen on {address} for metrics: {error.strerror or error}") from error
        self.address = Address(address.host, self._runner.addresses[0][1])
        return self

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        match request.path:
            case "/metrics":
                return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})
            case "/healthz":
                return _said(self._health())
            case "/readyz":
                return _said(await self._ready())
        return web.Response(status=404, text="here are /metrics, /healthz and /readyz\n")

    async def _ready(self) -> Found:
        async with self._probing:  # many who ask at once cause one probe
            clock, seconds = self._timing.clock, self._timing.probes.readiness_seconds
            if self._last is None or clock.monotonic() - self._last[0] > seconds:
                self._last = (clock.monotonic(), await self._readiness())
            return self._last[1]


def _said(found: Found) -> web.Response:
    well, told = found
    return web.Response(
        status=200 if well else 503,
        text=json.dumps({"ok": well, **told}) + "\n",
        content_type="application/json",
    )
