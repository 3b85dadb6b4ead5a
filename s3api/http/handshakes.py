"""A listening TLS socket: connections count from when they are accepted, handshakes are bounded and have a deadline.

asyncio's own TLS server reports a connection only when its handshake is done. This module accepts connections itself.
A connection passes these states:

    accepted     counted in `Admission.crowd`, or closed at once
    handshaking  a task of its own awaits the loop's handshake; the connection also counts in `Admission.handshakes`
    connected    `Connection.connection_made` has replaced the handshake in the crowd, and the task ends

A handshake that does not end within `handshake_seconds` is cut off. While `HANDSHAKES_MOST` are under way, a new one
replaces the oldest handshake of the address that has the most.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from socket import socket
from typing import TYPE_CHECKING

from gateway.timing.durations import ConnectionsTiming
from s3api.http.admission import Admission, address_group

if TYPE_CHECKING:
    from s3api.http.connection import Connection

HANDSHAKES_MOST = 1_000
"""How many handshakes may be under way at once in one worker. Each takes about 60 KiB."""
ACCEPTED_MOST = 64
"""How many connections are accepted in one turn of the event loop."""

log = logging.getLogger("entrepot.s3.connections")

TlsContextFactory = Callable[[], ssl.SSLContext]
"""Answers the TLS context for a new connection: another one after the certificate was replaced."""


class TlsListener:
    """Accepts connections on *sock* until the listener is closed. *connect* makes the protocol of a connection; its
    argument is the handshake that was counted for that connection so far."""

    def __init__(
        self,
        sock: socket,
        context: TlsContextFactory,
        admission: Callable[[], Admission],
        connect: Callable[[Handshake], Connection],
        timing: ConnectionsTiming,
    ) -> None:
        self.context = context
        self.admission = admission
        self.connect = connect
        self.timing = timing
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._under_way: set[Handshake] = set()
        self._waiting: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._waiting = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MOST):
            try:
                accepted, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be accepted for a while: %s", error)
                self._loop.remove_reader(self._sock)
                self._waiting = self._loop.call_later(self.timing.accept_again_seconds, self._listen)
                return
            handshake = Handshake(self, accepted, address_group(peer))
            if handshake.start():
                self._under_way.add(handshake)

    def forget(self, handshake: Handshake) -> None:
        """Forget *handshake*, which is done or was given up."""
        self._under_way.discard(handshake)

    def close(self) -> None:
        """Accept no more, and cut the handshakes that are under way."""
        if self._waiting is not None:
            self._waiting.cancel()
        elif self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
        self._sock.close()
        for each in list(self._under_way):
            each.evict()


class Handshake:
    """One connection, from when it is accepted to when its handshake is done."""

    idle = True

    def __init__(self, owner: TlsListener, sock: socket, address: str) -> None:
        self.address = address
        self._owner = owner
        self._admission = owner.admission()
        self._sock = sock
        self._task: asyncio.Task[None] | None = None
        self._transport_owns_socket = False
        """Whether a transport owns the socket already, and will close it."""

    def start(self) -> bool:
        """Start the handshake if there is room for it; otherwise close the connection. Answers whether it started."""
        if not (self._admission.crowd.admit(self) and self._admission.handshakes.admit(self)):
            self._release()
            self._sock.close()
            return False
        self._sock.setblocking(False)
        self._task = asyncio.get_running_loop().create_task(self._run())
        return True

    def evict(self) -> None:
        """Cut the handshake off."""
        self._release()
        if self._task is not None:
            self._task.cancel()
        if not self._transport_owns_socket:
            self._sock.close()

    def connected(self, connection: Connection) -> bool:
        """The handshake is done: count *connection* in its place. Answers whether the handshake was still counted."""
        still = self._admission.crowd.replace(self, connection)
        self._release()
        return still

    def _release(self) -> None:
        self._owner.forget(self)
        self._admission.handshakes.remove(self)
        self._admission.crowd.remove(self)

    async def _run(self) -> None:
        self._transport_owns_socket = True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._owner.connect(self), self._sock, ssl=self._owner.context(),
                ssl_handshake_timeout=self._owner.timing.handshake_seconds,
                ssl_shutdown_timeout=self._owner.timing.tls_close_seconds,  # `closing` has a better limit
            )  # fmt: skip
        except OSError as error:  # the client left, was silent, or has no TLS version in common
            log.debug("no TLS with %s: %s", self.address, error)
        except Exception:
            log.exception("a TLS handshake failed")
        finally:
            self._release()
