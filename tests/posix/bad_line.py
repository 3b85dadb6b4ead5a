"""A faulty proxy between a client and a gateway: it drops or truncates responses, or sends its own."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class BadLine:
    """Listens on `url` and forwards to *target*. It spoils the next `times` requests that contain `marker`."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.marker = b""
        """Only requests that contain these bytes are spoiled."""
        self.times = 0
        self.after_bytes = 0
        """The bytes of the response that are forwarded before the connection is closed."""
        self.says = b""
        """A response that is sent instead of forwarding the request; empty: forward it."""
        self.suffered = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def suffer(self, marker: bytes, times: int = 1, after_bytes: int = 0, says: bytes = b"") -> None:
        """Spoil the next *times* requests that contain *marker*."""
        self.marker, self.times, self.after_bytes, self.says, self.suffered = marker, times, after_bytes, says, 0

    def close(self) -> None:
        self._listening.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        far = socket.create_connection(self._target)
        cut = threading.Event()
        threading.Thread(target=self._back, args=(far, near, cut), daemon=True).start()
        with suppress(OSError):
            while data := near.recv(1 << 16):
                if self.times and self.marker in data:
                    self.times -= 1
                    self.suffered += 1
                    if self.says:
                        near.sendall(self.says)
                        break
                    cut.set()
                far.sendall(data)
        _end(near, far)

    def _back(self, far: socket.socket, near: socket.socket, cut: threading.Event) -> None:
        passed = 0
        with suppress(OSError):
            while data := far.recv(1 << 16):
                if cut.is_set():
                    data = data[: max(0, self.after_bytes - passed)]
                    if not data:
                        break
                passed += len(data)
                near.sendall(data)
        _end(near, far)


def _end(*ends: socket.socket) -> None:
    for each in ends:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
