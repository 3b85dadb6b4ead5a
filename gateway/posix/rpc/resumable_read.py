"""The bytes of a read over HTTP, verified as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp

from gateway.engine.types import Buffer
from gateway.errors import BadChecksum, Unavailable
from gateway.posix.rpc.framing import read_frame

BREAKS_MOST = 5
"""How often a read may break off without a frame more."""
BROKEN = (aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError, OSError, BadChecksum)


class Reading:
    """The bytes of a read, frame by frame, each verified; one that breaks off goes on where it was."""

    def __init__(
        self,
        reopen: Callable[[int], Awaitable[aiohttp.ClientResponse]],
        start: int,
        end: int,
        response: aiohttp.ClientResponse,
    ) -> None:
        """*response* brings the bytes from *start* up to *end*, *reopen* those from another place on."""
        self._reopen = reopen
        self._at = start
        self._end = end
        self._response = response
        self._broken = 0

    def __aiter__(self) -> Reading:
        return self

    async def __anext__(self) -> Buffer:
        while self._at < self._end:
            try:
                frame = await read_frame(self._response.content, self._end - self._at)
            except BROKEN as error:
                self._response.close()
                self._broken += 1
                if self._broken > BREAKS_MOST:
                    raise Unavailable(f"a read breaks off again and again: {type(error).__name__}") from error
                self._response = await self._reopen(self._at)
                continue
            self._at += len(frame)
            self._broken = 0
            return frame
        self._response.release()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Let go of the connection; what was not read to its end is cut."""
        self._response.release()
