"""A line between two places: a TCP proxy whose two directions carry so many bytes a second each, after a delay.

All connections share it, first come first served, as they do a router's queue; what one of them has in that queue is
bounded, as by a window. A new connection costs a round trip before it carries anything.

It stands for what is elsewhere: where processors are scarce it takes none from those who are measured.

As a program: `python -m tests.bench.line PORT TO_PORT BYTES_PER_SECOND ROUND_TRIP_SECONDS`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvloop

from gateway.site.processes.priority import lower_priority
from tests.bench.server import ELSEWHERE, wait_for
from tests.ports import free_port

WINDOW_BYTES = 1 << 20
"""Of one connection: with 30 ms there and back, it alone gets as far as 33 MB/s."""


class Direction:
    """One way."""

    def __init__(self, bytes_per_second: float, delay_seconds: float) -> None:
        self._rate = bytes_per_second
        self._delay = delay_seconds
        self._free_at = 0.0

    def arrival(self, size: int) -> float:
        """When what is handed in now is there."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + size / self._rate
        return self._free_at + self._delay


class End(asyncio.Protocol):
    """One end of a connection: what comes in here goes to the other end, later."""

    def __init__(self, way: Direction) -> None:
        self._way = way
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes | None] = deque()  # None: it ended
        self._queued = 0
        self._other: End | None = None
        self.transport: asyncio.Transport | None = None
        self.full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def join(self, other: End) -> None:
        """From now on, what waited here goes there."""
        self._other = other
        for piece in self._queue:
            self._send(piece)

    def data_received(self, data: bytes) -> None:
        self._queue.append(data)
        self._queued += len(data)
        if self._other is not None:
            self._send(data)
        self.throttle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._queue.append(None)
        if self._other is not None:
            self._send(None)

    def pause_writing(self) -> None:
        self.full = True
        if self._other is not None:
            self._other.throttle()

    def resume_writing(self) -> None:
        self.full = False
        if self._other is not None:
            self._other.throttle()

    def throttle(self) -> None:
        """Take in no more while too much of it is on the way, or not taken on the other side."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._queued >= WINDOW_BYTES or (self._other is not None and self._other.full):
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _send(self, piece: bytes | None) -> None:
        # a timer takes whatever is in front: so the order holds, whatever two timers round to
        self._loop.call_at(self._way.arrival(len(piece or b"")), self._arrive)

    def _arrive(self) -> None:
        piece = self._queue.popleft()
        assert self._other is not None and self._other.transport is not None
        if piece is None:
            self._other.transport.close()
            return
        self._queued -= len(piece)
        if not self._other.transport.is_closing():
            self._other.transport.write(piece)
        self.throttle()


async def _serve(port: int, to_port: int, bytes_per_second: float, round_trip_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    there, back = (Direction(bytes_per_second, round_trip_seconds / 2) for _ in range(2))
    opening: set[asyncio.Task[None]] = set()

    async def open_beyond(near: End) -> None:
        await asyncio.sleep(round_trip_seconds)
        try:
            _, far = await loop.create_connection(lambda: End(back), "127.0.0.1", to_port)
        except OSError:
            assert near.transport is not None
            near.transport.close()
            return
        far.join(near)
        near.join(far)

    def accept() -> End:
        near = End(there)
        task = loop.create_task(open_beyond(near))
        opening.add(task)
        task.add_done_callback(opening.discard)
        return near

    await loop.create_server(accept, "127.0.0.1", port, backlog=1024)
    await asyncio.Event().wait()


@contextmanager
def line(to_port: int, bytes_per_second: float, round_trip_seconds: float) -> Iterator[int]:
    """The port of a line that leads to *to_port*, until the block ends."""
    port = free_port()
    numbers = [str(port), str(to_port), str(bytes_per_second), str(round_trip_seconds)]
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.line", *numbers], start_new_session=True)
    try:
        wait_for(port)
        yield port
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    lower_priority(ELSEWHERE)
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
