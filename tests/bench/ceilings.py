"""What the machine could do at best: bare servers and bare disks, measured beside the gateway in the same run.

Run as a program it is one bare server: `python -m tests.bench.ceilings KIND PORT PROCESSES`. KIND is `constant` (4 KiB
to every GET), `empty` (an empty 200), `drop` (reads a body and forgets it) or `zeros` (streams as many zeros as the
path's last part says).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop
from aiohttp import web

SMALL = bytes(4096)
PIECE = bytes(1 << 20)


async def constant(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=SMALL)


async def empty(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response()


async def drop(request: web.BaseRequest) -> web.StreamResponse:
    async for _ in request.content.iter_any():
        pass
    return web.Response()


async def zeros(request: web.BaseRequest) -> web.StreamResponse:
    size = int(request.path.rpartition("/")[2])
    response = web.StreamResponse(headers={"Content-Length": str(size)})
    await response.prepare(request)
    while size:
        piece = PIECE[:size] if size < len(PIECE) else PIECE
        await response.write(piece)
        size -= len(piece)
    await response.write_eof()
    return response


async def _serve(kind: str, port: int) -> None:
    handler = {"constant": constant, "empty": empty, "drop": drop, "zeros": zeros}[kind]
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", port))
    server = web.Server(handler, access_log=None)
    await asyncio.get_running_loop().create_server(server, sock=listening, backlog=1024)
    await asyncio.Event().wait()


def main(kind: str, port: int, processes: int) -> None:
    children = []
    for _ in range(processes - 1):
        child = os.fork()
        if child == 0:
            break
        children.append(child)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if children:
        signal.signal(signal.SIGTERM, lambda *_: ([os.kill(each, signal.SIGKILL) for each in children], os._exit(0)))
    uvloop.run(_serve(kind, port))


def threads_do(count: int, seconds: float, work: Callable[[int], int]) -> float:
    """How much *work* (answering an amount) so many threads do each second."""
    deadline = time.perf_counter() + seconds

    def loop(worker: int) -> int:
        done = 0
        while time.perf_counter() < deadline:
            done += work(worker)
        return done

    started = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        total = sum(pool.map(loop, range(count)))
    return total / (time.perf_counter() - started)


def durable_writes(folder: Path, size: int, threads: int, seconds: float = 2.0) -> float:
    """Bytes a second of bare files of *size*, each written and made durable, by so many threads.

    They stay until the end, as what a store was given does: a file that is removed at once hands its memory to the
    next one, and what is measured then is how fast the same few pages go round."""
    payload = os.urandom(size)
    numbers = iter(range(1 << 60))
    lock = threading.Lock()
    written: list[Path] = []

    def write(_: int) -> int:
        with lock:
            number = next(numbers)
        path = folder / f"bare-{number}"
        handle = os.open(path, os.O_CREAT | os.O_WRONLY)
        try:
            os.write(handle, payload)
            os.fdatasync(handle)
        finally:
            os.close(handle)
        written.append(path)
        return size

    try:
        return threads_do(threads, seconds, write)
    finally:
        for path in written:
            path.unlink()


def md5_rate(size: int, threads: int = 2, seconds: float = 1.0) -> float:
    """Bytes a second of MD5 over pieces of *size* on so many threads."""
    payload = os.urandom(size)
    return threads_do(threads, seconds, lambda _: len(payload) if hashlib.md5(payload).digest() else 0)


def append_then_commit(folder: Path, seconds: float = 2.0) -> float:
    """Per second, one after the other: a bare append of 4 KiB with `fdatasync`, then a bare WAL commit."""
    handle = os.open(folder / "bare-log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    base = sqlite3.connect(folder / "bare.db", isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=FULL")
    base.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, value BLOB)")
    payload = os.urandom(4096)
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        os.write(handle, payload)
        os.fdatasync(handle)
        base.execute("INSERT INTO t (value) VALUES (?)", (payload[:200],))
        count += 1
    taken = time.perf_counter() - started
    os.close(handle)
    base.close()
    return count / taken


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder on the disk that the benchmark's sites lie on."""
    return tempfile.TemporaryDirectory(prefix="entrepot-bench-", dir=os.environ.get("BENCH_DIR"))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
