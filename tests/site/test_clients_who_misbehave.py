"""A served site and clients who do what they should not, or are slow: others are answered, and nothing stays behind."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tests.endpoint import Endpoint, run_entrepot, started
from tests.files import block_files
from tests.new_sites import new_site
from tests.site.running import client, counted, lines, processes, until

MIB = 1 << 20
WORKER_BYTES = 300 * MIB


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Endpoint, Popen[bytes]]]:
    with started(tmp_path / "site") as running:
        yield running


def connect(endpoint: Endpoint, source: str = "127.0.0.1", receive_bytes: int = 0) -> socket.socket:
    """A connection, from an address of its own where thousands would use up one's ports."""
    made = socket.socket()
    if receive_bytes:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.settimeout(60)
    made.bind((source, 0))
    host, _, port = endpoint.url.removeprefix("http://").rpartition(":")
    made.connect((host, int(port)))
    return made


def head(endpoint: Endpoint, method: str, key: str, size: int | None = None) -> bytes:
    """The head of a presigned request on the bucket `kept`."""
    verb = {"PUT": "put_object", "GET": "get_object"}[method]
    address = client(endpoint).generate_presigned_url(verb, Params={"Bucket": "kept", "Key": key})
    length = "" if size is None else f"Content-Length: {size}\r\n"
    host = endpoint.url.removeprefix("http://")
    return f"{method} {address.removeprefix(endpoint.url)} HTTP/1.1\r\nHost: {host}\r\n{length}\r\n".encode()


def worker_bytes(endpoint: Endpoint) -> int:
    """The resident bytes of the largest worker."""
    pids = [each["pid"] for name, each in processes(endpoint).items() if name.startswith("worker")]
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return max(pages) * resource.getpagesize()


@pytest.mark.slow
def test_ten_thousand_idle_connections_cost_little_and_hold_nobody_up(
    served: tuple[Endpoint, Popen[bytes]],
) -> None:
    endpoint, _ = served
    s3 = client(endpoint)
    s3.create_bucket(Bucket="kept")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10_000 if hard == resource.RLIM_INFINITY else min(10_000, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 500) if soft != -1 else soft, hard))
    idle: list[socket.socket] = []
    try:
        before = worker_bytes(endpoint)
        idle.extend(connect(endpoint, f"127.0.{1 + n // 250}.{n % 250 + 1}") for n in range(wanted))
        until(lambda: counted(endpoint, "entrepot_connections") >= wanted, "all connections")
        for each in idle[: wanted // 2]:
            each.sendall(b"GET / HTTP/1.1\r\nHost: half-a-head\r\nX-A: ")
        for number in range(100):
            s3.put_object(Bucket="kept", Key=str(number), Body=b"x" * number)
            assert s3.get_object(Bucket="kept", Key=str(number))["Body"].read() == b"x" * number
        assert (worker_bytes(endpoint) - before) / wanted < 20_000
        assert worker_bytes(endpoint) < WORKER_BYTES
    finally:
        for each in idle:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    until(lambda: counted(endpoint, "entrepot_connections") < 100, "their end")


@pytest.mark.slow
def test_two_hundred_uploads_that_drip_do_not_lock_the_others_out(served: tuple[Endpoint, Popen[bytes]]) -> None:
    endpoint, _ = served
    s3 = client(endpoint)
    s3.create_bucket(Bucket="kept")
    slow = []
    for number in range(200):
        slow.append(connect(endpoint))
        slow[-1].sendall(head(endpoint, "PUT", f"slow/{number}", 100 * MIB))
    # Each sends most of a block, as far as it is taken, and then a byte now and then.
    ending = threading.Event()
    threads = [threading.Thread(target=_drip, args=(each, ending), daemon=True) for each in slow]
    for thread in threads:
        thread.start()
    until(lambda: counted(endpoint, "entrepot_requests_in_flight") == len(slow), "all of them under way")
    try:
        for size in (1, MIB, 20 * MIB):
            s3.put_object(Bucket="kept", Key="quick", Body=b"x" * size)
            assert len(s3.get_object(Bucket="kept", Key="quick")["Body"].read()) == size
        assert worker_bytes(endpoint) < WORKER_BYTES + len(slow) * MIB  # what the kernel's and our first buffers take
    finally:
        ending.set()
        for each in slow:
            each.close()
    assert [each["Key"] for each in s3.list_objects_v2(Bucket="kept")["Contents"]] == ["quick"]


def _drip(connection: socket.socket, ending: threading.Event) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(b"x" * (7 * MIB))
        while not ending.wait(2.0):
            connection.sendall(b"x")


def test_uploads_that_break_off_leave_nothing(served: tuple[Endpoint, Popen[bytes]]) -> None:
    endpoint, _ = served
    s3 = client(endpoint)
    s3.create_bucket(Bucket="kept")
    for number, sent in enumerate([0, 1, 100_000, 9 * MIB, 25 * MIB]):
        broken = connect(endpoint)
        broken.sendall(head(endpoint, "PUT", f"broken/{number}", 30 * MIB) + b"x" * sent)
        if number % 2:
            broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no goodbye
        broken.close()
    until(lambda: counted(endpoint, "entrepot_requests_in_flight") == 0, "their end")
    assert s3.list_objects_v2(Bucket="kept")["KeyCount"] == 0
    until(lambda: not block_files(endpoint.dir / "blocks"), "their blocks to go")
    assert run_entrepot("fsck", str(endpoint.dir), "--read").returncode == 0


def test_a_download_under_way_is_finished_when_the_gateway_is_stopped(tmp_path: Path) -> None:
    with started(tmp_path / "site") as (endpoint, process):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        data = os.urandom(40 * MIB)
        s3.put_object(Bucket="kept", Key="big", Body=data)
        with connect(endpoint, receive_bytes=64 << 10) as slow:
            slow.sendall(head(endpoint, "GET", "big"))
            first = slow.recv(4096)
            process.send_signal(signal.SIGTERM)
            until(lambda: any(line["event"] == "stopping" for line in lines(endpoint)), "the stop")
            time.sleep(0.2)
            received = bytearray(first)
            while piece := slow.recv(MIB):
                received += piece
        answer, _, body = bytes(received).partition(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert hashlib.sha256(body).digest() == hashlib.sha256(data).digest()
        assert process.wait(60) == 0


def test_a_site_that_does_not_encrypt_does_not_say_that_it_does(tmp_path: Path) -> None:
    new_site(tmp_path / "site", "tagged")
    with started(tmp_path / "site") as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        assert "ServerSideEncryption" not in s3.put_object(Bucket="kept", Key="k", Body=b"x")
        assert "ServerSideEncryption" not in s3.head_object(Bucket="kept", Key="k")
        with pytest.raises(s3.exceptions.ClientError, match="NotImplemented"):
            s3.put_object(Bucket="kept", Key="k", Body=b"x", ServerSideEncryption="AES256")
