"""Close connections within a bounded time: the write buffer is sent as long as the client receives some of it.

A closed transport flushes its write buffer for as long as that takes. A TLS transport also waits for the client's
close_notify, which an idle client does not send. This module bounds both.
"""

from __future__ import annotations

import asyncio
import struct
import termios
from fcntl import ioctl


class GracefulClose:
    """Closes *transport*, and aborts it in two cases: the client has received nothing at all for *idle_seconds* (or
    *close_seconds*, if that is longer), or a TLS client has received everything and sends no close_notify within
    *close_seconds*. The transport is checked every *close_seconds*."""

    __slots__ = ("_checks_left", "_checks_most", "_close_seconds", "_timer", "_transport", "_unsent_before")

    def __init__(self, transport: asyncio.Transport, idle_seconds: float, close_seconds: float) -> None:
        self._transport = transport
        self._close_seconds = close_seconds
        self._checks_most = self._checks_left = max(1, round(idle_seconds / close_seconds))
        if not transport.is_closing():
            transport.close()
        self._unsent_before = self._unsent()
        self._wait()

    def _unsent(self) -> int:
        """Return a lower bound of the bytes that the client's host has not acknowledged. Bytes between TLS and the
        socket are not counted, but there are none while the kernel's buffer is empty."""
        return self._transport.get_write_buffer_size() + _kernel_unsent(self._transport)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._close_seconds, self._check)

    def _check(self) -> None:
        unsent = self._unsent()
        self._checks_left = self._checks_most if unsent != self._unsent_before else self._checks_left - 1
        self._unsent_before = unsent
        if unsent and self._checks_left:
            self._wait()
        else:
            self._transport.abort()

    def cancel(self) -> None:
        """Stop checking, since the connection is closed."""
        self._timer.cancel()


def _kernel_unsent(transport: asyncio.Transport) -> int:
    """Return how many bytes the kernel holds that the peer has not acknowledged (tcp(7), SIOCOUTQ)."""
    sock = transport.get_extra_info("socket")
    try:
        (queued,) = struct.unpack("i", ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))
    except (OSError, AttributeError, ValueError):
        return 0  # the socket is closed
    return int(queued)
