"""The end of a connection: what was written is sent as long as the client takes some of it, then the connection goes.

A transport that is closed flushes what it still has, however long that takes; one with TLS also waits for the client to
say goodbye, which an idle or silent client does not. Both are bounded here.
"""

from __future__ import annotations

import asyncio
import struct
import termios
from fcntl import ioctl


class GracefulClose:
    """Closes *transport*. A client that takes nothing at all for *idle_seconds*, or for *close_seconds* if those are
    more, is cut. So is one with TLS that took everything and sends no close_notify within *close_seconds*."""

    __slots__ = ("_close_seconds", "_left", "_looks_left", "_looks_most", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, idle_seconds: float, close_seconds: float) -> None:
        self._transport = transport
        self._close_seconds = close_seconds
        self._looks_most = self._looks_left = max(1, round(idle_seconds / close_seconds))
        if not transport.is_closing():
            transport.close()
        self._left = self._unsent()
        self._wait()

    def _unsent(self) -> int:
        """Bytes that the client's machine has not taken, at least: those between TLS and the socket are not counted,
        but there are none while the kernel has none."""
        return self._transport.get_write_buffer_size() + _queued(self._transport)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._close_seconds, self._look)

    def _look(self) -> None:
        unsent = self._unsent()
        self._looks_left = self._looks_most if unsent != self._left else self._looks_left - 1
        self._left = unsent
        if unsent and self._looks_left:
            self._wait()
        else:
            self._transport.abort()

    def end(self) -> None:
        """The connection is gone."""
        self._timer.cancel()


def _queued(transport: asyncio.Transport) -> int:
    """Bytes that the kernel holds and the peer has not acknowledged (tcp(7), SIOCOUTQ)."""
    sock = transport.get_extra_info("socket")
    try:
        (queued,) = struct.unpack("i", ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))
    except (OSError, AttributeError, ValueError):
        return 0  # it is gone
    return int(queued)
