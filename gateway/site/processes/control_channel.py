"""The line between the supervisor and one of its processes: a socket pair, a line of JSON a message.

The process tells that it is ready, what it counted (each second, which also says that its loop turns), what it found
when it was asked, and why it failed. The supervisor asks it to stop, to probe, or to read files again. When the
supervisor is gone, however it died, the line ends, and the process stops by itself.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

MESSAGE_BYTES_MAX = 8 << 20
CONTROL_FD = "ENTREPOT_CONTROL_FD"

Message = dict[str, Any]


class Line:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Line:
        """Take *end* of a pair over."""
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end, limit=MESSAGE_BYTES_MAX))

    def tell(self, message: Message) -> None:
        """Send it, without waiting; dropped when the other end is gone or takes nothing any more."""
        transport = self._writer.transport
        if not transport.is_closing() and transport.get_write_buffer_size() < MESSAGE_BYTES_MAX:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def messages(self) -> AsyncIterator[Message]:
        """What the other end tells, until it is gone."""
        try:
            while line := await self._reader.readline():
                yield json.loads(line)
        except (ConnectionError, ValueError):
            return

    async def flush(self) -> None:
        """Wait until what was told is out, or nobody is there to take it."""
        try:
            await self._writer.drain()
        except ConnectionError:
            return

    def close(self) -> None:
        self._writer.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends; the second is for the process, which inherits it."""
    return socket.socketpair()
