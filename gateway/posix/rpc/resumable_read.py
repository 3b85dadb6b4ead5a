"""Reading content over HTTP: verified frame by frame, resumed after an interruption."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp

from gateway.engine.types import Buffer
from gateway.errors import BadChecksum, Unavailable
from gateway.posix.rpc.framing import read_frame

INTERRUPTIONS_MOST = 5
"""Interruptions in a row, without a complete frame between them."""
INTERRUPTIONS = (aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError, OSError, BadChecksum)


class ResumableRead:
    """An async iterator over the frames of a read. After an interruption it reopens the rest of the content."""

    def __init__(
        self,
        reopen: Callable[[int], Awaitable[aiohttp.ClientResponse]],
        start: int,
        end: int,
        response: aiohttp.ClientResponse,
    ) -> None:
        """*response* brings the bytes from *start* to *end* (exclusive). *reopen* requests them from another offset."""
        self._reopen = reopen
        self._at = start
        self._end = end
        self._response = response
        self._interruptions = 0

    def __aiter__(self) -> ResumableRead:
        return self

    async def __anext__(self) -> Buffer:
        while self._at < self._end:
            try:
                frame = await read_frame(self._response.content, self._end - self._at)
            except INTERRUPTIONS as error:
                self._response.close()
                self._interruptions += 1
                if self._interruptions > INTERRUPTIONS_MOST:
                    raise Unavailable(f"the read was interrupted too often: {type(error).__name__}") from error
                self._response = await self._reopen(self._at)
                continue
            self._at += len(frame)
            self._interruptions = 0
            return frame
        self._response.release()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Release the connection. If content is unread, aiohttp closes it."""
        self._response.release()
