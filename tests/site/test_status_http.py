"""The address for metrics and probes: connections that are left open keep nobody out, and none stays for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import aiohttp
import pytest

from gateway.config import Address
from gateway.site.processes.status_http import CONNECTIONS_MAX, Status, StatusServer
from gateway.timing import Timing, parse_timing

SHORT = parse_timing("probes.connection_seconds=0.2; probes.last_answer_seconds=0.2")


@pytest.fixture
async def opened() -> AsyncIterator[list[StatusServer]]:
    kept: list[StatusServer] = []
    yield kept
    for each in kept:
        await each.close()


async def ready_at_once() -> tuple[bool, dict[str, str]]:
    return True, {}


async def overview(
    opened: list[StatusServer], timing: Timing, readiness: Callable[[], Awaitable[Status]] = ready_at_once
) -> Address:
    made = await StatusServer.open(
        Address("127.0.0.1", 0), lambda: b"x" * (8 << 20), lambda: (True, {}), readiness, timing
    )
    opened.append(made)
    return made.address


async def test_connections_that_are_left_open_keep_no_scraper_out_and_are_bounded(opened: list[StatusServer]) -> None:
    host, port = await overview(opened, Timing())
    strangers = [await asyncio.open_connection(host, port) for _ in range(4 * CONNECTIONS_MAX)]
    for number, (_, writer) in enumerate(strangers):
        if number % 2:
            writer.write(b"GET /metrics HTTP/1.1\r\nX-Never-Ends: ")
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/healthz") as answer:
        assert answer.status == 200
        assert opened[0].connections <= CONNECTIONS_MAX
    for _, writer in strangers:
        writer.close()


class Probe:
    """A readiness probe that lasts until the test ends it."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> Status:
        self.begun.set()
        await self.may_end.wait()
        return True, {}


async def asked(host: str, port: int, path: str, times: int = 1) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(times * f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return reader, writer


async def test_silent_connections_do_not_end_one_that_is_being_answered(opened: list[StatusServer]) -> None:
    probe = Probe()
    host, port = await overview(opened, Timing(), probe)
    reader, writer = await asked(host, port, "/readyz")
    await probe.begun.wait()
    silent = [await asyncio.open_connection(host, port) for _ in range(2 * CONNECTIONS_MAX)]
    assert await silent[0][0].read() == b"", "the oldest silent one has made room"
    probe.may_end.set()
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    for each in (writer, *(each for _, each in silent)):
        each.close()


async def test_where_every_connection_is_being_answered_a_new_one_is_refused(opened: list[StatusServer]) -> None:
    probe = Probe()
    host, port = await overview(opened, Timing(), probe)
    busy = [await asked(host, port, "/readyz") for _ in range(CONNECTIONS_MAX)]
    await probe.begun.wait()
    refused, writer = await asked(host, port, "/healthz")
    with suppress(ConnectionResetError):
        assert await refused.read() == b""
    writer.close()
    probe.may_end.set()
    for reader, writer in busy:
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), "and then it makes room"
        writer.close()


@pytest.mark.parametrize("times", [1, 5], ids=["one request", "several requests at once"])
async def test_answers_that_nobody_reads_keep_no_scraper_out(opened: list[StatusServer], times: int) -> None:
    host, port = await overview(opened, Timing())
    unread = []
    for _ in range(CONNECTIONS_MAX):
        _, writer = await asked(host, port, "/metrics", times)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        unread.append(writer)
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/healthz") as answer:
        assert answer.status == 200
    for writer in unread:
        writer.transport.abort()


async def test_an_answer_that_is_made_when_its_connections_time_is_over_is_sent(opened: list[StatusServer]) -> None:
    probe = Probe()
    host, port = await overview(opened, parse_timing("probes.connection_seconds=0.2"), probe)
    silent, other = await asyncio.open_connection(host, port)
    reader, writer = await asked(host, port, "/readyz")
    await probe.begun.wait()
    assert await silent.read() == b"", "its time is over"
    while opened[0].connections > 1:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)  # the other one was accepted at nearly the same moment
    probe.may_end.set()
    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n"), "and then the connection ends"
    for each in (writer, other):
        each.close()


@pytest.mark.parametrize(
    "request_bytes",
    [b"", b"GET /metrics HTTP/1.1\r\nX: ", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["silent", "a head that never ends", "an answer that nobody reads"],
)
async def test_a_connection_ends_after_its_time_whatever_it_does(
    opened: list[StatusServer], request_bytes: bytes
) -> None:
    host, port = await overview(opened, SHORT)
    _, writer = await asyncio.open_connection(host, port)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(request_bytes)
    while not opened[0].connections:
        await asyncio.sleep(0.005)
    while opened[0].connections:
        await asyncio.sleep(0.005)
    writer.close()


async def test_a_scraper_that_is_served_within_its_time_may_ask_again_on_its_connection(
    opened: list[StatusServer],
) -> None:
    host, port = await overview(opened, Timing())
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        for path in ("/metrics", "/healthz", "/readyz", "/metrics"):
            async with session.get(f"http://{host}:{port}{path}") as answer:
                assert answer.status == 200
                await answer.read()
