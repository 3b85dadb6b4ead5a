"""Memory is bounded by the configuration, never by what clients send or take."""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.identity.signing import presign
from tests.endpoint import EXECUTED, Endpoint, started

MIB = 1 << 20
OBJECT = 256 * MIB
CLIENTS = 64
SECONDS = 8
WORKER_MIB_MAX = 300


def _signed(endpoint: Endpoint, method: str, path: str) -> str:
    return presign(
        method, host=urlsplit(endpoint.url).netloc, path=path, access_key=endpoint.access_key,
        secret_key=endpoint.secret_key, region=endpoint.region, now=datetime.now(UTC), expires=3600,
    )  # fmt: skip


def _connect(endpoint: Endpoint) -> socket.socket:
    where = urlsplit(endpoint.url)
    return socket.create_connection((where.hostname, where.port), timeout=60)


def _head(endpoint: Endpoint, method: str, path: str, length: int = 0) -> bytes:
    host = urlsplit(endpoint.url).netloc
    return (
        f"{method} {_signed(endpoint, method, path)} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def _send_object(endpoint: Endpoint, path: str, piece: bytes, stop: threading.Event, total: list[int]) -> bool:
    """PUT a large object; False if it was broken off because the time was over."""
    with _connect(endpoint) as connection:
        connection.sendall(_head(endpoint, "PUT", path, OBJECT))
        for _ in range(OBJECT // len(piece)):
            if stop.is_set():
                return False
            connection.sendall(piece)
            total[0] += len(piece)
        return connection.recv(100).startswith(b"HTTP/1.1 200")


def _take_object(endpoint: Endpoint, path: str, stop: threading.Event, total: list[int]) -> None:
    into = bytearray(MIB)
    with _connect(endpoint) as connection:
        connection.sendall(_head(endpoint, "GET", path))
        left = OBJECT
        while left > 0 and not stop.is_set():
            got = connection.recv_into(into)
            if not got:
                return
            left -= got
            total[0] += got


def _workers(supervisor: int) -> list[int]:
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [int(each) for each in children if b"gateway.cli.worker" in Path(f"/proc/{each}/cmdline").read_bytes()]


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} tells no peak")


@pytest.mark.alone
def test_a_worker_stays_small_while_64_clients_stream_256_mib_objects_in_and_out(disk_path: Path) -> None:
    piece = os.urandom(MIB)
    stop = threading.Event()
    sent, taken = [0], [0]
    with started(disk_path / "site", command=EXECUTED) as (endpoint, process):
        with _connect(endpoint) as connection:
            connection.sendall(_head(endpoint, "PUT", "/big"))
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert _send_object(endpoint, "/big/source", piece, stop, [0])

        def send(number: int) -> None:
            while not stop.is_set():
                _send_object(endpoint, f"/big/{number}", piece, stop, sent)

        def take(number: int) -> None:
            while not stop.is_set():
                _take_object(endpoint, "/big/source", stop, taken)

        threads = [threading.Thread(target=send if n % 2 else take, args=(n,), daemon=True) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        peaks = [_peak_mib(pid) for pid in _workers(process.pid)]
        stop.set()
        for thread in threads:
            thread.join(60)
    assert sent[0] > OBJECT, "hardly anything was sent: the test proves nothing"
    assert taken[0] > OBJECT, "hardly anything was taken: the test proves nothing"
    assert peaks
    assert max(peaks) < WORKER_MIB_MAX, f"workers held {peaks} MiB"
