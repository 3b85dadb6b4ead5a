"""A listening TLS socket. Connections count once they are accepted; handshakes are limited in number and time.

asyncio's own TLS server reports a connection only when its handshake is done. This module accepts connections itself.
A connection passes these states:

    accepted     counted in `Admission.all_connections`, or closed at once
    handshaking  a task of its own awaits the loop's handshake; the connection also counts in `Admission.handshakes`
    connected    `Connection.connection_made` has replaced the handshake in `all_connections`; the task ends

A handshake that does not end within `handshake_seconds` is cut off. While `HANDSHAKES_MOST` are under way, a new one
replaces the oldest handshake of the address that has the most.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from socket import socket

from gateway.engine.types import ConnectionsTiming
from s3api.http.admission import Admission, CountedConnection, address_group

HANDSHAKES_MOST = 1_000
"""How many handshakes may be in progress at once in one worker. Each takes about 60 KiB."""
ACCEPTED_MOST = 64
"""How many connections are accepted in one turn of the event loop."""

log = logging.getLogger("entrepot.s3.connections")

TlsContextFactory = Callable[[], ssl.SSLContext]
"""Returns the TLS context for a new connection: a different one after the certificate was replaced."""


class TlsListener:
    """Accepts connections on *sock* until the listener is closed. *connect* makes the protocol of a connection; its
    argument is the handshake of that connection, which the connection replaces in the counts."""

    def __init__(
        self,
        sock: socket,
        context: TlsContextFactory,
        admission: Callable[[], Admission],
        connect: Callable[[Handshake], asyncio.Protocol],
        timing: ConnectionsTiming,
    ) -> None:
        self.context = context
        self.admission = admission
        self.connect = connect
        self.timing = timing
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._in_progress: set[Handshake] = set()
        self._retry_timer: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._retry_timer = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MOST):
            try:
                accepted, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept connections for a while: %s", error)
                self._loop.remove_reader(self._sock)
                self._retry_timer = self._loop.call_later(self.timing.accept_again_seconds, self._listen)
                return
            handshake = Handshake(self, accepted, address_group(peer))
            if handshake.start():
                self._in_progress.add(handshake)

    def forget(self, handshake: Handshake) -> None:
        """Remove *handshake*, which has ended."""
        self._in_progress.discard(handshake)

    def close(self) -> None:
        """Stop accepting, and abort the handshakes in progress."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        elif self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
        self._sock.close()
        for each in list(self._in_progress):
            each.evict()


class Handshake:
    """One connection while its TLS handshake is in progress."""

    idle = True

    def __init__(self, owner: TlsListener, sock: socket, address: str) -> None:
        self.address = address
        self._owner = owner
        self._admission = owner.admission()
        self._sock = sock
        self._task: asyncio.Task[None] | None = None
        self._transport_owns_socket = False
        """Whether a transport owns the socket, and closes it."""

    def start(self) -> bool:
        """Start the handshake if the limits allow it; otherwise close the socket. Returns whether it started."""
        if not (self._admission.all_connections.admit(self) and self._admission.handshakes.admit(self)):
            self._release()
            self._sock.close()
            return False
        self._sock.setblocking(False)
        self._task = asyncio.get_running_loop().create_task(self._run())
        return True

    def evict(self) -> None:
        """Abort the handshake, and stop counting it."""
        self._release()
        if self._task is not None:
            self._task.cancel()
        if not self._transport_owns_socket:
            self._sock.close()

    def connected(self, connection: CountedConnection) -> bool:
        """Count *connection* in place of this finished handshake. Returns whether the handshake was still counted."""
        counted = self._admission.all_connections.replace(self, connection)
        self._release()
        return counted

    def _release(self) -> None:
        self._owner.forget(self)
        self._admission.handshakes.remove(self)
        self._admission.all_connections.remove(self)

    async def _run(self) -> None:
        self._transport_owns_socket = True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._owner.connect(self), self._sock, ssl=self._owner.context(),
                ssl_handshake_timeout=self._owner.timing.handshake_seconds,
                ssl_shutdown_timeout=self._owner.timing.tls_close_seconds,  # `closing` sets a stricter limit
            )  # fmt: skip
        except OSError as error:  # the client disconnected, sent nothing in time, or has no TLS version in common
            log.debug("no TLS with %s: %s", self.address, error)
        except Exception:
            log.exception("a TLS handshake failed")
        finally:
            self._release()
