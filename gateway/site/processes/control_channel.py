"""The control channel between the supervisor and one of its processes: a socket pair, and one line of JSON per message.

The process reports that it is ready, its metrics (every second, which also shows that its event loop runs), its answers
to questions, and why it failed. The supervisor tells it to stop or to read files again, and asks questions. When the
supervisor dies, the channel ends, and the process stops by itself.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any

MESSAGE_BYTES_MAX = 8 << 20
CONTROL_FD = "ENTREPOT_CONTROL_FD"

Message = dict[str, Any]


class Question(StrEnum):
    """What the supervisor asks a process. The values are the words in messages."""

    PROBE = "probe"
    """Can a commit and a put be made now? The keeper answers."""
    PREPARE = "prepare"
    """Register and claim the backends that the config in the message adds. The keeper answers."""
    CHECK_OLD_WRITES = "leaving"
    """Does any request of this process still write to the backends in the message?"""
    OPEN_BACKENDS = "stand"
    """Open the backends that the config in the message adds."""
    ADOPT = "adopt"
    """Work under the config in the message from now on."""


class ControlChannel:
    """One end of a control channel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> ControlChannel:
        """Return the channel over *end*, a socket of `pair`."""
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end, limit=MESSAGE_BYTES_MAX))

    def tell(self, message: Message) -> None:
        """Send *message* without waiting. It is dropped if the other end has closed the channel or does not read."""
        transport = self._writer.transport
        if not transport.is_closing() and transport.get_write_buffer_size() < MESSAGE_BYTES_MAX:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def messages(self) -> AsyncIterator[Message]:
        """Yield the messages of the other end until it closes the channel."""
        try:
            while line := await self._reader.readline():
                yield json.loads(line)
        except (ConnectionError, ValueError):
            return

    async def flush(self) -> None:
        """Wait until all messages were sent, or the other end has closed the channel."""
        try:
            await self._writer.drain()
        except ConnectionError:
            return

    def close(self) -> None:
        self._writer.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a channel. The process inherits the second one."""
    return socket.socketpair()
